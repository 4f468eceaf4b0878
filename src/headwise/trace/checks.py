"""The claims that hold in every forward pass, each evaluated on the arrays at hand and never assumed.

Every function takes arrays (heads in front: ``(h, n_q, n_k)``) and returns a :class:`Check` with the error
that it found. A claim that is exact by construction has a tolerance of 0; one that float64 rounding touches
has ``ROUNDING`` times the size of the numbers that meet in it.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.trace.data import Check
from headwise.trace.math import softmax

Array = NDArray[Any]
ROUNDING = 1e-12


def make(key: str, claim: str, error: float, tolerance: float = 0.0) -> Check:
    """The check, decided: it holds if ``error <= tolerance`` (NaN and infinity never hold)."""
    error, tolerance = float(error), float(tolerance)
    return Check(key, claim, error, tolerance, error <= tolerance and error < float("inf"))


def dimensions(key: str, claim: str, found: int, expected: int) -> Check:
    """Two sizes that have to be one."""
    return make(key, claim, abs(found - expected))


def equal(key: str, claim: str, found: Array, expected: Array, exact: bool = False) -> Check:
    """Two ways to compute the same array."""
    if found.shape != expected.shape:
        return make(key, claim, math.inf)
    return make(
        key, claim, largest(found - expected), 0.0 if exact else ROUNDING * max(1.0, largest(expected))
    )


def rows_sum_to_one(weights: Array, empty: Array) -> Check:
    """Each query's weights add up to 1 over the keys; those of a query that sees no key to 0."""
    claim = "every row of weights sums to 1"
    if empty.any():
        claim += " (a query that sees no key: to 0)"
    return make("rows_sum_to_one", claim, largest(weights.sum(-1) - ~empty), ROUNDING)


def never_negative(weights: Array) -> Check:
    return make("never_negative", "no weight is negative", max(0.0, -float(weights.min(initial=0.0))))


def hidden_weight_zero(weights: Array, seen: Array) -> Check:
    """Exactly 0, not merely small."""
    claim = "the weight of every hidden key is exactly 0"
    return make("hidden_weight_zero", claim, largest(np.where(seen, 0.0, weights)))


def nothing_hidden_is_seen(masked: Array, seen: Array) -> Check:
    claim = "every hidden score is \u2212\u221e"
    return make("hidden_score", claim, float((~np.isneginf(masked) & ~seen).sum()))


def no_later_key(seen: Array, offset: int) -> Check:
    """Causal: how far the farthest key that a query sees lies after the query's own position."""
    ahead = np.arange(seen.shape[-1]) - np.arange(seen.shape[-2])[:, None] - offset
    claim = "no query sees a key after its own position"
    return make("no_later_key", claim, float(np.where(seen, ahead, 0).max(initial=0)))


def shift_changes_nothing(masked: Array, weights: Array) -> Check:
    """softmax(z + c) = softmax(z)."""
    claim = "adding 1 to all scores of a row changes no weight"
    return make("shift", claim, largest(softmax(masked + 1.0) - weights), ROUNDING)


def inside_the_hull(blend: Array, value: Array, seen: Array) -> Check:
    """Each channel of an output lies between the smallest and the largest value that its query sees there.

    ``value`` is ``(h, n_k, d_v)``, one per query head. A weighted mean cannot leave that range.
    """
    open_rows = np.expand_dims(seen.any(-1), -1)
    spread = np.where(seen[..., None], value[:, None], np.nan)  # (h, n_q, n_k, d_v)
    low = np.fmin.reduce(spread, axis=-2, initial=np.nan)
    high = np.fmax.reduce(spread, axis=-2, initial=np.nan)
    outside = np.maximum(np.maximum(low - blend, blend - high), 0.0)
    error = largest(np.where(open_rows, outside, blend))
    claim = "every output is inside the range of the values seen, per channel"
    return make("inside_the_hull", claim, error, ROUNDING * max(1.0, largest(value)))


def largest(array: Array) -> float:
    """max |.|, 0 for no element, NaN if there is one."""
    return float(np.abs(array).max(initial=0.0))
