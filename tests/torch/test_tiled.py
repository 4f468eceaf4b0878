"""The tiled torch code where it is most easily wrong: what is hidden, what overflows, and its memory."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from headwise import AuxRequest
from headwise.reference import dropout_factors
from headwise.torch import attention
from headwise.torch.tiled.dropout import head_keys, kept_weights
from tests.torch.dense import dense

IMPLEMENTATIONS = ("torch", "kernel")


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("how", ["mask", "lengths", "causal", "segments", "additive"])
def test_what_hidden_keys_hold_reaches_nothing(implementation, poison, how):
    """Outputs, statistics and gradients are those without the hidden keys; theirs are 0."""
    query, key, value = normal(2, 6, 5, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 3, seed=2)
    options = {
        "mask": {"attn_mask": torch.arange(7) < 5},
        "lengths": {"kv_lengths": [5, 5]},
        "causal": {"is_causal": True, "query_offset": 0},
        "segments": {"segment_ids": (np.zeros(5, int), np.arange(7) // 5)},
        "additive": {"attn_bias": torch.where(torch.arange(7) < 5, 0.0, -torch.inf).double()},
    }[how]
    clean = {name: option for name, option in options.items() if name == "is_causal"}
    request = AuxRequest(lse=True, entropy=True)
    key[..., 5:, :], value[..., 5:, :] = poison, poison
    results = []
    for inputs, told in (
        ((query, key, value), options),
        ((query, key[..., :5, :], value[..., :5, :]), clean),
    ):
        leaves = [x.clone().requires_grad_() for x in inputs]
        output, aux = attention(*leaves, **told, return_aux=request, implementation=implementation)
        total = output.sin().sum() + aux.lse.sum() + aux.entropy.sum()
        results.append((output, aux.lse, *torch.autograd.grad(total, leaves)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one[..., :5, :] if one.shape != other.shape else one, other)
    for grad in results[0][3:]:
        assert (grad[..., 5:, :] == 0).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_nan_that_some_rows_see_stays_with_them(implementation):
    query, key, value = normal(1, 5, 8), normal(1, 5, 8, seed=1), normal(1, 5, 3, seed=2)
    key[:, 3] = torch.nan
    value[:, 4] = torch.inf
    leaves = [x.requires_grad_() for x in (query, key, value)]
    output = attention(*leaves, is_causal=True, implementation=implementation)
    assert output[:, :3].isfinite().all() and output[:, 3:].isnan().all()
    of_query, of_key, of_value = torch.autograd.grad(output[:, :3].sum(), leaves)
    assert of_query.isfinite().all() and (of_query[:, 3:] == 0).all()
    assert (of_key[:, 3:] == 0).all() and (of_value[:, 3:] == 0).all()


def test_infinite_values_follow_the_arithmetic():
    """inf where one sign is met, NaN where both are; rows that do not see them stay finite."""
    value = torch.tensor([[1.0], [torch.inf], [-torch.inf], [torch.nan]], dtype=torch.float64)
    zeros = torch.zeros(4, 2, dtype=torch.float64)
    seen = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 0]], dtype=torch.bool)
    for implementation in IMPLEMENTATIONS:
        found = attention(zeros, zeros, value, seen, implementation=implementation).flatten()
        torch.testing.assert_close(
            found, torch.tensor([1, torch.inf, -torch.inf, torch.nan]).double(), equal_nan=True
        )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("with_sinks", [False, True])
def test_empty_rows(implementation, with_sinks):
    """Output 0, no gradient; lse -inf, or that of the sinks, to which it carries gradients."""
    query, key, value = (x.requires_grad_() for x in (normal(1, 4, 8), normal(1, 6, 8), normal(1, 6, 3)))
    sinks = normal(1, 2).requires_grad_() if with_sinks else None
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2] = False
    request = AuxRequest(lse=True, entropy=True, max_weight=True, argmax=True, top_k=2, sink_logit_mass=True)
    output, aux = attention(
        query, key, value, mask, sinks=sinks, return_aux=request, implementation=implementation
    )
    assert (output[:, 2] == 0).all()
    assert aux.argmax[0, 2] == -1 and (aux.top_k_index[0, 2] == -1).all()
    for missing in (aux.entropy, aux.max_weight, aux.sink_logit_mass):
        assert missing[0, 2].isnan()
    grads = torch.autograd.grad(output.sum() + aux.entropy.sum() + aux.lse[0, 2], [query, key, value])
    assert (grads[0][:, 2] == 0).all() and all(grad.isfinite().all() for grad in grads)
    if with_sinks:
        torch.testing.assert_close(aux.lse[0, 2], torch.logsumexp(sinks[0], 0))
        (grad,) = torch.autograd.grad(
            attention(query, key, value, mask, sinks=sinks, return_aux=request)[1].lse[0, 2], sinks
        )
        torch.testing.assert_close(grad[0], torch.softmax(sinks[0], 0))
    else:
        assert aux.lse[0, 2] == -torch.inf


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_large_scores(implementation):
    """Far below 0, far above, and the first tile wholly hidden before very negative scores."""
    for size in (-2.45e5, 2e5):
        query, key = torch.full((1, 3, 1), size), torch.ones(1, 600, 1)
        value = torch.randn(1, 600, 2)
        found = attention(query, key, value, scale=1.0, implementation=implementation)
        torch.testing.assert_close(found, value.mean(1, keepdim=True).expand(1, 3, 2), rtol=1e-4, atol=1e-4)
    seen = torch.arange(600) >= 590
    query = torch.full((1, 3, 1), -200.0)
    found = attention(query, key, value, seen, scale=1.0, implementation=implementation)
    torch.testing.assert_close(found, value[:, 590:].mean(1, keepdim=True).expand(1, 3, 2))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_scores_beyond_all_numbers_are_not_taken_for_an_empty_row(implementation):
    query, key = torch.full((1, 1, 1), -3e38), torch.full((1, 2, 1), 3e38)
    output, aux = attention(
        query,
        key,
        torch.ones(1, 2, 1),
        scale=1.0,
        return_aux=AuxRequest(lse=True),
        implementation=implementation,
    )
    assert output.isnan().all() and aux.lse.isnan().all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "shape",
    [(0, 2, 5, 7), (2, 2, 0, 7), (2, 2, 5, 0), (0, 0, 2, 1, 1)],
    ids=["batch", "queries", "keys", "axes"],
)
def test_sizes_of_zero(implementation, shape):
    *lead, heads, n_q, n_k = shape
    leaves = [
        torch.randn(*lead, h, n, d).requires_grad_()
        for h, n, d in ((heads, n_q, 4), (heads, n_k, 4), (heads, n_k, 3))
    ]
    request = AuxRequest(lse=True, entropy=True, received=True, pooled=2)
    output, aux = attention(*leaves, return_aux=request, implementation=implementation)
    assert output.shape == (*lead, heads, n_q, 3) and (output == 0).all()
    assert aux.received.shape == (*lead, heads, n_k)
    grads = torch.autograd.grad(output.sum() + aux.lse.sum(), leaves)
    assert all((grad == 0).all() for grad in grads)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("lead, n_q, n_k", [((0,), 4, 5), ((2, 0), 4, 5), ((2,), 0, 5), ((2,), 4, 0)])
def test_sizes_of_zero_beside_masks_and_segments(implementation, lead, n_q, n_k):
    """No entries, no queries or no keys, forward and backward: output 0 where a row is left at all."""
    query, key, value = normal(*lead, 4, n_q, 8), normal(*lead, 2, n_k, 8), normal(*lead, 2, n_k, 3)
    leaves = [x.requires_grad_() for x in (query, key, value, normal(*lead, 1, 1, n_k), normal(4, n_q, n_k))]
    ids = (torch.zeros(*lead, n_q, dtype=torch.long), torch.zeros(*lead, n_k, dtype=torch.long))
    output = attention(
        *leaves[:4], attn_bias=leaves[4], is_causal=True, query_offset=1, segment_ids=ids,
        kv_lengths=torch.full(lead, n_k), implementation=implementation,
    )  # fmt: skip
    assert output.shape == (*lead, 4, n_q, 3) and not output.any()
    for leaf, grad in zip(leaves, torch.autograd.grad(output.sum(), leaves), strict=True):
        assert grad.shape == leaf.shape and not grad.any()


def test_a_zero_gradient_stays_zero():
    query, key, value = (x.requires_grad_() for x in (normal(2, 4, 8), normal(2, 6, 8), normal(2, 6, 3)))
    bias = torch.full((4, 6), torch.finfo(torch.float64).min, dtype=torch.float64).requires_grad_()
    output = attention(query, key, value, attn_bias=bias)
    for grad in torch.autograd.grad(output, (query, key, value, bias), torch.zeros_like(output)):
        assert (grad == 0).all()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", ["none", "boolean", "floating"])
def test_beside_torchs_own_function(is_causal, kind):
    """Forward and gradients over sizes that cross tiles, grouped heads, masks of both kinds."""
    query = normal(2, 6, 300, 16).float()
    key, value = normal(2, 2, 300, 16, seed=1).float(), normal(2, 2, 300, 16, seed=2).float()
    mask = None
    if kind == "boolean":
        mask = torch.rand(300, 300) < 0.5
        mask[:, 0] = True
    elif kind == "floating":
        mask = torch.randn(2, 1, 300, 300)
    results = []
    for run in ("headwise", "torch"):
        leaves = [x.clone().requires_grad_() for x in (query, key, value)]
        leaves += [mask.clone().requires_grad_()] if kind == "floating" else []
        told = leaves[3] if kind == "floating" else mask
        if run == "headwise":
            output = attention(*leaves[:3], told, is_causal=is_causal)
        else:
            if is_causal and told is not None:
                causal = torch.ones(300, 300, dtype=torch.bool).tril()
                told = told & causal if told.dtype == torch.bool else told.masked_fill(~causal, -torch.inf)
            output = F.scaled_dot_product_attention(
                *leaves[:3], told, is_causal=is_causal and told is None, enable_gqa=True
            )
        results.append((output, *torch.autograd.grad(output.square().sum(), leaves)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_same_bits_whatever_is_asked_for():
    query, key, value = (normal(2, 300, 8, seed=i) for i in range(3))
    plain = attention(query, key, value, is_causal=True, implementation="torch")
    for request in (AuxRequest(lse=True), AuxRequest(entropy=True, received=True, top_k=3, pooled=7)):
        found, _ = attention(query, key, value, is_causal=True, implementation="torch", return_aux=request)
        assert torch.equal(found, plain)


MEMORY = """
import torch
from headwise import AuxRequest
from headwise.torch import attention
torch.set_num_threads(1)
n, implementation = 8192, "{implementation}"
query, key, value = (torch.randn(1, 1, n, 8).requires_grad_() for _ in range(3))
def train(n):
    part = [x[:, :, :n] for x in (query, key, value)]
    output, aux = attention(*part, is_causal=True, alibi_slopes=[.1], softcap=5.0,
        return_aux=AuxRequest(lse=True, entropy=True, received=True, top_k=3), implementation=implementation)
    (output.sum() + aux.lse.sum() + aux.entropy.sum()).backward()
