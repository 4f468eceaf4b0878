"""torch, JAX, Keras and our own attention under their contracts: not accused, and their sins are named."""

import os

os.environ.setdefault("KERAS_BACKEND", "numpy")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as on the command line: compiled faster

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import functional

import headwise
import headwise.torch
from headwise import HeadwiseError, check_attention, check_layer
from headwise.check import Contract
from headwise.check.subjects.kinds import kinds_for
from headwise.check.subjects.layer_weights import LayerWeights
from tests.broken import layers
from tests.broken.layers import GRADIENTS, LAYERS, RIGHT


def failed(report):
    return [found for found in report.findings if found.status == "failed"]


def test_torch_sdpa():
    report = check_attention(functional.scaled_dot_product_attention)
    assert report.passed, str(report)
    assert report.contract == "torch-sdpa"
    kept = {outcome.rule for outcome in report.outcomes if outcome.status == "passed"}
    assert {"values", "mask", "bias", "causal, more keys", "grouped heads", "empty rows", "float64"} <= kept
    assert {"half precision", "gradient", "gradient with mask", "gradient of empty rows", "strides"} <= kept
    # What torch does with NaN that nobody sees is shown, and is no failure of its own contract.
    (leak,) = [found for found in report.findings if found.rule == "masked NaN"]
    assert leak.status == "note"
    strict = Contract(features={"mask"}, layout="bhnd", kind="torch", notes=())
    assert [found.rule for found in failed(check_attention(functional.scaled_dot_product_attention, strict))]


@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True, "dropout": 0.3}, {"bias": False, "batch_first": True}]
)
def test_torch_mha(options):
    report = check_layer(torch.nn.MultiheadAttention(12, 3, **options))
    assert report.passed, str(report)
    assert report.contract == "torch-mha"
    assert {"layer with mask", "layer with padding"} <= {outcome.rule for outcome in report.outcomes}


def test_jax_attention():
    report = check_attention(jax.nn.dot_product_attention)
    assert report.passed, str(report)
    assert report.contract == "jax"
    kept = {outcome.rule for outcome in report.outcomes if outcome.status == "passed"}
    assert {
        "values",
        "mask",
        "causal, more keys",
        "grouped heads",
        "window",
        "empty rows",
        "gradient",
    } <= kept


def test_keras_attention():
    from keras import ops

    report = check_attention(ops.dot_product_attention)
    assert report.passed, str(report)
    assert report.contract == "keras"
    kept = {outcome.rule for outcome in report.outcomes if outcome.status == "passed"}
    assert {"values", "mask", "causal", "empty rows"} <= kept


def test_our_own_torch_layer():
    layer = check_layer(headwise.torch.MultiHeadAttention(12, 3))
    assert layer.passed and not layer.findings, str(layer)
    function = check_attention(headwise.torch.attention)
    assert function.passed and not function.findings, str(function)


def test_our_own_attention():
    report = check_attention(headwise.attention)
    assert report.passed and not report.findings, str(report)
    assert report.contract == "headwise"
    kept = {outcome.rule for outcome in report.outcomes if outcome.status == "passed"}
    assert {
        "masked NaN",
        "empty rows",
        "soft cap and mask",
        "causal window",
        "mask and bias",
        "strides",
    } <= kept


def test_our_own_layer_on_arrays():
    def layer(case):
        weights = {"w_q": case.w_q.T, "w_k": case.w_k.T, "w_v": case.w_v.T, "w_o": case.w_out.T}
        biases = {"b_q": case.b_q, "b_k": case.b_k, "b_v": case.b_v, "b_o": case.b_out}
        options = {"num_heads": case.num_heads, "attn_mask": case.mask, "is_causal": case.is_causal}
        return headwise.multi_head_attention(case.x, **weights, **biases, **options)

    contract = Contract(call=lambda fn, case: fn(case), features={"layer", "mask", "causal"})
    report = check_attention(layer, contract)
    assert report.passed and len(report.outcomes) == 6, str(report)


