"""Caches of keys and values: linear, rolling, static, in pages."""
