"""The checks of a trace: each holds where it should, and each fails on arrays that break its claim."""

import math

import numpy as np
import pytest

from headwise.trace import checks
from headwise.trace.math import softmax

SCORES = np.random.default_rng(0).normal(size=(2, 3, 4))
SEEN = np.ones(SCORES.shape, bool)
SEEN[0, 0] = False
SEEN[1, :, 3] = False
MASKED = np.where(SEEN, SCORES, -np.inf)
WEIGHTS = softmax(MASKED)
EMPTY = ~SEEN.any(-1)
VALUE = np.random.default_rng(1).normal(size=(2, 4, 5))
BLEND = WEIGHTS @ VALUE


def changed(array, place, value):
    array = np.array(array)
    array[place] = value
    return array


RIGHT = {
    "rows": lambda: checks.rows_sum_to_one(WEIGHTS, EMPTY),
    "sign": lambda: checks.never_negative(WEIGHTS),
    "hidden weight": lambda: checks.hidden_weight_zero(WEIGHTS, SEEN),
    "hidden score": lambda: checks.nothing_hidden_is_seen(MASKED, SEEN),
    "later key": lambda: checks.no_later_key(np.tril(np.ones((3, 3), bool), -1), -1),
    "shift": lambda: checks.shift_changes_nothing(MASKED, WEIGHTS),
    "hull": lambda: checks.inside_the_hull(BLEND, VALUE, SEEN),
    "equal": lambda: checks.equal("k", "c", BLEND, BLEND + 1e-14),
    "dimension": lambda: checks.dimensions("k", "c", 8, 8),
}
WRONG = {
    "rows over the whole grid": lambda: checks.rows_sum_to_one(WEIGHTS / 3, EMPTY),
    "rows after dropout": lambda: checks.rows_sum_to_one(changed(WEIGHTS, (1, 1, 1), 0), EMPTY),
    "an empty row that is uniform": lambda: checks.rows_sum_to_one(changed(WEIGHTS, (0, 0), 0.25), EMPTY),
    "a negative weight": lambda: checks.never_negative(changed(WEIGHTS, (1, 1, 1), -1e-300)),
    "a tiny weight on a hidden key": lambda: checks.hidden_weight_zero(
        changed(WEIGHTS, (1, 1, 3), 1e-30), SEEN
    ),
    "a mask of -10000": lambda: checks.nothing_hidden_is_seen(np.where(SEEN, SCORES, -1e4), SEEN),
    "one key too far": lambda: checks.no_later_key(np.tril(np.ones((3, 3), bool), 1), 0),
    "softmax with an offset": lambda: checks.shift_changes_nothing(MASKED, WEIGHTS * 0.99),
    "an output outside": lambda: checks.inside_the_hull(changed(BLEND, (1, 2, 0), 9.0), VALUE, SEEN),
    "an output just outside": lambda: checks.inside_the_hull(
        changed(BLEND, (1, 2, 0), VALUE[1, :3, 0].max() + 1e-9), VALUE, SEEN
    ),
    "a value that only a hidden key has": lambda: checks.inside_the_hull(
        changed(BLEND, (1, 2, 0), 50.0), changed(VALUE, (1, 3, 0), 100.0), SEEN
    ),
    "an empty row that is not 0": lambda: checks.inside_the_hull(
        changed(BLEND, (0, 0, 0), 1e-9), VALUE, SEEN
    ),
    "an output that is NaN": lambda: checks.inside_the_hull(changed(BLEND, (1, 2, 0), np.nan), VALUE, SEEN),
    "unequal": lambda: checks.equal("k", "c", BLEND, BLEND + 1e-9),
    "unequal in the last bit": lambda: checks.equal("k", "c", BLEND, np.nextafter(BLEND, 9), exact=True),
    "another shape": lambda: checks.equal("k", "c", BLEND, BLEND[0]),
    "another size": lambda: checks.dimensions("k", "c", 64, 512),
    "not a number": lambda: checks.make("k", "c", math.nan, 1.0),
}


@pytest.mark.parametrize("name", RIGHT)
def test_it_holds(name):
    check = RIGHT[name]()
    assert check.holds and check.error <= check.tolerance and check.claim


@pytest.mark.parametrize("name", WRONG)
def test_it_fails(name):
    check = WRONG[name]()
    assert check.holds is False


def test_the_error_is_the_one_found():
    assert checks.rows_sum_to_one(WEIGHTS / 2, EMPTY).error == pytest.approx(0.5)
    assert checks.no_later_key(np.ones((2, 4), bool), 1).error == 2
    assert checks.inside_the_hull(changed(BLEND, (1, 2, 0), 9.0), VALUE, SEEN).error == pytest.approx(
        9 - VALUE[1, :3, 0].max()
    )
    assert checks.dimensions("k", "c", 64, 512).error == 448


def test_claims_mention_empty_rows_only_where_there_are_some():
    assert "to 0" in checks.rows_sum_to_one(WEIGHTS, EMPTY).claim
    assert "to 0" not in checks.rows_sum_to_one(softmax(SCORES), EMPTY & False).claim


def test_an_infinite_error_holds_under_no_tolerance():
    assert not checks.make("k", "c", float("inf"), float("inf")).holds
    assert not checks.make("k", "c", float("nan"), float("inf")).holds
    assert checks.make("k", "c", 1.0, float("inf")).holds
