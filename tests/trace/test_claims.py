"""The checks of a trace: each holds where it should, and each fails on arrays that break its claim."""

import math

import numpy as np
import pytest

from headwise.trace import claims, explain
from headwise.trace.arithmetic import softmax

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
    "rows": lambda: claims.rows_sum_to_one(WEIGHTS, EMPTY),
    "sign": lambda: claims.never_negative(WEIGHTS),
    "hidden weight": lambda: claims.hidden_weight_zero(WEIGHTS, SEEN),
    "hidden score": lambda: claims.nothing_hidden_is_seen(MASKED, SEEN),
    "later key": lambda: claims.no_later_key(np.tril(np.ones((3, 3), bool), -1), -1),
    "shift": lambda: claims.shift_changes_nothing(MASKED, WEIGHTS),
    "hull": lambda: claims.inside_the_hull(BLEND, VALUE, SEEN),
    "equal": lambda: claims.equal("k", "c", BLEND, BLEND + 1e-14),
    "dimension": lambda: claims.dimensions("k", "c", 8, 8),
}
WRONG = {
    "rows over the whole grid": lambda: claims.rows_sum_to_one(WEIGHTS / 3, EMPTY),
    "rows after dropout": lambda: claims.rows_sum_to_one(changed(WEIGHTS, (1, 1, 1), 0), EMPTY),
    "an empty row that is uniform": lambda: claims.rows_sum_to_one(changed(WEIGHTS, (0, 0), 0.25), EMPTY),
    "a negative weight": lambda: claims.never_negative(changed(WEIGHTS, (1, 1, 1), -1e-300)),
    "a tiny weight on a hidden key": lambda: claims.hidden_weight_zero(
        changed(WEIGHTS, (1, 1, 3), 1e-30), SEEN
    ),
    "a mask of -10000": lambda: claims.nothing_hidden_is_seen(np.where(SEEN, SCORES, -1e4), SEEN),
    "one key too far": lambda: claims.no_later_key(np.tril(np.ones((3, 3), bool), 1), 0),
    "softmax with an offset": lambda: claims.shift_changes_nothing(MASKED, WEIGHTS * 0.99),
    "an output outside": lambda: claims.inside_the_hull(changed(BLEND, (1, 2, 0), 9.0), VALUE, SEEN),
    "an output just outside": lambda: claims.inside_the_hull(
        changed(BLEND, (1, 2, 0), VALUE[1, :3, 0].max() + 1e-9), VALUE, SEEN
    ),
    "a value that only a hidden key has": lambda: claims.inside_the_hull(
        changed(BLEND, (1, 2, 0), 50.0), changed(VALUE, (1, 3, 0), 100.0), SEEN
    ),
    "an empty row that is not 0": lambda: claims.inside_the_hull(
        changed(BLEND, (0, 0, 0), 1e-9), VALUE, SEEN
    ),
    "an output that is NaN": lambda: claims.inside_the_hull(changed(BLEND, (1, 2, 0), np.nan), VALUE, SEEN),
    "unequal": lambda: claims.equal("k", "c", BLEND, BLEND + 1e-9),
    "unequal in the last bit": lambda: claims.equal("k", "c", BLEND, np.nextafter(BLEND, 9), exact=True),
    "another shape": lambda: claims.equal("k", "c", BLEND, BLEND[0]),
    "another size": lambda: claims.dimensions("k", "c", 64, 512),
    "not a number": lambda: claims.make("k", "c", math.nan, 1.0),
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
    assert claims.rows_sum_to_one(WEIGHTS / 2, EMPTY).error == pytest.approx(0.5)
    assert claims.no_later_key(np.ones((2, 4), bool), 1).error == 2
    assert claims.inside_the_hull(changed(BLEND, (1, 2, 0), 9.0), VALUE, SEEN).error == pytest.approx(
        9 - VALUE[1, :3, 0].max()
    )
    assert claims.dimensions("k", "c", 64, 512).error == 448


def test_claims_mention_empty_rows_only_where_there_are_some():
    assert "to 0" in claims.rows_sum_to_one(WEIGHTS, EMPTY).claim
    assert "to 0" not in claims.rows_sum_to_one(softmax(SCORES), EMPTY & False).claim


def test_an_infinite_error_holds_under_no_tolerance():
    assert not claims.make("k", "c", float("inf"), float("inf")).holds
    assert not claims.make("k", "c", float("nan"), float("inf")).holds
    assert claims.make("k", "c", 1.0, float("inf")).holds


def test_a_check_that_passes_on_a_large_error_says_why():
    query, key = [[1e8, 1e8, 1]], [[1e8, 1, 1], [1e8, 1, -1], [3, 3, 3]]
    trace = explain(query=query, key=key, value=[[1], [2], [3]])
    check = trace["blend"].check("same_output")
    assert check.holds and check.error > 0.1
    assert check.why == (
        "products of queries and keys reach 5.8e+15, where float64 rounds a score by about 1.3e+00: two ways "
        "to add them up may differ as much as this"
    )
    assert trace.compared["why"] == check.why
    for text in (str(trace), trace.to_markdown(), trace.to_html()):
        flat = " ".join(text.replace("\\", "").split())
        assert "float64 rounds a score by about 1.3e+00" in flat
        assert "agrees as far as rounding lets it" in flat and "gives the same output: largest" not in flat


def test_a_shift_is_not_blamed_for_what_rounding_does():
    trace = explain(scores=[[1e16, 1e16 + 2, 3]], value=[[1], [2], [3]])
    check = trace["weights"].check("shift")
    assert trace.holds and check.error > 0.05
    assert check.why == "scores reach 1.0e+16, where float64 has steps of 2.0e+00"
    assert "(scores reach 1.0e+16, where float64 has steps of 2.0e+00)" in " ".join(str(trace).split())


def test_numbers_of_common_size_need_no_word():
    trace = explain(query=np.eye(2) * 9, key=np.eye(2), value=[[1], [2]])
    assert {check.why for check in trace.checks} == {""}
    assert "allowed" not in str(trace)


@pytest.mark.parametrize("error", [np.nan, np.inf])
def test_an_error_that_is_no_number_never_holds(error):
    check = claims.make("k", "c", error, np.inf)
    assert (
        not check.holds
        and check.error > check.tolerance
        and np.isfinite([check.error, check.tolerance]).all()
    )


def test_lists_are_taken_as_arrays_are():
    lists = {"query": [[1, 0]], "key": [[1, 0], [0, 1]], "value": ((2,), (4,)), "attn_mask": [[0, None]]}
    arrays = {name: np.array(value, np.float64) for name, value in lists.items() if name != "attn_mask"}
    assert explain(**lists) == explain(**arrays, attn_mask=np.array([[0, -np.inf]]))
    assert explain(scores=[np.array([1.0, 2])], value=[[1], [2]], attn_mask=[[True, False]]).output == [
        [[1.0]]
    ]
