"""Rotary positions by their formula, kept apart from the package's own so that neither judges itself."""

import numpy as np

from headwise.plain.types import Array, Floats


def frequencies(width: int, base: float) -> Floats:
    """base^(-2i / width) of pair i."""
    return np.asarray(base ** (-np.arange(0, width, 2) / width))


def angles(positions: Array, width: int, base: float) -> Floats:
    """(n, width / 2)."""
    return np.asarray(positions, float)[:, None] * frequencies(width, base)


def halves(x: Floats, angle: Floats) -> Floats:
    """Features (i, i + width / 2) turn by the angle of pair i; features beyond the angles stay."""
    half = angle.shape[-1]
    cos, sin = np.cos(angle), np.sin(angle)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def interleaved(x: Floats, angle: Floats) -> Floats:
    """Features (2i, 2i + 1) turn by the angle of pair i."""
    cos, sin = np.cos(angle), np.sin(angle)
    turned = np.empty_like(x)
    turned[..., ::2] = x[..., ::2] * cos - x[..., 1::2] * sin
    turned[..., 1::2] = x[..., 1::2] * cos + x[..., ::2] * sin
    return turned
