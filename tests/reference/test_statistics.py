"""The definitions against loops that spell them out, and the answers' own behaviour."""

import itertools

import numpy as np
import pytest

from headwise.compute.answers import records
from headwise.compute.problem import build_problem
from headwise.compute.request import Aux, AuxRequest, distance_buckets
from headwise.reference import reference_attention
from headwise.reference.statistics import dense_statistics

N_Q, N_K = 5, 7
KEY_TOKENS = np.array([4, 2, 4, 4, 9, 2, 4])
CLASSES = np.array([0, 2, -1, 0, 1, 2, 2])
EVERYTHING = AuxRequest(
    lse=True,
    max_weight=True,
    argmax=True,
    entropy=True,
    sum_squares=True,
    sink_logit_mass=True,
    distance=True,
    top_k=3,
    sink_mass=2,
    relative=(-1, 0, 2),
    matches=KEY_TOKENS,
    classes=CLASSES,
    received=True,
    pooled=3,
)


def example(is_causal, offset):
    """Weights of two heads, where row 2 sees nothing, and what each row sees."""
    rng = np.random.default_rng(5)
    mask = rng.random((2, N_Q, N_K)) < 0.7
    mask[:, 2] = False
    arrays = (rng.normal(size=(2, n, 3)) for n in (N_Q, N_K, N_K))
    _, weights, lse = reference_attention(*arrays, mask, is_causal=is_causal, query_offset=offset)
    if is_causal:
        mask = mask & (np.arange(N_K) <= np.arange(N_Q)[:, None] + offset)
    return weights, mask, lse


def tokens_of_queries(offset):
    return np.array([KEY_TOKENS[i + offset] if 0 <= i + offset < N_K else -1 for i in range(N_Q)])


@pytest.mark.parametrize("offset", [0, 2, -1])
@pytest.mark.parametrize("is_causal", [False, True])
def test_row_definitions_spelled_out(is_causal, offset):
    weights, visible, lse = example(is_causal, offset)
    query_tokens = tokens_of_queries(offset)
    answers = dense_statistics(
        weights,
        visible,
        EVERYTHING,
        lse=lse,
        is_causal=is_causal,
        query_offset=offset,
        key_tokens=KEY_TOKENS,
        query_tokens=query_tokens,
    )
    assert answers["lse"] is lse
    for h, i in np.ndindex(2, N_Q):
        seen = [j for j in range(N_K) if visible[h, i, j]]
        w, at = weights[h, i], i + offset
        row = {name: answer[h, i] for name, answer in answers.items() if answer.shape[:2] == (2, N_Q)}
        ranked = sorted(seen, key=lambda j: (-w[j], j))
        assert row["argmax"] == (ranked[0] if seen else -1)
        assert list(row["top_k_index"]) == (ranked + [-1] * 3)[:3]
        assert list(row["top_k_weight"]) == ([w[j] for j in ranked] + [0.0] * 3)[:3]
        same = [j for j in seen if KEY_TOKENS[j] == query_tokens[i] and (j < at if is_causal else j != at)]
        after = [
            j for j in seen
            if j >= 1 and KEY_TOKENS[j - 1] == query_tokens[i] and (j <= at if is_causal else j - 1 != at)
        ]  # fmt: skip
        assert (row["duplicate_count"], row["induction_count"]) == (len(same), len(after))
        expected = {
            "max_weight": max(w),
            "sum_squares": sum(w[j] ** 2 for j in seen),
            "sink_logit_mass": 0.0,
            "entropy": -sum(w[j] * np.log(w[j]) for j in seen),
            "distance": sum(w[j] * abs(at - j) for j in seen),
            "sink_mass": w[0] + w[1],
            "relative": [w[at + o] if 0 <= at + o < N_K else 0.0 for o in (-1, 0, 2)],
            "duplicate": sum(w[j] for j in same),
            "induction": sum(w[j] for j in after),
            "classes": [sum(w[j] for j in seen if CLASSES[j] == c) for c in range(3)],
        }
        for name, value in expected.items():
            missing = np.full(np.shape(value), np.nan)
            np.testing.assert_allclose(
                row[name], value if seen else missing, rtol=1e-13, atol=1e-15, err_msg=name
            )


