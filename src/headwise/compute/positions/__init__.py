"""Positions on plain arrays: embeddings, rotations, biases, and rotations beyond the trained length."""

from headwise.compute.positions.encodings import alibi_slopes, rotary, rotary_table, sinusoidal, t5_buckets
from headwise.compute.positions.scaling import RotaryScaling

__all__ = ["RotaryScaling", "alibi_slopes", "rotary", "rotary_table", "sinusoidal", "t5_buckets"]
