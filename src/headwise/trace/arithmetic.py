"""The formulas of a forward pass in NumPy float64, dense and short. Heads stand in front: ``(h, n, d)``."""

import numpy as np

from headwise.plain.types import Array


def softmax(scores: Array) -> Array:
    """exp(z) / sum exp(z) over the last axis; minus infinity hides a key, a row without any gives 0."""
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore"):  # a gap beyond float64 is minus infinity, and its weight 0
        exponentials = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    total = exponentials.sum(-1, keepdims=True)
    return exponentials / np.where(total == 0, 1.0, total)


def split(rows: Array, heads: int) -> Array:
    """(n, h * d) -> (h, n, d): head i owns columns i * d up to (i + 1) * d."""
    return rows.reshape(rows.shape[0], heads, -1).swapaxes(0, 1)


def join(heads: Array) -> Array:
    """(h, n, d) -> (n, h * d): the heads side by side."""
    return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)


def for_each_query_head(kv: Array, heads: int) -> Array:
    """(h_kv, n, d) -> (h, n, d): the key or value head that query head i uses, i // (h / h_kv)."""
    return kv.repeat(heads // kv.shape[0], axis=0)


def projected_heads(heads: Array, w_o: Array) -> Array:
    """(h, n, d_v) and (h * d_v, d_out) -> (h, n, d_out): each head times its own block of rows of W_O."""
    return heads @ w_o.reshape(heads.shape[0], heads.shape[2], -1)