@pytest.mark.parametrize("is_causal", [False, True])
def test_column_definitions_spelled_out(is_causal):
    weights, visible, lse = example(is_causal, 0)
    request = AuxRequest(received=True, pooled=3)
    answers = dense_statistics(weights, visible, request, lse=lse)
    assert set(answers) == {"received", "received_count", "pooled"}
    for h, j in np.ndindex(2, N_K):
        assert answers["received"][h, j] == pytest.approx(
            sum(weights[h, i, j] for i in range(N_Q)), abs=1e-15
        )
        assert answers["received_count"][h, j] == sum(visible[h, i, j] for i in range(N_Q))
    assert answers["pooled"].shape == (2, 2, 3)
    for h, a, b in np.ndindex(2, 2, 3):
        rows = [i for i in range(3 * a, min(3 * a + 3, N_Q)) if visible[h, i].any()]
        mass = sum(weights[h, i, j] for i in rows for j in range(3 * b, min(3 * b + 3, N_K)))
        assert answers["pooled"][h, a, b] == pytest.approx(mass / len(rows), abs=1e-15)


@pytest.mark.parametrize("offset", [0, 2, -1, 40])
def test_distance_histogram_spelled_out(offset):
    weights, visible, lse = example(False, offset)
    request = AuxRequest(distance=True)
    answer = dense_statistics(weights, visible, request, lse=lse, query_offset=offset)["distance_histogram"]
    buckets = [range(0, 1), range(1, 2), range(2, 4), range(4, 10**9)]
    assert answer.shape == (2, len(buckets))
    rows = [i for i in range(N_Q) if i != 2]  # row 2 sees nothing
    for h, (b, bucket) in itertools.product(range(2), enumerate(buckets)):
        mass = sum(weights[h, i, j] for i in rows for j in range(N_K) if abs(i + offset - j) in bucket)
        assert answer[h, b] == pytest.approx(mass / len(rows), abs=1e-15)
    np.testing.assert_allclose(answer.sum(-1), 1, rtol=1e-14)


def test_distance_histogram_without_rows_is_missing():
    answers = dense_statistics(
        np.zeros((2, 3)), np.zeros((2, 3), bool), AuxRequest(distance=True), lse=np.full(2, -np.inf)
    )
    assert np.isnan(answers["distance_histogram"]).all()


@pytest.mark.parametrize("n, buckets", [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (9, 5), (1024, 11)])
def test_number_of_distance_buckets(n, buckets):
    assert distance_buckets(n, n) == distance_buckets(1, n) == distance_buckets(n, 1) == buckets


def test_one_offset_per_batch_entry():
    rng = np.random.default_rng(6)
    weights = rng.dirichlet(np.ones(N_K), size=(3, 2, N_Q))
    visible, lse = np.ones(weights.shape, bool), np.zeros(weights.shape[:-1])
    offsets = np.array([0, 4, -2])
    request = AuxRequest(distance=True, relative=(0, 1), matches=(KEY_TOKENS, KEY_TOKENS[:N_Q]))
    tokens = {"key_tokens": np.tile(KEY_TOKENS, (3, 1)), "query_tokens": np.tile(KEY_TOKENS[:N_Q], (3, 1))}
    together = dense_statistics(weights, visible, request, lse=lse, query_offset=offsets, **tokens)
    for b, offset in enumerate(offsets):
        tokens_of_one = {name: ids[b] for name, ids in tokens.items()}
        alone = dense_statistics(
            weights[b], visible[b], request, lse=lse[b], query_offset=int(offset), **tokens_of_one
        )
        for name, answer in alone.items():
            np.testing.assert_array_equal(together[name][b], answer, err_msg=name)


def test_what_sink_logits_take_by_hand():
    request = AuxRequest(sink_logit_mass=True, entropy=True, sum_squares=True)
    weights = np.array([[0.5, 0.25], [0.0, 0.0]])
    answers = dense_statistics(weights, weights > 0, request, lse=np.zeros(2))
    np.testing.assert_array_equal(answers["sink_logit_mass"], [0.25, np.nan])
    np.testing.assert_array_equal(answers["sum_squares"], [0.3125, np.nan])
    assert answers["entropy"][0] == pytest.approx(0.5 * np.log(2) + 0.25 * np.log(4), rel=1e-15)


