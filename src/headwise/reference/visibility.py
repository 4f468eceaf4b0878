"""The rules of the specification: which keys each row sees, and what is added to their scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def visible_and_bias(
    shape: tuple[int, ...],
    attn_mask: NDArray[Any] | None = None,
    is_causal: bool = False,
    query_offset: Any = 0,
    *,
    attn_bias: NDArray[Any] | None = None,
    window_size: tuple[int | None, int | None] = (None, None),
    query_lengths: Any = None,
    kv_lengths: Any = None,
    segment_ids: Any = None,
    alibi_slopes: Any = None,
) -> tuple[NDArray[np.bool_], Float64]:
    """Visible keys and added numbers, both of ``shape``, ``(..., H, n_q, n_k)``.

    The options are those of ``headwise.attention``. A row sees a key that no rule hides.
    """
    n_q, n_k = shape[-2:]
    visible, bias = np.ones(shape, bool), np.zeros(shape)
    for added in (attn_mask, attn_bias):
        if added is not None and added.dtype == np.bool_:
            visible &= added
        elif added is not None:
            visible &= added != -np.inf
            bias += np.where(added == -np.inf, 0, added)

    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    position = i + per_batch(query_offset)  # of query i among the keys
    if is_causal:
        visible &= j <= position
    left, right = window_size
    if left is not None:
        visible &= j >= position - left
    if right is not None:
        visible &= j <= position + right
    if query_lengths is not None:
        visible &= i < per_batch(query_lengths)
    if kv_lengths is not None:
        visible &= j < per_batch(kv_lengths)
    if segment_ids is not None:
        query_ids, key_ids = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
        same = np.asarray(query_ids)[..., :, None] == np.asarray(key_ids)[..., None, :]
        visible &= same[..., None, :, :]
    if alibi_slopes is not None:
        bias -= np.asarray(alibi_slopes, float)[..., None, None] * np.abs(position - j)
    return visible, bias


def per_batch(numbers: Any) -> Any:
    """One number, or one per batch entry: ``(...)`` -> ``(..., 1, 1, 1)``, to meet ``(..., H, n_q, n_k)``."""
    return np.asarray(numbers)[..., None, None, None] if np.ndim(numbers) else numbers
