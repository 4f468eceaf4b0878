"""The layer beside torch's scaled_dot_product_attention and nn.MultiheadAttention, forward and gradients."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from headwise.torch import MultiHeadAttention
from tests.torch.convert import from_torch, randomised
from tests.torch.layers import normal

BOTH = {"rtol": 1e-10, "atol": 1e-11}


def same_gradients(pairs):
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, **BOTH)


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


@pytest.mark.parametrize("kv_heads", [6, 2, 1])
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "float", "key padding"])
def test_scaled_dot_product_attention(kv_heads, mask):
    layer = randomised(MultiHeadAttention(18, 6, num_kv_heads=kv_heads, v_head_dim=5, dtype=torch.float64))
    x, other = normal(3, 7, 18).requires_grad_(), normal(3, 7, 18).requires_grad_()
    keep = torch.arange(7) < torch.tensor([[7], [5], [2]])
    ours, theirs = {
        "none": ({}, {}),
        "causal": ({"is_causal": True}, {"is_causal": True}),
        "boolean": ({"attn_mask": torch.rand(7, 7) < 0.6},) * 2,
        "float": ({"attn_mask": normal(3, 6, 7, 7)},) * 2,
        "key padding": ({"key_mask": keep}, {"attn_mask": keep[:, None, None, :]}),
    }[mask]
    found = layer(x, **ours)
    q, k, v = layer.q_proj(other), layer.k_proj(other), layer.v_proj(other)
    heads = scaled_dot_product_attention(
        split(q, 6), split(k, kv_heads), split(v, kv_heads), enable_gqa=True, **theirs
    )
    expected = layer.out_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected, **BOTH)
    upstream = normal(*found.shape, seed=4)
    mine = torch.autograd.grad((found * upstream).sum(), [x, *layer.parameters()])
    same_gradients(
        zip(mine, torch.autograd.grad((expected * upstream).sum(), [other, *layer.parameters()]), strict=True)
    )


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("widths", [(None, None), (5, 9)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "mask", ["none", "causal", "boolean", "float", "per head", "padding", "padding, causal"]
)
def test_nn_multihead_attention(need_weights, widths, bias, mask):
    """Same weights, both meanings of masks: theirs says True = ignore, ours True = attend."""
    kdim, vdim = widths
    module = nn.MultiheadAttention(
        12, 3, bias=bias, kdim=kdim, vdim=vdim, batch_first=True, dtype=torch.float64
    )
    layer = from_torch(randomised(module))
    n_k = 6 if kdim else 5
    inputs = [normal(4, 5, 12)]
    inputs += [normal(4, n_k, kdim, seed=2), normal(4, n_k, vdim, seed=3)] if kdim else []
    hide = torch.rand(5, n_k) < 0.4
    hide[:, 0] = False  # torch gives NaN for rows without keys
    pad = torch.arange(n_k) >= torch.tensor([[n_k], [4], [1], [3]])
    future = torch.ones(5, n_k, dtype=torch.bool).triu(1)
    added, per_head = normal(5, n_k), torch.rand(4, 3, 5, n_k) < 0.4
    per_head[..., 0] = False
    ours, theirs = {
        "none": ({}, {}),
        "causal": ({"is_causal": True, "query_offset": 0}, {"attn_mask": future}),
        "boolean": ({"attn_mask": ~hide}, {"attn_mask": hide}),
        "float": ({"attn_mask": added}, {"attn_mask": added}),
        "per head": ({"attn_mask": ~per_head}, {"attn_mask": per_head.flatten(0, 1)}),
        "padding": ({"key_mask": ~pad}, {"key_padding_mask": pad}),
        "padding, causal": (
            {"key_mask": ~pad, "is_causal": True, "query_offset": 0},
            {"key_padding_mask": pad, "attn_mask": future},
        ),
    }[mask]
    mine = [x.clone().requires_grad_() for x in inputs]
    other = [x.clone().requires_grad_() for x in inputs]
    found = layer(*mine, **ours)
    triple = other if kdim else other * 3
    expected, weights = module(*triple, need_weights=need_weights, average_attn_weights=False, **theirs)
    torch.testing.assert_close(found, expected, **BOTH)
    if need_weights:
        shown = layer.heads(*mine, **ours).weights()
        torch.testing.assert_close(torch.as_tensor(shown[...]), weights.detach(), **BOTH)
    upstream = normal(*found.shape, seed=4)
    (found * upstream).sum().backward()
    (expected * upstream).sum().backward()
    same_gradients((a.grad, b.grad) for a, b in zip(mine, other, strict=True))
    theirs_by_name = dict(module.named_parameters())
    packed = [theirs_by_name.get(f"{letter}_proj_weight") for letter in "qkv"]
    if packed[0] is None:
        grads = module.in_proj_weight.grad.chunk(3)
    else:
        grads = [parameter.grad for parameter in packed]
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    same_gradients((p.weight.grad, grad) for p, grad in zip(projections, grads, strict=True))
    same_gradients([(layer.out_proj.weight.grad, module.out_proj.weight.grad)])
    if bias:
        chunks = module.in_proj_bias.grad.chunk(3)
        same_gradients((p.bias.grad, grad) for p, grad in zip(projections, chunks, strict=True))


def test_rows_without_keys_where_torch_gives_nan():
    """Padding and causality together leave a row without keys: torch gives NaN (pytorch/pytorch#41508)."""
    module = randomised(nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)).eval()
    layer, x = from_torch(module), normal(1, 4, 8)
    pad = torch.tensor([[True, False, False, False]])
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    theirs, _ = module(x, x, x, key_padding_mask=pad, attn_mask=future, need_weights=True)
    assert theirs[0, 0].isnan().all()
    found = layer(x, key_mask=~pad, is_causal=True)
    torch.testing.assert_close(found[0, 0], layer.out_proj.bias)
    torch.testing.assert_close(found[0, 1:], theirs[0, 1:], **BOTH)


@pytest.mark.parametrize(
    "dtype, tolerance", [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
def test_precision_beside_torch(dtype, tolerance):
    """Against the float64 answer of the same rounded weights: not worse than twice torch's own error."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(64, 4, batch_first=True).to(dtype)
    layer, x = from_torch(module, is_causal=False), torch.randn(2, 50, 64).to(dtype)
    exact = from_torch(nn.MultiheadAttention(64, 4, batch_first=True, dtype=torch.float64))
    exact.load_state_dict({name: p.double() for name, p in layer.state_dict().items()})
    with torch.no_grad():
        expected = exact(x.double())
        mine, theirs = layer(x), module(x, x, x, need_weights=False)[0]
    assert mine.dtype == dtype
    error, peer = ((found.double() - expected).norm() / expected.norm() for found in (mine, theirs))
    assert error < tolerance and error < 2 * peer + 1e-7
