"""The claims that hold in every forward pass, each evaluated on the arrays at hand and never assumed.

Every function takes arrays (heads in front: ``(h, n_q, n_k)``) and returns a :class:`Check` with the error
that it found. A claim that is exact by construction has a tolerance of 0; one that float64 rounding touches
has ``ROUNDING`` times the size of the numbers that meet in it.
"""

import math
import sys

import numpy as np

from headwise.plain.types import Array
from headwise.trace.arithmetic import softmax
from headwise.trace.data import Check

ROUNDING = 1e-12
_LARGE = 1e3  # numbers beyond are rounded so coarsely that a check says how


def make(key: str, claim: str, error: float, tolerance: float = 0.0, why: str = "") -> Check:
    """The check, decided: it holds if ``error <= tolerance``, which no NaN or infinite error does."""
    error, tolerance = float(error), float(tolerance)
    largest = sys.float_info.max
    if not error < largest:
        return Check(key, claim, largest, min(tolerance, largest / 2), False, why)
    return Check(key, claim, error, min(tolerance, largest), error <= tolerance, why)


def rounded(size: float, what: str) -> str:
    """Why a tolerance is large: how coarsely float64 rounds numbers of that size; "" if they are small."""
    if size <= _LARGE:
        return ""
    return f"{what} reach {size:.1e}, where float64 has steps of {float(np.spacing(size)):.1e}"


def dimensions(key: str, claim: str, found: int, expected: int) -> Check:
    """Two sizes that have to be one."""
    return make(key, claim, abs(found - expected))


def equal(key: str, claim: str, found: Array, expected: Array, exact: bool = False) -> Check:
    """Two ways to compute the same array."""
    if found.shape != expected.shape:
        return make(key, claim, math.inf)
    if exact:
        return make(key, claim, largest(found - expected))
    size = largest(expected)
    return make(
        key, claim, largest(found - expected), ROUNDING * max(1.0, size), rounded(size, "these numbers")
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
    """softmax(z + c) = softmax(z), but for the rounding of z + c."""
    claim = "adding 1 to all scores of a row changes no weight"
    size = largest(np.where(np.isneginf(masked), 0.0, masked))
    tolerance = ROUNDING + 4 * float(np.spacing(size))
    return make("shift", claim, largest(softmax(masked + 1.0) - weights), tolerance, rounded(size, "scores"))


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
    size = largest(value)
    return make("inside_the_hull", claim, error, ROUNDING * max(1.0, size), rounded(size, "values"))


def largest(array: Array) -> float:
    """max |.|, 0 for no element, NaN if there is one."""
    return float(np.abs(array).max(initial=0.0))
