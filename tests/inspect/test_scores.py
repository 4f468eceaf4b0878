"""The score card on small random models: every number against the dense weights of the same query and key."""

import numpy as np
import pytest
import torch

from headwise.inspect import inspect_heads, scores
from headwise.inspect.capture import attached
from headwise.inspect.heads import induction_link, strongest_links
from headwise.inspect.scorecard import SCORES

from .compare import assert_head
from .conftest import build
from .dense import scores_of, uniform, weights_of

KEYS = "entropy entropy_normalized max_weight distance self previous next first special duplicate induction"


def text(n):
    """(1, n) ids with repeats; the first and the last are the only ones of their kind."""
    ids = torch.randint(1, 9, (1, n), generator=torch.Generator().manual_seed(3))
    ids[0, [0, -1]] = 20
    return ids


def dense_layers(model, ids):
    found = []
    with attached(model, ids.shape[1], found.append):
        model(input_ids=ids, use_cache=False)
    return [weights_of(call.query[0], call.key[0], call.scale, call.is_causal) for call in found]


def test_the_card_has_its_lines_in_order():
    assert [score.key for score in SCORES] == KEYS.split()


@pytest.mark.parametrize("n", [1, 2, 19, 61])  # 61: the pooled map has blocks of two tokens, the last one cut
def test_every_number_of_every_head(kind, n):
    model, ids = build(kind), text(n)
    special = sorted({0, n - 1})
    report = inspect_heads(model, ids, special=special)
    layers = dense_layers(model, ids)
    assert [layer["layer"] for layer in report.layers] == [0, 1, 2]
    for layer, weights in zip(report.layers, layers, strict=True):
        assert len(layer["heads"]) == len(weights)
        for head, dense in zip(layer["heads"], weights, strict=True):
            # The floor is for rows of nearly one-hot weights, whose entropy float32 scores cannot resolve.
            assert_head(head, dense, ids[0].tolist(), sorted({*special}), kind != "bert", 1e-5, floor=1e-6)


def test_every_number_in_float64(kind):
    model, ids = build(kind).double(), text(19)
    report = inspect_heads(model, ids, special=[0])
    for layer, weights in zip(report.layers, dense_layers(model, ids), strict=True):
        for head, dense in zip(layer["heads"], weights, strict=True):
            expected = scores_of(dense, ids[0].tolist(), [0], kind != "bert")
            for key, (value, _) in expected.items():
                assert head["scores"][key]["value"] == (
                    None if value is None else pytest.approx(value, rel=1e-12)
                )


def test_null_values_are_those_of_uniform_attention():
    ids = np.array([3, 1, 4, 1, 5, 1, 4, 9])
    special = np.arange(8) == 0
    for causal in (False, True):
        null = scores.Scorer(ids, special, causal).null
        for key, (value, _) in scores_of(uniform(8, causal), ids, [0], causal).items():
            assert null.get(key) == (None if value is None else pytest.approx(value, rel=1e-12)), key


def test_a_score_without_rows_is_missing():
    scorer = scores.Scorer(np.arange(4), np.zeros(4, bool), is_causal=True)
    zeros = np.zeros((1, 2, 4, 3))
    means = scorer.layer(zeros, zeros, scale=1.0).means
    assert "next" not in means and "special" not in means
    assert (
        means["duplicate"].rows == 0 and means["duplicate"].value(0) is None and means["duplicate"].share == 0
    )
    assert means["previous"].rows == 3 and means["previous"].of == 4


def test_means_of_two_texts_merge():
    rng = np.random.default_rng(0)
    parts, rows = [], []
    for n in (5, 8):
        query, key = rng.standard_normal((1, 2, n, 3)), rng.standard_normal((1, 2, n, 3))
        scorer = scores.Scorer(np.arange(n), np.zeros(n, bool), is_causal=False)
        parts.append(scorer.layer(query, key, scale=1.0).means["self"])
        rows.append(np.diagonal(weights_of(query[0], key[0], 1.0, False), axis1=1, axis2=2))
    merged = (parts[0].total + parts[1].total) / (parts[0].rows + parts[1].rows)
    assert merged == pytest.approx(np.concatenate(rows, axis=1).mean(axis=1), rel=1e-12)


@pytest.mark.parametrize("n", [1, 47, 48, 49, 500])
def test_the_pooled_map_has_at_most_48_blocks_a_side(n):
    scorer = scores.Scorer(np.zeros(n, int), np.zeros(n, bool), is_causal=False)
    assert -(-n // scorer.block) <= 48
    assert scorer.block == 1 or -(-n // (scorer.block - 1)) > 48  # and no coarser than needed


def test_links_leave_out_special_tokens_and_self():
    index = np.array([[1, 2, 0], [0, 1, 2], [2, 0, 1]])
    weight = np.array([[0.9, 0.06, 0.04], [0.8, 0.1, 0.1], [0.5, 0.3, 0.2]])
    none = np.zeros(3, bool)
    assert strongest_links(index, weight, none)[:3] == [[0, 1, 0.9], [1, 0, 0.8], [2, 0, 0.3]]
    assert strongest_links(index, weight, np.arange(3) == 0) == [[2, 1, 0.2], [1, 2, 0.1]]
    everything = strongest_links(
        index, weight, np.ones(3, bool)
    )  # nothing else exists: only self is left out
    assert everything[0] == [0, 1, 0.9] and all(query != key for query, key, _ in everything)
    assert strongest_links(np.array([[0]]), np.array([[1.0]]), none[:1]) == [[0, 0, 1.0]]


def test_links_are_ordered_and_few():
    rng = np.random.default_rng(1)
    weight = np.sort(rng.random((30, 6)))[:, ::-1]
    index = np.array([rng.permutation(30)[:6] for _ in range(30)])
    links = strongest_links(index, weight, np.zeros(30, bool))
    found = [link[2] for link in links]
    assert len(links) == 10 and found == sorted(found, reverse=True)
    others = weight[index != np.arange(30)[:, None]]
    assert found == pytest.approx(np.sort(others)[::-1][:10], abs=1e-6)


def test_links_that_count_for_induction():
    ids = np.array([7, 8, 9, 7, 5])  # row 3 looks for 8 at 1, row 0 for 5 at 4
    index = np.array([[0, 4, 1], [1, 2, 3], [2, 0, -1], [3, 2, 1], [0, 1, -1]])
    weight = np.array([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.5, 0.5, 0.0]])
    assert induction_link(index, weight, ids) == [3, 1, 0.1]
    assert induction_link(index, weight, np.arange(5)) is None
