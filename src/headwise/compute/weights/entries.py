"""Single scores of a problem, in float64, by index: what the lazy weight matrix is computed from.

``at`` is the index of a batch entry and a head, ``(*lead, head)``; ``i`` and ``j`` are the numbers of queries
and keys, ``(r, 1)`` and ``(1, c)`` for a block, or all five of one length for single points.
"""

from typing import Any

import numpy as np

from headwise.compute.problem import Problem
from headwise.plain.types import Booleans, Floats, Integers

At = tuple[Any, ...]

STAGES = ("scaled", "capped", "masked")


def scores_at(p: Problem, at: At, i: Integers, j: Integers, stage: str) -> Floats:
    """Scores after one stage: "scaled", "capped" (soft cap), "masked" (bias, ALiBi; -inf = hidden)."""
    *lead, head = at
    kv = (*lead, head // (p.heads // p.kv_heads))
    with np.errstate(all="ignore"):  # NaN and infinity in the inputs are the caller's own
        if i.ndim == 2:
            queries, keys = p.query[at][i[:, 0]], p.key[kv][j[0]]
            scores = p.scale * (queries.astype(np.float64) @ keys.astype(np.float64).T)
        else:
            queries, keys = p.query[(*at, i)], p.key[(*kv, j)]
            scores = p.scale * np.einsum("nd,nd->n", queries, keys, dtype=np.float64)
        cap = p.rules.softcap
        if cap is not None and stage != "scaled":
            scores = cap * np.tanh(scores / cap)
        if stage != "masked":
            return np.asarray(scores)
        for added in (p.mask, p.rules.bias):
            if added is not None and added.dtype != np.bool_:
                scores = scores + added[(*at, i, j)]
        if p.rules.alibi_slopes is not None:
            scores = scores - p.rules.alibi_slopes[at] * np.abs(_positions(p, tuple(lead), i) - j)
        return np.where(visible_at(p, at, i, j), scores, -np.inf)


def visible_at(p: Problem, at: At, i: Integers, j: Integers) -> Booleans:
    """Which of the pairs see each other."""
    lead, rules = at[:-1], p.rules
    visible = np.ones(np.broadcast_shapes(i.shape, j.shape), bool)
    for mask in (p.mask, rules.bias):
        if mask is not None:
            piece = mask[(*at, i, j)]
            visible &= piece if mask.dtype == np.bool_ else piece != -np.inf
    position = _positions(p, lead, i)
    left, right = rules.window
    if p.is_causal:
        visible &= j <= position
    if left is not None:
        visible &= j >= position - left
    if right is not None:
        visible &= j <= position + right
    if rules.query_lengths is not None:
        visible &= i < rules.query_lengths[lead]
    if rules.kv_lengths is not None:
        visible &= j < rules.kv_lengths[lead]
    if rules.query_segments is not None and rules.key_segments is not None:
        visible &= rules.query_segments[(*lead, i)] == rules.key_segments[(*lead, j)]
    return visible


def _positions(p: Problem, lead: At, i: Integers) -> Integers:
    return i + (p.offset if p.rules.query_offsets is None else p.rules.query_offsets[lead])
