"""Gold pairs: found, weighted and matched, against dense weights."""

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.inspect import inspect_qk
from headwise.inspect.call import rows
from tests.inspect.dense import logits, softmax

GOLD = [(8, 2), (8, 3), (11, 4), (3, 9), (15, 0)]


def arrays(n_q=16, n_k=16, heads=5, seed=0):
    rng = np.random.default_rng(seed)
    return (1.5 * rng.standard_normal((heads, n_q, 8))).astype(np.float32), rng.standard_normal(
        (heads, n_k, 8), dtype=np.float32
    )


def expected_of(weights, visible, gold, candidates, both_ways):
    scored = (weights + weights.T) / 2 if both_ways else weights
    by_query = {}
    for i, j in gold:
        by_query.setdefault(i, set()).add(j)
    candidates = range(weights.shape[1]) if candidates is None else candidates
    hits, mass, chance, share = [], [], [], []
    matched, matched_null = [], []
    for i, keys in by_query.items():
        seen = [j for j in candidates if visible[i, j]]
        best = max(candidates, key=lambda j: (scored[i, j], -j))
        hits.append(float(best in keys and scored[i, best] > 0))
        mass.append(sum(scored[i, j] for j in keys))
        chance.append(len([j for j in seen if j in keys]) / max(len(seen), 1))
        share.append(sum(visible[i, j] for j in keys) / visible[i].sum())
        for j in keys:
            for other in by_query:
                there = other + j - i
                inside = 0 <= there < weights.shape[1] and visible[other, there]
                if other != i and inside and there not in by_query[other]:
                    matched.append(scored[other, there])
                    matched_null.append(1 / visible[other].sum())
    return {
        "pair_accuracy": (np.mean(hits), np.mean(chance)),
        "pair_mass": (np.mean(mass), np.mean(share)),
        "pair_matched": (np.mean(matched), np.mean(matched_null)),
    }


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("candidates", [None, [0, 2, 3, 4, 9, 10]])
@pytest.mark.parametrize("causal", [False, True])
def test_against_dense_weights(monkeypatch, both_ways, candidates, causal):
    monkeypatch.setattr(rows, "PIECE", 200)  # several pieces
    query, key = arrays()
    options = {
        "pairs": GOLD,
        "pair_candidates": candidates,
        "pairs_both_ways": both_ways,
        "is_causal": causal,
    }
    report = inspect_qk(query, key, **options)
    visible = np.tri(16, dtype=bool) if causal else np.ones((16, 16), bool)
    weights = softmax(logits(query, key, 8**-0.5), visible)
    for head, dense in zip(report.layers[0]["heads"], weights, strict=True):
        expected = expected_of(dense, visible, GOLD, candidates, both_ways)
        for name, (value, null) in expected.items():
            assert head["scores"][name]["value"] == pytest.approx(value, abs=1e-5), name
            assert head["scores"][name]["null"] == pytest.approx(null, abs=1e-9), name
        assert head["scores"]["pair_accuracy"]["rows"] == 4
    found = report.pairs
    assert found["many"] == 5 and found["both_ways"] == both_ways
    assert found["candidates"] == (None if candidates is None else 6)
    best = [(entry["value"], entry["mass"]) for entry in found["best"]]
    assert len(best) == 5 and best == sorted(best, reverse=True)
    assert "Heads that find the 5 gold pairs" in str(report)


def test_a_head_that_is_made_to_find_them_comes_first():
    query, key = arrays()
    wanted = np.zeros((16, 16))
    for i, j in GOLD:
        wanted[i, j] = 60
    query[3], key[3] = 0, 0
    query = np.concatenate([query, np.zeros((5, 16, 8), np.float32)], axis=-1)
    key = np.concatenate([key, np.zeros((5, 16, 8), np.float32)], axis=-1)
    left, size, right = np.linalg.svd(wanted)
    query[3, :, :8], key[3, :, :8] = (left * size)[:, :8], right.T[:, :8]
    report = inspect_qk(query, key, pairs=GOLD)
    assert (report.pairs["best"][0]["head"], report.pairs["best"][0]["value"]) == (3, 1.0)
    assert report.pairs["best"][0]["mass"] == pytest.approx(1, abs=1e-4)
    assert report.pairs["best"][0]["matched"] < 0.1


def test_pairs_between_two_texts():
    query, key = arrays(6, 11)
    gold = [(0, 10), (5, 3)]
    report = inspect_qk(query, key, pairs=gold)
    weights = softmax(logits(query, key, 8**-0.5), np.ones((6, 11), bool))
    for head, dense in zip(report.layers[0]["heads"], weights, strict=True):
        assert head["scores"]["pair_mass"]["value"] == pytest.approx(
            (dense[0, 10] + dense[5, 3]) / 2, abs=1e-6
        )
        assert head["scores"]["pair_accuracy"]["null"] == pytest.approx(1 / 11)
        assert "pair_matched" not in head["scores"]  # distances mean nothing between two texts
    with pytest.raises(
        HeadwiseError, match="pairs_both_ways: expected queries and keys that are the same tokens"
    ):
        inspect_qk(query, key, pairs=gold, pairs_both_ways=True)


@pytest.mark.parametrize(
    "given", [[], [(1, 2, 3)], [(0, 16)], [(-1, 2)], [(0.5, 1)], [(1, 2), (3,)], "ab", 7]
)
def test_what_are_no_pairs_is_refused(given):
    with pytest.raises(
        HeadwiseError, match=r"pairs: expected pairs \(query from 0 to 15, key from 0 to 15\)"
    ):
        inspect_qk(*arrays(), pairs=given)


def test_candidates_are_positions():
    with pytest.raises(HeadwiseError, match="pair_candidates: expected different positions from 0 to 15"):
        inspect_qk(*arrays(), pairs=GOLD, pair_candidates=[16])
    with pytest.raises(HeadwiseError, match="pair_candidates: expected at least one position"):
        inspect_qk(*arrays(), pairs=GOLD, pair_candidates=[])
