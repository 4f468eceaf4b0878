"""The specification: scaled dot-product attention by its formula, row by row, in float64.

    scores  = softcap(scale * query @ key^T) (+ bias)
    weights = softmax(scores)          over the keys that the row sees, with sink logits in the denominator
    output  = weights @ value

It is the oracle of all tests, so it is written to be read aloud and never to be fast. It shares nothing with
the kernel. A row takes up only the keys that it sees: what the others hold, NaN included, is never read.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.reference.visibility import visible_and_bias

__all__ = ["reference_attention", "visible_and_bias"]

Float64 = NDArray[np.float64]


def reference_attention(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any],
    attn_mask: NDArray[Any] | None = None,
    *,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: NDArray[Any] | None = None,
    dropout: NDArray[Any] | None = None,
    head_mask: NDArray[Any] | None = None,
    **rules: Any,
) -> tuple[Float64, Float64, Float64]:
    """Output ``(..., H, n_q, d_v)``, weights ``(..., H, n_q, n_k)`` and log-sum-exp ``(..., H, n_q)``, all
    float64.

    Args:
        query: ``(..., H, n_q, d_k)``, or ``(n_q, d_k)`` for one head.
        key: ``(..., H_kv, n_k, d_k)``; query head h uses key head h // (H / H_kv).
        value: ``(..., H_kv, n_k, d_v)``.
        attn_mask: booleans (True = attend) or numbers to add, broadcast to ``(..., H, n_q, n_k)``.
        scale: None means 1/sqrt(d_k).
        softcap: c > 0; a scaled score s becomes c * tanh(s / c).
        sinks: ``(H,)`` or ``(H, S)`` logits that take part in the denominator only.
        dropout: ``(..., H, n_q, n_k)``, 0 for a dropped weight and 1 / (1 - p) for a kept one.
        head_mask: ``(H,)`` or ``(..., H)``, factors of the heads' outputs.
        rules: ``is_causal``, ``query_offset``, ``attn_bias``, ``window_size``, ``query_lengths``,
            ``kv_lengths``, ``segment_ids``, ``alibi_slopes``: see ``visibility``.

    Weights are those before dropout and head mask. A row that sees no key has output 0, weights 0 and
    log-sum-exp -inf, or that of its sink logits.
    """
    if query.ndim == 2:
        arrays = (query[None], key[None], value[None], attn_mask)
        options = {"scale": scale, "softcap": softcap, "sinks": sinks, "dropout": dropout, **rules}
        output, weights, lse = reference_attention(*arrays, head_mask=head_mask, **options)
        return output[0], weights[0], lse[0]

    *lead, heads, n_q, d_k = query.shape
    kv_heads, n_k, d_v = value.shape[-3:]
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    visible, bias = visible_and_bias((*lead, heads, n_q, n_k), attn_mask, **rules)
    sink_logits = np.zeros((heads, 0)) if sinks is None else np.asarray(sinks, float).reshape(heads, -1)

    output = np.zeros((*lead, heads, n_q, d_v))
    weights = np.zeros((*lead, heads, n_q, n_k))
    lse = np.full((*lead, heads, n_q), -np.inf)

    for row in np.ndindex(*lead, heads, n_q):
        *batch, head, _ = row
        kv_head = (*batch, head // (heads // kv_heads))
        seen = np.flatnonzero(visible[row])
        keys = key[kv_head][seen].astype(np.float64)
        values = value[kv_head][seen].astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity that a row does see
            scores = scale * (keys @ query[row].astype(np.float64))
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            scores = scores + bias[row][seen]
            logits = np.concatenate([scores, sink_logits[head]])
            if logits.size == 0:
                continue
            largest = logits.max()
            total = np.exp(logits - largest).sum()
            lse[row] = largest + np.log(total)
            weights[row][seen] = np.exp(scores - largest) / total
            kept = weights[row] if dropout is None else weights[row] * dropout[row]
            output[row] = kept[seen] @ values
    if head_mask is not None:
        output *= np.asarray(head_mask, float)[..., None, None]
    return output, weights, lse
