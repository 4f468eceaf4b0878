"""Positions on plain arrays: the documented path of ``headwise.compute.positions``."""

from headwise.compute.positions import (
    RotaryScaling,
    alibi_slopes,
    rotary,
    rotary_table,
    sinusoidal,
    t5_buckets,
)

__all__ = ["RotaryScaling", "alibi_slopes", "rotary", "rotary_table", "sinusoidal", "t5_buckets"]