def test_a_block_without_rows_is_missing():
    visible = np.ones((4, 4), bool)
    visible[2:] = False
    answers = dense_statistics(visible / 4, visible, AuxRequest(pooled=2), lse=np.zeros(4))
    np.testing.assert_allclose(answers["pooled"], [[0.5, 0.5], [np.nan, np.nan]])


def test_uniform_and_one_hot_by_hand():
    request = AuxRequest(entropy=True, max_weight=True, argmax=True, distance=True)
    uniform = dense_statistics(np.full((1, 4), 0.25), np.ones((1, 4), bool), request, lse=np.zeros(1))
    assert uniform["entropy"][0] == pytest.approx(np.log(4), rel=1e-15)
    assert (uniform["max_weight"][0], uniform["argmax"][0], uniform["distance"][0]) == (0.25, 0, 1.5)
    one_hot = dense_statistics(np.eye(4)[2:3], np.ones((1, 4), bool), request, lse=np.zeros(1))
    assert (one_hot["entropy"][0], one_hot["max_weight"][0], one_hot["argmax"][0]) == (0.0, 1.0, 2)


def test_no_keys_at_all():
    answers = dense_statistics(
        np.zeros((2, 3, 0)),
        np.zeros((2, 3, 0), bool),
        AuxRequest(argmax=True, top_k=2, entropy=True, received=True),
        lse=np.full((2, 3), -np.inf),
    )
    np.testing.assert_array_equal(answers["argmax"], -1)
    np.testing.assert_array_equal(answers["top_k_index"], np.full((2, 3, 2), -1))
    np.testing.assert_array_equal(answers["top_k_weight"], 0)
    assert np.isnan(answers["entropy"]).all()
    assert answers["received"].shape == (2, 0)


def test_buffers_have_the_documented_shapes():
    x = np.zeros((2, 4, N_K, 3), np.float32)
    problem = build_problem(x[:, :, :N_Q], x, x, return_aux=EVERYTHING, query_offset=0)
    options, answers = records(problem)
    rows = (2, 4, N_Q)
    shapes = {
        **dict.fromkeys(("lse", "max_weight", "argmax", "entropy", "distance", "sink_mass"), rows),
        **dict.fromkeys(("sum_squares", "sink_logit_mass"), rows),
        "distance_histogram": (2, 4, 4),
        **dict.fromkeys(("duplicate", "duplicate_count", "induction", "induction_count"), rows),
        **dict.fromkeys(("top_k_index", "top_k_weight", "relative", "classes"), (*rows, 3)),
        **dict.fromkeys(("received", "received_count"), (2, 4, N_K)),
        "pooled": (2, 4, 2, 3),
    }
    assert {name: answer.shape for name, answer in answers.items()} == shapes
    whole = {name for name, answer in answers.items() if answer.dtype == np.int64}
    assert whole == {"argmax", "top_k_index", "duplicate_count", "induction_count", "received_count"}
    assert {answer.dtype for name, answer in answers.items() if name not in whole} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(options.pop("relative"), (-1, 0, 2))
    assert options.pop("classes") is problem.classes
    assert options.pop("key_tokens") is problem.key_tokens
    assert options.pop("query_tokens") is problem.query_tokens
    numbers = {"top_k": 3, "sink_mass": EVERYTHING.sink_mass, "pooled": EVERYTHING.pooled}
    assert options == {**numbers, "buckets": 4, "class_count": 3}


def test_nothing_asked_means_no_buffers():
    x = np.zeros((1, 2, 3))
    for request in (None, AuxRequest()):
        assert records(build_problem(x, x, x, return_aux=request)) == ({}, {})


def test_aux_shows_what_it_holds():
    aux = Aux(lse=np.zeros((2, 3)), argmax=np.zeros((2, 3), int))
    assert repr(aux) == "Aux(lse (2, 3), argmax (2, 3))"
    assert repr(Aux()) == "Aux(nothing was asked for)"
    assert set(aux.asked()) == {"lse", "argmax"}
    assert aux.entropy is None


def test_aux_maps_every_answer():
    aux = Aux(lse=np.ones(2), received=np.ones(3)).map(lambda answer: answer + 1)
    np.testing.assert_array_equal(aux.lse, [2, 2])
    np.testing.assert_array_equal(aux.received, [2, 2, 2])
    assert aux.argmax is None
