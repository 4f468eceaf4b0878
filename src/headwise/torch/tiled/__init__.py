"""Exact attention in tiles of torch tensors, on any device: passes, statistics, dropout."""