train(512)
def peak():  # of this program; ru_maxrss would count the test run that started it
    return 1024 * int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
before = peak()
train(n)
print(peak() - before)
"""


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_training_makes_no_array_of_queries_by_keys(implementation):
    """At n = 8192 one head's float32 matrix is 256 MiB; the whole step grows by far less."""
    code = MEMORY.format(implementation=implementation)
    grown = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    assert grown < 8192 * 8192 * 4 / 4


def test_dense_itself_against_torch():
    """The oracle of the gradient tests, where torch has an answer."""
    query, key, value = normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 2)
    mask = torch.rand(5, 6) < 0.6
    mask[:, 0] = True
    torch.testing.assert_close(
        dense(query, key, value, mask)[0], F.scaled_dot_product_attention(query, key, value, mask)
    )


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1, 2**40 + 5, 2**64 - 1])
def test_dropout_keeps_what_the_reference_keeps(seed):
    """Both count the same numbers, each by its own code."""
    keys = tuple(words.view(2, 3, 1, 1) for words in head_keys(6, seed, torch.device("cpu")))
    for dropout_p in (0.0, 0.3, 0.75, 1.0):
        found = kept_weights(keys, slice(3, 20), slice(5, 40), dropout_p, torch.float64)
        np.testing.assert_array_equal(found, dropout_factors((2, 3, 20, 40), dropout_p, seed)[..., 3:, 5:])
