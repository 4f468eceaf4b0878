"""The specification of the statistics: each by its definition, over the dense weight matrix in float64.

It shares nothing with the code that it judges: it says what every streamed statistic means.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def dense_statistics(
    weights: Float64,
    visible: NDArray[np.bool_],
    request: Any,
    *,
    lse: Float64,
    is_causal: bool = False,
    query_offset: int | NDArray[np.int64] = 0,
    key_tokens: NDArray[np.int64] | None = None,
    query_tokens: NDArray[np.int64] | None = None,
) -> dict[str, NDArray[Any]]:
    """Every requested statistic from its definition, under the names of :class:`Aux`.

    Args:
        weights: ``(..., H, n_q, n_k)`` float64, 0 where not visible.
        visible: the same shape; which keys each row sees.
        request: what is asked for, as the fields of an ``AuxRequest``; ``classes`` has to be ``(..., n_k)``
            with the leading axes of the weights or none.
        lse: ``(..., H, n_q)``, handed through, as it cannot be read off the weights.
        is_causal, query_offset: what the matches and the positions depend on; one offset, or one per batch
            entry, of the leading axes' shape.
        key_tokens, query_tokens: ``(..., n_k)`` and ``(..., n_q)``, when ``request.matches`` is given.
    """
    n_q, n_k = weights.shape[-2:]
    offset = np.asarray(query_offset)
    query_position = np.arange(n_q)[:, None] + (offset[..., None, None, None] if offset.ndim else offset)
    key_position = np.arange(n_k)
    sees: NDArray[np.bool_] = np.asarray(visible.any(-1))
    answers: dict[str, NDArray[Any]] = {}

    def mass(where: NDArray[np.bool_]) -> Float64:
        return np.where(sees, np.sum(weights * where, axis=-1), np.nan)

    if request.lse:
        answers["lse"] = lse
    if request.max_weight:
        answers["max_weight"] = np.where(sees, weights.max(-1, initial=0.0), np.nan)
    if request.entropy:
        logarithms = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        answers["entropy"] = np.where(sees, -np.sum(weights * logarithms, axis=-1), np.nan)
    if request.sum_squares:
        answers["sum_squares"] = np.where(sees, np.sum(weights**2, axis=-1), np.nan)
    if request.sink_logit_mass:
        answers["sink_logit_mass"] = np.where(sees, 1 - np.sum(weights, axis=-1), np.nan)
    if request.distance:
        distances = np.abs(query_position - key_position)
        answers["distance"] = np.where(sees, np.sum(weights * distances, axis=-1), np.nan)
        answers["distance_histogram"] = _histogram(weights, distances, sees)
    if request.sink_mass:
        answers["sink_mass"] = mass(key_position < request.sink_mass)
    if request.relative:
        answers["relative"] = np.stack(
            [mass(key_position == query_position + o) for o in request.relative], axis=-1
        )
    if request.argmax or request.top_k:
        heaviest_first = np.argsort(np.where(visible, -weights, np.inf), axis=-1, kind="stable")
        k = max(request.top_k, 1)
        index = np.full((*weights.shape[:-1], k), -1)
        index[..., : min(k, n_k)] = heaviest_first[..., :k]
        index = np.where(np.arange(k) < visible.sum(-1)[..., None], index, -1)
        if request.argmax:
            answers["argmax"] = index[..., 0]
        if request.top_k:
            answers["top_k_index"] = index
            picked = np.take_along_axis(weights, np.maximum(index, 0), -1) if n_k else np.zeros(index.shape)
            answers["top_k_weight"] = np.where(index >= 0, picked, 0)
    if request.matches is not None:
        assert key_tokens is not None and query_tokens is not None
        same = (key_tokens[..., None, :] == query_tokens[..., :, None])[..., None, :, :]
        elsewhere = key_position < query_position if is_causal else key_position != query_position
        duplicate = same & elsewhere
        induction = np.zeros_like(duplicate)
        induction[..., 1:] = duplicate[..., :-1]  # the key after a duplicate
        for name, matching in (("duplicate", duplicate), ("induction", induction)):
            possible = visible & matching
            answers[name] = mass(possible)
            answers[f"{name}_count"] = possible.sum(-1)
    if request.classes is not None:
        classes = [mass((request.classes == c)[..., None, None, :]) for c in range(request.class_count)]
        answers["classes"] = np.stack(classes, axis=-1) if classes else np.empty((*sees.shape, 0))
    if request.received:
        answers["received"] = weights.sum(-2)
        answers["received_count"] = visible.sum(-2)
    if request.pooled:
        answers["pooled"] = _pooled(weights, sees, request.pooled)
    return answers


def _histogram(weights: Float64, distances: NDArray[np.int64], sees: NDArray[np.bool_]) -> Float64:
    """Mean over the rows that see a key of their mass in each bucket: 0, 1, 2-3, 4-7, ..., the rest."""
    longest = max(*weights.shape[-2:], 1) - 1
    buckets = 1 + longest.bit_length()
    edges = [0, *(2**i for i in range(buckets - 1)), np.inf]
    answer = np.full((*weights.shape[:-2], buckets), np.nan)
    for i in range(buckets):
        inside = (distances >= edges[i]) & (distances < edges[i + 1])
        total, count = (weights * inside).sum((-2, -1)), sees.sum(-1)
        np.divide(total, count, out=answer[..., i], where=count > 0)
    return answer


def _pooled(weights: Float64, sees: NDArray[np.bool_], block: int) -> Float64:
    """Mean over the rows of each block that see a key of their mass on each block of keys."""
    n_q, n_k = weights.shape[-2:]
    answer = np.full((*weights.shape[:-2], -(-n_q // block), -(-n_k // block)), np.nan)
    for i, j in np.ndindex(answer.shape[-2:]):
        rows, keys = slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block)
        total, count = weights[..., rows, keys].sum((-2, -1)), sees[..., rows].sum(-1)
        np.divide(total, count, out=answer[..., i, j], where=count > 0)
    return answer
