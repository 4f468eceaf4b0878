"""The multi-head block against a plain loop over heads, with weights whose every size is different."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from headwise import AuxRequest, multi_head_attention
from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.reference import reference_attention


def weights(seed, d_in, d_context, heads, kv_heads, d_k, d_v, d_out, dtype=np.float64):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(dtype)

    return {
        "w_q": normal(d_in, heads * d_k),
        "w_k": normal(d_context, kv_heads * d_k),
        "w_v": normal(d_context, kv_heads * d_v),
        "w_o": normal(heads * d_v, d_out),
        "b_q": normal(heads * d_k),
        "b_k": normal(kv_heads * d_k),
        "b_v": normal(kv_heads * d_v),
        "b_o": normal(d_out),
    }


def head_by_head(x, context, heads, kv_heads, w, **options):
    """The definition: every head on its own columns, side by side, times w_o."""
    d_k, d_v = w["w_q"].shape[1] // heads, w["w_v"].shape[1] // kv_heads
    outputs = []
    for head in range(heads):
        kv_head = head // (heads // kv_heads)
        own, own_k = slice(head * d_k, (head + 1) * d_k), slice(kv_head * d_k, (kv_head + 1) * d_k)
        own_v = slice(kv_head * d_v, (kv_head + 1) * d_v)
        query = x @ w["w_q"][:, own] + w["b_q"][own]
        key = context @ w["w_k"][:, own_k] + w["b_k"][own_k]
        value = context @ w["w_v"][:, own_v] + w["b_v"][own_v]
        outputs.append(reference_attention(query, key, value, **options)[0])
    return np.concatenate(outputs, axis=-1) @ w["w_o"] + w["b_o"]


CASES = [
    # d_in, d_context, heads, kv_heads, d_k, d_v, d_out, n, n_k
    pytest.param(7, None, 3, 3, 5, 2, 11, 6, 6, id="self"),
    pytest.param(7, 13, 3, 3, 5, 2, 11, 4, 9, id="cross"),
    pytest.param(7, 13, 6, 2, 5, 3, 11, 4, 9, id="grouped"),
    pytest.param(7, None, 1, 1, 5, 2, 11, 6, 6, id="one head"),
    pytest.param(7, None, 3, 3, 5, 2, 11, 1, 1, id="one token"),
    pytest.param(7, None, 4, 4, 1, 1, 3, 5, 5, id="heads of width 1"),
]


@pytest.mark.parametrize("d_in, d_context, heads, kv_heads, d_k, d_v, d_out, n, n_k", CASES)
def test_against_a_loop_over_heads(d_in, d_context, heads, kv_heads, d_k, d_v, d_out, n, n_k):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d_in))
    context = None if d_context is None else rng.normal(size=(n_k, d_context))
    w = weights(1, d_in, d_context or d_in, heads, kv_heads, d_k, d_v, d_out)
    expected = head_by_head(x, x if context is None else context, heads, kv_heads, w)
    result = multi_head_attention(x, context, **w, num_heads=heads, num_kv_heads=kv_heads)
    assert result.shape == (n, d_out)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_leading_axes(lead):
    rng = np.random.default_rng(2)
    x, context = rng.normal(size=(*lead, 4, 7)), rng.normal(size=(*lead, 9, 13))
    w = weights(3, 7, 13, 6, 2, 5, 3, 11)
    result = multi_head_attention(x, context, **w, num_heads=6, num_kv_heads=2)
    assert result.shape == (*lead, 4, 11)
    for index in np.ndindex(lead):
        expected = head_by_head(x[index], context[index], 6, 2, w)
        np.testing.assert_allclose(result[index], expected, rtol=0, atol=1e-13)


def test_causal_mask_and_scale():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(8, 7))
    w = weights(5, 7, 7, 3, 3, 5, 2, 11)
    mask = rng.random((8, 8)) < 0.7
    options = {"attn_mask": mask, "is_causal": True, "scale": 0.3}
    expected = head_by_head(x, x, 3, 3, w, **options)
    np.testing.assert_allclose(
        multi_head_attention(x, **w, num_heads=3, **options), expected, rtol=0, atol=1e-13
    )


def test_a_mask_per_head():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(5, 7))
    w = weights(7, 7, 7, 3, 3, 5, 2, 11)
    mask = np.zeros((3, 5, 5), bool)
    mask[0], mask[1, :, 0] = (
        np.eye(5, dtype=bool),
        True,
    )  # head 0 sees itself, head 1 the first token, head 2 nothing
    value = (x @ w["w_v"] + w["b_v"]).reshape(5, 3, 2)
    heads = np.concatenate([value[:, 0], np.tile(value[0, 1], (5, 1)), np.zeros((5, 2))], axis=-1)
    expected = heads @ w["w_o"] + w["b_o"]
    np.testing.assert_allclose(
        multi_head_attention(x, **w, num_heads=3, attn_mask=mask), expected, rtol=0, atol=1e-13
    )


def test_placed_queries_in_cross_attention():
    rng = np.random.default_rng(8)
    x, context = rng.normal(size=(3, 7)), rng.normal(size=(8, 13))
    w = weights(9, 7, 13, 3, 3, 5, 2, 11)
    expected = head_by_head(x, context, 3, 3, w, is_causal=True, query_offset=5)
    for placed in ({"query_offset": 5}, {"causal_alignment": "lower_right"}):
        result = multi_head_attention(x, context, **w, num_heads=3, is_causal=True, **placed)
        np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13)
    with pytest.raises(ShapeError, match="upper_left"):
        multi_head_attention(x, context, **w, num_heads=3, is_causal=True)


def test_biases_are_optional():
    rng = np.random.default_rng(10)
    x = rng.normal(size=(4, 7))
    w = weights(11, 7, 7, 3, 3, 5, 2, 11)
    plain = {name: weight for name, weight in w.items() if name.startswith("w_")}
    zero = {**w, **{name: np.zeros_like(bias) for name, bias in w.items() if name.startswith("b_")}}
    np.testing.assert_array_equal(
        multi_head_attention(x, **plain, num_heads=3), multi_head_attention(x, **zero, num_heads=3)
    )


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_statistics_and_result_in_the_callers_kind(kind):
    make, owner = {"torch": (torch.from_numpy, torch.Tensor), "jax": (jnp.asarray, jnp.ndarray)}[kind]
    rng = np.random.default_rng(12)
    x = rng.normal(size=(2, 5, 7)).astype(np.float32)
    w = weights(13, 7, 7, 6, 2, 5, 3, 11, np.float32)
    sizes = {"num_heads": 6, "num_kv_heads": 2, "return_aux": AuxRequest(entropy=True, argmax=True)}
    expected, expected_aux = multi_head_attention(x, **w, **sizes)
    result, aux = multi_head_attention(make(x), **{name: make(weight) for name, weight in w.items()}, **sizes)
    assert isinstance(result, owner) and isinstance(aux.entropy, owner)
    assert aux.entropy.shape == (2, 6, 5)
    np.testing.assert_array_equal(np.asarray(result), expected)
    np.testing.assert_array_equal(np.asarray(aux.entropy), expected_aux.entropy)


def test_float32_stays_float32():
    x = np.ones((3, 7), np.float32)
    assert (
        multi_head_attention(x, **weights(0, 7, 7, 3, 3, 5, 2, 11, np.float32), num_heads=3).dtype
        == np.float32
    )
    with pytest.raises(DtypeError, match="^w_q: expected float32, the dtype of x"):
        multi_head_attention(x, **weights(0, 7, 7, 3, 3, 5, 2, 11), num_heads=3)


def test_no_tokens():
    w = weights(0, 7, 7, 3, 3, 5, 2, 11)
    assert multi_head_attention(np.zeros((2, 0, 7)), **w, num_heads=3).shape == (2, 0, 11)


def test_identical_projections_give_identical_heads():
    rng = np.random.default_rng(14)
    x, one = rng.normal(size=(5, 7)), rng.normal(size=(7, 4))
    twice = np.concatenate([one, one], axis=1)
    result = multi_head_attention(x, w_q=twice, w_k=twice, w_v=twice, w_o=np.eye(8), num_heads=2)
    np.testing.assert_array_equal(result[:, :4], result[:, 4:])


def test_w_o_mixes_heads_like_its_blocks_of_rows():
    rng = np.random.default_rng(15)
    x = rng.normal(size=(5, 7))
    w = weights(16, 7, 7, 3, 3, 5, 2, 11)
    heads = multi_head_attention(x, **{**w, "w_o": np.eye(6), "b_o": None}, num_heads=3)
    added = sum(heads[:, 2 * h : 2 * h + 2] @ w["w_o"][2 * h : 2 * h + 2] for h in range(3)) + w["b_o"]
    np.testing.assert_allclose(multi_head_attention(x, **w, num_heads=3), added, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "heads, width, nearest", [(6, 512, "4, 8"), (3, 8, "2, 4"), (9, 8, "8"), (5, 7, "1, 7"), (100, 12, "12")]
)
def test_heads_have_to_divide_the_width(heads, width, nearest):
    square = np.eye(width)
    with pytest.raises(ShapeError, match=f"^num_heads: expected a divisor of {width}.*divide it: {nearest}$"):
        multi_head_attention(
            np.zeros((2, width)), w_q=square, w_k=square, w_v=square, w_o=square, num_heads=heads
        )


def refused(**changes):
    arrays = {"x": np.zeros((4, 7)), **weights(0, 7, 7, 6, 6, 5, 2, 11), "num_heads": 6, **changes}
    with pytest.raises(HeadwiseError) as caught:
        multi_head_attention(arrays.pop("x"), arrays.pop("context", None), **arrays)
    return caught.value


@pytest.mark.parametrize(
    "argument, value, words",
    [
        ("x", np.zeros(7), "(..., n, d_in)"),
        ("context", np.zeros((2, 4, 7)), "leading axes ()"),
        ("w_q", np.zeros(7), "2 axes"),
        ("w_q", np.zeros((8, 30)), "7 rows, the width of x"),
        ("w_q", np.zeros((30, 7)), "w_q.T"),
        ("w_k", np.zeros((7, 36)), "30 columns (6 heads of width 5"),
        ("w_k", np.zeros((7, 10)), "num_heads"),
        ("w_q", np.zeros((7, 0)), "at least one column"),
        ("w_v", np.zeros((6, 12)), "7 rows"),
        ("w_o", np.zeros((2, 11)), "heads are concatenated, not added"),
        ("w_o", np.zeros((13, 11)), "12 rows (6 heads of width d_v = 2, side by side)"),
        ("b_q", np.zeros(29), "shape (30,)"),
        ("b_o", np.zeros((1, 11)), "shape (11,)"),
        ("num_heads", 0, "a whole number >= 1"),
        ("num_heads", 2.0, "a whole number >= 1"),
        ("num_heads", True, "a whole number >= 1"),
        ("num_kv_heads", 4, "a divisor of num_heads = 6"),
        ("num_kv_heads", 0, "a whole number >= 1"),
    ],
)
def test_refused(argument, value, words):
    error = refused(**{argument: value})
    assert words in str(error)


def test_context_width_is_checked_against_the_context():
    assert "the width of context (9, 13)" in str(refused(context=np.zeros((9, 13))))


def test_grouped_weights_without_the_number_of_groups_are_explained():
    grouped = weights(0, 7, 7, 6, 2, 6, 6, 11)
    assert "for grouped heads, num_kv_heads=2" in str(refused(**grouped))


def test_all_arrays_are_of_one_kind():
    assert "w_q: expected a torch tensor, as x is" in str(refused(x=torch.zeros(4, 7, dtype=torch.float64)))
