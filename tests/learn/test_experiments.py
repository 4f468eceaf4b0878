"""The small things that lessons compute: what has to hold for any numbers."""

import numpy as np
import pytest

from headwise.compute.block import multi_head_attention
from headwise.learn.book import experiments


@pytest.mark.parametrize("seed", range(20))
def test_a_head_one_number_wide_has_two_favourites_at_most(seed):
    rng = np.random.default_rng(seed)
    query, key = rng.normal(size=(30, 1)), rng.normal(size=(20, 1))
    assert experiments.favourites(query @ key.T) <= 2


@pytest.mark.parametrize("seed", range(10))
def test_overlap_of_two_maps(seed):
    weights = np.random.default_rng(seed).dirichlet(np.ones(6), size=(2, 4))
    found = experiments.redundancy(weights)
    assert 0 <= found <= 1
    assert experiments.redundancy(weights[::-1]) == pytest.approx(found, rel=1e-15)
    np.testing.assert_allclose(found, np.minimum(*weights).sum(-1).mean(), rtol=1e-12)
    assert experiments.redundancy(weights[[0, 0]]) == 1
    assert experiments.redundancy(np.eye(4)[[[0], [1]]]) == 0


def test_a_row_without_keys():
    found = experiments.attention_row([3, 4], [[1], [2]], seen=[False, False])
    assert (
        (found.weights == 0).all() and found.output == 0 and found.lse == -np.inf and np.isnan(found.entropy)
    )


@pytest.mark.parametrize("h", [1, 2, 4])
def test_four_ways_of_the_block_itself(h):
    made = experiments.block_inputs(h, 5, 8)
    heads, _ = experiments.heads_of(made["x"], made["w_q"], made["w_k"], made["w_v"], h)
    ways = experiments.four_ways(heads, made["w_o"])
    weights = {name: made[name] for name in ("w_q", "w_k", "w_v", "w_o")}
    np.testing.assert_allclose(
        ways["concatenated"], multi_head_attention(made["x"], **weights, num_heads=h), atol=1e-14
    )
    np.testing.assert_allclose(ways["projected"], ways["concatenated"], atol=1e-14)
    np.testing.assert_allclose(ways["summed"], ways["shared"], atol=1e-14)
    assert (np.abs(ways["summed"] - ways["concatenated"]).max() > 0.1) == (h > 1)


def test_an_encoder_layer():
    made = experiments.block_inputs(3, 5, 8)
    weights = {name: made[name] for name in ("w_q", "w_k", "w_v", "w_o")}
    rng = np.random.default_rng(0)
    w_1, w_2, order = rng.normal(size=(8, 16)), rng.normal(size=(16, 8)), rng.permutation(5)
    found = experiments.encoder_layer(made["x"], weights, w_1, w_2, 2)
    assert found.shape == (5, 8)
    np.testing.assert_allclose(
        experiments.encoder_layer(made["x"][order], weights, w_1, w_2, 2), found[order], atol=1e-12
    )
    silent = {**weights, "w_o": 0 * made["w_o"]}
    np.testing.assert_array_equal(experiments.encoder_layer(made["x"], silent, w_1, 0 * w_2, 2), made["x"])
    alone = made["x"] + np.maximum(normed(made["x"]) @ w_1, 0) @ w_2
    np.testing.assert_allclose(experiments.encoder_layer(made["x"], silent, w_1, w_2, 2), alone, atol=1e-12)


def normed(rows):
    centred = rows - rows.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
