"""The specification: scaled dot-product attention by its formula, row by row, in float64.

    scores  = scale * query @ key^T (+ mask)
    weights = softmax(scores)          over the keys that the row sees
    output  = weights @ value

It is the oracle of all tests, so it is written to be read aloud and never to be fast. It shares nothing with
the kernel. A row takes up only the keys that it sees: what the others hold, NaN included, is never read.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def reference_attention(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    attn_mask: NDArray[Any] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    query_offset: int = 0,
) -> tuple[Float64, Float64, Float64]:
    """Output ``(..., H, n_q, d_v)``, weights ``(..., H, n_q, n_k)`` and log-sum-exp ``(..., H, n_q)``, all
    float64.

    Args:
        query: ``(..., H, n_q, d_k)``, or ``(n_q, d_k)`` for one head.
        key: ``(..., H_kv, n_k, d_k)``; query head h uses key head h // (H / H_kv).
        value: ``(..., H_kv, n_k, d_v)``.
        attn_mask: booleans (True = attend) or numbers to add, broadcast to ``(..., H, n_q, n_k)``.
        is_causal: query i sees key j if j <= i + query_offset.
        scale: None means 1/sqrt(d_k).
        query_offset: position of query 0 among the keys.

    A row that sees no key has output 0, weights 0 and log-sum-exp -inf.
    """
    if query.ndim == 2:
        head = reference_attention(
            query[None],
            key[None],
            value[None],
            attn_mask,
            is_causal=is_causal,
            scale=scale,
            query_offset=query_offset,
        )
        return head[0][0], head[1][0], head[2][0]

    *lead, heads, n_q, d_k = query.shape
    kv_heads, n_k, d_v = value.shape[-3:]
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    visible, bias = visible_and_bias((*lead, heads, n_q, n_k), attn_mask, is_causal, query_offset)

    output = np.zeros((*lead, heads, n_q, d_v))
    weights = np.zeros((*lead, heads, n_q, n_k))
    lse = np.full((*lead, heads, n_q), -np.inf)

    for row in np.ndindex(*lead, heads, n_q):
        *batch, head, _ = row
        kv_head = (*batch, head // (heads // kv_heads))
        seen = np.flatnonzero(visible[row])
        if seen.size == 0:
            continue
        keys = key[kv_head][seen].astype(np.float64)
        values = value[kv_head][seen].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity that a row does see
            scores = scale * (keys @ query[row].astype(np.float64)) + bias[row][seen]
            largest = scores.max()
            exponentials = np.exp(scores - largest)
            total = exponentials.sum()
            weights[row][seen] = exponentials / total
            output[row] = (exponentials / total) @ values
            lse[row] = largest + np.log(total)
    return output, weights, lse


def visible_and_bias(
    shape: tuple[int, ...], attn_mask: NDArray[Any] | None, is_causal: bool, query_offset: int
) -> tuple[NDArray[np.bool_], Float64]:
    """Which keys each row sees, and what is added to their scores; both ``(..., H, n_q, n_k)``."""
    n_q, n_k = shape[-2:]
    visible, bias = np.ones(shape, bool), np.zeros(shape)
    if attn_mask is not None and attn_mask.dtype == np.bool_:
        visible &= attn_mask
    elif attn_mask is not None:
        visible &= attn_mask != -np.inf
        bias += np.where(attn_mask == -np.inf, 0, attn_mask)
    if is_causal:
        visible &= np.arange(n_k) <= np.arange(n_q)[:, None] + query_offset
    return visible, bias
