"""The weight matrix that is never made: the entries that are asked for, and no others."""

from headwise.compute.weights.weights import AttentionWeights

__all__ = ["AttentionWeights"]
