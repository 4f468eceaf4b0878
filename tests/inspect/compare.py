"""Comparing the entry of a head in a report with its dense weights. Every comparison asserts."""

import math

from .dense import pooled_of, scores_of, uniform

RELATIVE = {"entropy", "distance"}  # nats and tokens; the other scores are masses and shares


def assert_head(head, weights, ids, special, is_causal, tolerance, floor=1e-12):
    """Scores, null values, strongest keys, links and map of ``head`` against ``weights`` (n, n).

    ``tolerance`` is absolute for masses and shares, relative for nats and tokens, where an absolute error of
    ``floor`` is allowed too.
    """
    n = len(weights)
    expected = scores_of(weights, ids, special, is_causal)
    nulls = scores_of(uniform(n, is_causal), ids, special, is_causal)
    assert list(head["scores"]) == list(expected)
    for key, (value, share) in expected.items():
        line = head["scores"][key]
        assert_close(line["value"], value, key, tolerance, floor)
        assert_close(line["null"], nulls[key][0], key, 1e-12, 1e-12)
        share = share if value is not None or key in ("duplicate", "induction") else None
        assert line["share"] == share or math.isclose(line["share"], share, abs_tol=1e-12), key
    assert_rows(head["rows"], weights, is_causal, tolerance)
    for query, key, weight in head["links"]:
        assert abs(weights[query, key] - weight) <= tolerance + 5e-7
    block = head["pooled"]["block"]
    for row, dense in zip(head["pooled"]["map"], pooled_of(weights, block), strict=True):
        for cell, mass in zip(row, dense, strict=True):
            assert abs(cell - mass) <= tolerance + 5e-7


def assert_close(value, expected, key, tolerance, floor):
    if expected is None:
        assert value is None, key
        return
    allowed = tolerance * abs(expected) if key in RELATIVE else tolerance
    assert abs(value - expected) <= max(allowed, floor), (key, value, expected)


def assert_rows(rows, weights, is_causal, tolerance):
    """The kept keys of each row are the strongest, up to ties, and none is there twice."""
    n, k = len(weights), len(rows["index"][0])
    assert len(rows["index"]) == len(rows["weight"]) == n
    for i, (keys, kept) in enumerate(zip(rows["index"], rows["weight"], strict=True)):
        exist = min(k, i + 1 if is_causal else n)
        assert keys[exist:] == [-1] * (k - exist)
        assert kept[exist:] == [0] * (k - exist)
        assert len(set(keys[:exist])) == exist
        strongest = sorted(weights[i], reverse=True)
        for rank in range(exist):
            assert abs(weights[i, keys[rank]] - kept[rank]) <= tolerance + 5e-7
            assert abs(weights[i, keys[rank]] - strongest[rank]) <= 2 * tolerance