@pytest.mark.parametrize("layer", [*RIGHT, *LAYERS], ids=lambda layer: layer.__name__)
def test_layers(layer):
    torch.manual_seed(0)
    made = layer()
    before = {name: value.clone() for name, value in made.state_dict().items()}
    report = check_layer(made)
    expected = LAYERS.get(layer)
    assert report.passed == (expected is None), str(report)
    if expected is not None:
        assert expected in report.faults, str(report)
    for name, value in made.state_dict().items():  # the layer itself is left alone
        assert torch.equal(value, before[name])
    assert made.training


def test_weights_are_drawn_in_the_order_of_the_layer():
    """Not in that of a set, which is another one in every process: a seed gives the same weights again."""
    case = LayerWeights(layers.Right(), 3, 3, None).case(np.random.default_rng(0), 0)
    drawn = np.random.default_rng(0).standard_normal(case.w_q.shape)
    np.testing.assert_array_equal(case.w_q, drawn * (1.3 / case.w_q.shape[1] ** 0.5))


def test_a_layer_goes_where_layers_go():
    assert check_attention(layers.MergesByView()).faults == ("merge without transpose",)


def fills_with_minus_infinity(q, k, v, mask=None):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return (s if mask is None else s.masked_fill(~mask, float("-inf"))).softmax(-1) @ v


def fills_with_the_lowest(q, k, v, mask=None):
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return (s if mask is None else s.masked_fill(~mask, torch.finfo(s.dtype).min)).softmax(-1) @ v


@pytest.mark.parametrize("function", [fills_with_minus_infinity, fills_with_the_lowest])
def test_what_textbooks_do_with_empty_rows_is_a_note(function):
    report = check_attention(function)
    assert report.passed, str(report)
    assert {"empty rows", "gradient of empty rows"} <= {found.rule for found in report.findings}
    assert not check_attention(function, Contract(notes=())).passed


@pytest.mark.parametrize("function", GRADIENTS, ids=lambda function: function.__name__)
def test_gradients(function):
    report = check_attention(function, Contract(kind="torch", notes=("masked NaN", "empty rows")))
    assert GRADIENTS[function] in [found.fault for found in failed(report)], str(report)
    assert all(found.group == "gradient" for found in failed(report))


def test_jax_functions_are_found_and_named():
    def attention(q, k, v):
        return jax.nn.softmax(jnp.einsum("bhid,bhjd->bhij", q, k), -1) @ v

    report = check_attention(attention)
    assert report.faults == ("no scale",)
    assert report.calling.startswith("JAX float32, (B, H, n, d)")


def test_torch_functions_are_found_and_named():
    def attention(q, k, v, mask=None):
        scores = q @ k.transpose(-2, -1) / torch.tensor(q.shape[-1], dtype=q.dtype).sqrt()
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return scores.softmax(-2) @ v

    report = check_attention(attention)
    assert report.faults[:2] == ("softmax over queries", "mask inverted")
    assert report.calling.startswith("torch float64")


def test_the_kind_is_guessed_from_the_code():
    def helper(x):
        return torch.softmax(x, -1)

    assert kinds_for(lambda q, k, v: helper(q))[0] == "torch"
    assert kinds_for(lambda q, k, v: jnp.exp(q))[0] == "jax"
    assert kinds_for(lambda q, k, v: np.exp(q))[0] == "numpy"
    assert kinds_for(lambda q, k, v: q @ k)[0] == "numpy"


def test_a_layer_that_is_always_causal():
    assert check_layer(layers.IsCausalUnasked(), Contract(always={"causal"})).passed


def test_weights_can_be_named():
    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads = 3
            self.a, self.b, self.c, self.d = (torch.nn.Linear(12, 12) for _ in range(4))

        def forward(self, x):
            parts = (z(x).reshape(*x.shape[:2], 3, 4).transpose(1, 2) for z in (self.a, self.b, self.c))
            return self.d(functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))

    with pytest.raises(HeadwiseError):
        check_layer(Odd())
    names = {"q": "a.weight", "k": "b.weight", "v": "c.weight", "o": "d.weight"}
    assert check_layer(Odd(), weights=names).passed
    assert check_layer(Odd(), weights={**names, "q": "b.weight", "k": "a.weight"}).faults == ("order k q v",)
