"""The specification itself: against numbers worked out by hand, and against torch's own function."""

import math

import numpy as np
import pytest
import torch

from headwise.reference import reference_attention
from headwise.reference.dropout import dropout_factors, threefry
from headwise.reference.visibility import visible_and_bias


def test_two_keys_by_hand():
    query = np.array([[1.0, 0.0]])
    key = np.array([[math.log(3.0), 5.0], [0.0, -7.0]])
    value = np.array([[4.0, 0.0], [8.0, 100.0]])
    output, weights, lse = reference_attention(query, key, value, scale=1.0)
    np.testing.assert_allclose(weights, [[0.75, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(output, [[5.0, 25.0]], rtol=1e-15)
    np.testing.assert_allclose(lse, [math.log(4.0)], rtol=1e-15)


def test_default_scale_is_of_the_heads_own_width():
    query, key = np.full((1, 4), 3.0), np.array([[1.0, 0, 0, 0], [0.0, 0, 0, 0]])
    _, weights, _ = reference_attention(query, key, np.zeros((2, 1)))
    assert weights[0, 0] / weights[0, 1] == pytest.approx(math.exp(3.0 / 2.0), rel=1e-14)


def test_query_heads_share_key_heads_in_blocks():
    value = np.arange(2.0)[:, None, None] * np.ones((2, 3, 1))  # key head 0 holds zeros, key head 1 ones
    output, _, _ = reference_attention(np.zeros((6, 1, 2)), np.zeros((2, 3, 2)), value)
    np.testing.assert_array_equal(output[:, 0, 0], [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("offset, seen", [(0, [1, 2]), (3, [4, 5]), (-1, [0, 1]), (-5, [0, 0]), (9, [5, 5])])
def test_causal_sees_keys_up_to_its_own_position(offset, seen):
    _, weights, _ = reference_attention(
        np.zeros((2, 3)), np.zeros((5, 3)), np.zeros((5, 1)), is_causal=True, query_offset=offset
    )
    expected = [[1 / n] * n + [0] * (5 - n) if n else [0] * 5 for n in seen]
    np.testing.assert_allclose(weights, expected, rtol=1e-15)


def test_a_row_without_keys_is_zero():
    mask = np.array([[True, True], [False, False]])
    output, weights, lse = reference_attention(np.ones((2, 3)), np.ones((2, 3)), np.ones((2, 4)), mask)
    np.testing.assert_array_equal(output[1], 0)
    np.testing.assert_array_equal(weights[1], 0)
    assert lse[1] == -np.inf
    assert np.isfinite(lse[0])


def test_hidden_keys_and_values_are_never_read():
    rng = np.random.default_rng(0)
    query, key, value = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    mask = np.array([True, False, True, True, False])
    expected = reference_attention(query, key[mask], value[mask])
    key[~mask], value[~mask] = np.nan, np.inf
    output, weights, lse = reference_attention(query, key, value, mask)
    np.testing.assert_allclose(output, expected[0], rtol=1e-14)
    np.testing.assert_allclose(weights[:, mask], expected[1], rtol=1e-14)
    np.testing.assert_allclose(lse, expected[2], rtol=1e-14)


def test_mask_adds_and_composes_with_causal():
    bias = np.array([[0.0, 5.0, 0.0], [math.log(2.0), 0.0, 7.0], [-np.inf, 0.0, 0.0]])
    _, weights, _ = reference_attention(
        np.zeros((3, 1)), np.zeros((3, 1)), np.zeros((3, 1)), bias, is_causal=True
    )
    np.testing.assert_allclose(weights, [[1, 0, 0], [2 / 3, 1 / 3, 0], [0, 0.5, 0.5]], rtol=1e-15)


def drawn(picture):
    """Rows of # (seen) and . (hidden)."""
    return np.array([[mark == "#" for mark in row] for row in picture.split()])


@pytest.mark.parametrize(
    "options, picture",
    [
        ({}, "##### ##### #####"),
        ({"is_causal": True}, "#.... ##... ###.."),
        ({"is_causal": True, "query_offset": 2}, "###.. ####. #####"),
        ({"is_causal": True, "query_offset": -1}, "..... #.... ##..."),
        ({"window_size": (1, 0)}, "#.... ##... .##.."),
        ({"window_size": (0, 2), "query_offset": 1}, ".###. ..### ...##"),
        ({"window_size": (None, 1)}, "##... ###.. ####."),
        ({"window_size": (1, None)}, "##### ##### .####"),
        ({"window_size": (1, 3), "is_causal": True}, "#.... ##... .##.."),
        ({"query_lengths": 2}, "##### ##### ....."),
        ({"kv_lengths": 3}, "###.. ###.. ###.."),
        ({"kv_lengths": 3, "is_causal": True, "query_offset": 1}, "##... ###.. ###.."),
        ({"segment_ids": ([0, 0, 1], [0, 1, 1, 0, 2])}, "#..#. #..#. .##.."),
    ],
)
def test_who_sees_whom(options, picture):
    visible, bias = visible_and_bias((1, 3, 5), **options)
    np.testing.assert_array_equal(visible[0], drawn(picture))
    assert not bias.any()


def test_numbers_per_batch_entry():
    options = {"query_offset": [0, 2], "kv_lengths": [5, 4], "query_lengths": [2, 3], "is_causal": True}
    visible, _ = visible_and_bias((2, 4, 3, 5), **options)
    for head in range(4):
        np.testing.assert_array_equal(visible[0, head], drawn("#.... ##... ....."))
        np.testing.assert_array_equal(visible[1, head], drawn("###.. ####. ####."))


def test_everything_that_is_added():
    mask = np.array([[0.5, -np.inf, 2.0], [0.0, 0.0, 0.0]])
    bias = np.array([[1.0, 1.0, -np.inf], [3.0, 0.0, 0.0]])
    visible, added = visible_and_bias((1, 2, 3), mask, query_offset=1, attn_bias=bias, alibi_slopes=[0.25])
    np.testing.assert_array_equal(visible[0], drawn("#.. ###"))
    assert added[0, 0, 0] == 0.5 + 1.0 - 0.25
    np.testing.assert_array_equal(added[0, 1], [3 - 0.5, -0.25, 0])


def test_softcap_by_hand():
    query, key = np.array([[1.0]]), np.array([[3.0], [-1.0]])
    _, weights, lse = reference_attention(
        query, key, np.zeros((2, 1)), np.array([0.0, 0.5]), scale=2.0, softcap=4.0
    )
    scores = [4 * math.tanh(1.5), 4 * math.tanh(-0.5) + 0.5]
    total = sum(map(math.exp, scores))
    np.testing.assert_allclose(weights, [[math.exp(s) / total for s in scores]], rtol=1e-14)
    np.testing.assert_allclose(lse, [math.log(total)], rtol=1e-14)


def test_sinks_by_hand():
    zeros = np.zeros((2, 2, 3))
    sinks = np.log([[1.0, 1.0], [6.0, 0.5]])
    mask = np.array([[True, True], [False, False]])
    output, weights, lse = reference_attention(zeros, zeros, zeros + 1, mask, sinks=sinks)
    np.testing.assert_allclose(weights[:, 0], [[1 / 4] * 2, [1 / 8.5] * 2], rtol=1e-14)
    np.testing.assert_allclose(output[:, 0, 0], [2 / 4, 2 / 8.5], rtol=1e-14)
    np.testing.assert_array_equal(output[:, 1], 0)
    np.testing.assert_allclose(lse, np.log([[4, 2], [8.5, 6.5]]), rtol=1e-14)
    one = reference_attention(zeros, zeros, zeros + 1, mask, sinks=sinks[:, 0])
    np.testing.assert_allclose(one[1][:, 0], [[1 / 3] * 2, [1 / 8] * 2], rtol=1e-14)


def test_dropout_and_head_mask_come_after_the_weights():
    zeros = np.zeros((2, 1, 3))
    factors = np.array([[[2.0, 0.0]], [[2.0, 2.0]]])
    keys = np.zeros((2, 2, 3))
    values = np.array([[[1.0], [5.0]]] * 2)
    output, weights, _ = reference_attention(zeros, keys, values, dropout=factors, head_mask=[1.0, -0.5])
    np.testing.assert_array_equal(weights, 0.5)
    np.testing.assert_array_equal(output[..., 0], [[1.0], [-3.0]])


@pytest.mark.parametrize("words", [
    (0, 0, 0, 0, 0x6B200159, 0x99BA4EFE),
    (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0x1CB996FC, 0xBB002BE7),
    (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3, 0xC4923A9C, 0x483DF7A0),
])  # fmt: skip
def test_threefry_gives_the_known_answers_of_its_authors(words):
    """Random123's file of known answers: key, counter, result."""
    *given, first, second = (np.array([word], np.uint32) for word in words)
    found = threefry(*given)
    assert (found[0], found[1]) == (first, second)


def test_dropout_factors():
    factors = dropout_factors((3, 4, 200, 300), 0.25, seed=2**40 + 5)
    assert set(np.unique(factors)) == {0.0, 1 / 0.75}
    assert abs((factors == 0).mean() - 0.25) < 0.002
    flat = factors.reshape(12, -1)
    assert len({row.tobytes() for row in flat}) == 12  # every batch entry and head has its own
    # A weight's fate depends on seed, head, i and j only, not on how many of each there are.
    np.testing.assert_array_equal(
        dropout_factors((1, 2, 50, 70), 0.25, 2**40 + 5)[0], factors[0, :2, :50, :70]
    )
    assert (dropout_factors((1, 2, 50, 70), 0.25, 5)[0] != factors[0, :2, :50, :70]).any()
    assert not dropout_factors((2, 3, 4), 1.0, 0).any()
    assert (dropout_factors((2, 3, 4), 0.0, 0) == 1).all()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask_kind", ["none", "boolean", "additive"])
def test_agrees_with_torch(mask_kind, is_causal):
    # torch refuses a mask beside is_causal: the mask then carries the causal part.
    causal_to_torch = is_causal and mask_kind == "none"
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(2, 6, 7, 5, dtype=torch.float64, generator=generator)
    key, value = (torch.randn(2, 2, 7, d, dtype=torch.float64, generator=generator) for d in (5, 3))
    mask = None
    if mask_kind == "boolean":
        mask = torch.rand(2, 1, 7, 7, generator=generator) < 0.8
        mask[..., 0] = True
    elif mask_kind == "additive":
        mask = torch.randn(6, 7, 7, dtype=torch.float64, generator=generator)
    torch_mask = mask
    if mask is not None and is_causal:
        below = torch.ones(7, 7, dtype=torch.bool).tril()
        torch_mask = mask & below if mask_kind == "boolean" else mask.masked_fill(~below, -torch.inf)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, torch_mask, is_causal=causal_to_torch, enable_gqa=True
    )
    numpy_mask = None if mask is None else mask.numpy()
    output, _, _ = reference_attention(
        query.numpy(), key.numpy(), value.numpy(), numpy_mask, is_causal=is_causal
    )
    np.testing.assert_allclose(output, expected.numpy(), rtol=1e-12, atol=1e-13)
