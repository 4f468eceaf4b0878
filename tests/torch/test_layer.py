"""The layer against the layer written out (plain_layer.py): forward and gradients, every option beside every
other, self- and cross-attention, leading axes, masks of all kinds."""

import random

import pytest
import torch

from headwise import AuxRequest
from headwise.compute.problem import divisors
from headwise.torch import MultiHeadAttention
from tests.torch.layers import layer_of, normal, random_options
from tests.torch.plain_layer import plain_pass

LEADS = [(), (1,), (3,), (2, 2)]


def each(lead):
    """Indexes of all entries."""
    return (
        [()] if lead == () else torch.cartesian_prod(*map(torch.arange, lead)).reshape(-1, len(lead)).tolist()
    )


def compare(found, expected, atol=1e-12):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=atol)


@pytest.mark.parametrize("seed", range(120))
def test_forward_and_gradients_of_random_layers(seed):
    rng = random.Random(seed)
    options = random_options(seed)
    cross = rng.random() < 0.4
    if cross:
        options |= {"kdim": 5, "vdim": rng.choice([None, 8])}
    layer = layer_of(options, seed)
    lead, n_q = rng.choice(LEADS), rng.choice([1, 4, 7])
    n_k = rng.choice([1, 5, 9]) if cross else n_q
    inputs = [normal(*lead, n_q, layer.embed_dim, seed=seed)]
    if cross:
        inputs.append(normal(*lead, n_k, layer.kdim, seed=seed + 1000))
        if options["vdim"]:
            inputs.append(normal(*lead, n_k, layer.vdim, seed=seed + 2000))
    for x in inputs:
        x.requires_grad_()
    given, plain = {}, {}
    if cross:
        given["query_offset"] = plain["offset"] = rng.choice([0, n_k - n_q, 2])
    if rng.random() < 0.3:
        given["attn_mask"] = plain["visible"] = torch.rand(n_q, n_k) < 0.7
    if rng.random() < 0.3:
        given["attn_bias"] = plain["bias"] = normal(layer.num_heads, n_q, n_k)
    if rng.random() < 0.3:
        given["head_mask"] = plain["head_mask"] = normal(layer.num_heads)
    keep = torch.rand(*lead, n_k) < 0.7 if rng.random() < 0.4 else None
    found, aux = layer(*inputs, key_mask=keep, **given, return_aux=AuxRequest(max_weight=True))
    upstream = normal(*found.shape, seed=5)
    (found * upstream).sum().backward()
    gradients = [x.grad for x in (*inputs, *layer.parameters())]
    for x in (*inputs, *layer.parameters()):
        x.grad = None
    total = 0
    for at in map(tuple, each(lead)):
        mask = None if keep is None else keep[at]
        expected, weights = plain_pass(layer, *(x[at] for x in inputs), key_mask=mask, **plain)
        compare(found[at], expected)
        largest = weights.amax(-1)
        compare(aux.max_weight[at].nan_to_num(), torch.where(largest > 0, largest, 0.0))
        total = total + (expected * upstream[at]).sum()
    total.backward()
    for gradient, x in zip(gradients, (*inputs, *layer.parameters()), strict=True):
        # A parameter that moves no weight, such as the bias of keys, has gradients of rounding size.
        compare(gradient, x.grad, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 12])
def test_one_head_and_as_many_heads_as_columns(heads):
    layer = layer_of({"embed_dim": 12, "num_heads": heads})
    assert (layer.num_heads, layer.head_dim) == (heads, 12 // heads)
    x = normal(5, 12)
    compare(layer(x), plain_pass(layer, x)[0])


def test_sizes():
    layer = MultiHeadAttention(
        10, 6, num_kv_heads=2, head_dim=3, v_head_dim=5, kdim=7, vdim=8, out_dim=11, bias=False, out_bias=True
    )
    shapes = {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}
    assert shapes == {
        "q_proj.weight": (18, 10),
        "k_proj.weight": (6, 7),
        "v_proj.weight": (10, 8),
        "out_proj.weight": (11, 30),
        "out_proj.bias": (11,),
    }
    assert layer(torch.zeros(2, 4, 10), torch.zeros(2, 6, 7), torch.zeros(2, 6, 8)).shape == (2, 4, 11)
    assert MultiHeadAttention(8, 2, kdim=5).vdim == 5  # value defaults to key, so its width does too


@pytest.mark.parametrize("width", [512, 768, 7, 12])
def test_every_divisor_is_a_number_of_heads(width):
    for heads in range(1, width + 1, 1 if width < 20 else 37):
        if width % heads == 0:
            assert MultiHeadAttention(width, heads, device="meta").head_dim == width // heads
        else:
            assert heads not in divisors(width)
            assert (
                MultiHeadAttention(width, heads, head_dim=4, device="meta").q_proj.out_features == 4 * heads
            )


def test_leading_axes_are_independent():
    layer = layer_of({"embed_dim": 8, "num_heads": 4, "num_kv_heads": 2, "rope": True, "is_causal": True})
    x = normal(2, 3, 6, 8)
    together = layer(x)
    for i, j in ((0, 0), (0, 2), (1, 1)):
        compare(together[i, j], layer(x[i, j]))
    compare(together, layer(x.flatten(0, 1)).unflatten(0, (2, 3)))


def test_batch_comes_first():
    """The sequence-first habit of nn.MultiheadAttention attends over the batch, in silence."""
    layer, x = layer_of({"embed_dim": 8, "num_heads": 2}), normal(3, 5, 8)
    changed = x.clone()
    changed[2] += 1
    difference = (layer(changed) - layer(x)).abs().amax((1, 2))
    assert difference[:2].max() == 0 and difference[2] > 0.1


def test_causal_means_a_triangular_jacobian():
    layer = layer_of({"embed_dim": 6, "num_heads": 3, "is_causal": True, "rope": True})
    jacobian = torch.autograd.functional.jacobian(layer, normal(5, 6)).abs().sum((1, 3))
    assert (jacobian.triu(1) == 0).all() and (jacobian.tril() > 0)[torch.tril_indices(5, 5).unbind()].all()


def test_the_call_overrides_causality():
    layer, x = layer_of({"embed_dim": 6, "num_heads": 3, "is_causal": True}), normal(5, 6)
    compare(layer(x, is_causal=False), plain_pass(layer, x, is_causal=False)[0])


@pytest.mark.parametrize("padded", ["left", "right"])
@pytest.mark.parametrize("scheme", [{}, {"rope": True}, {"alibi": True}, {"rel_bias": True}])
def test_padding_changes_nothing(padded, scheme):
    layer = layer_of({"embed_dim": 12, "num_heads": 3, "is_causal": True} | scheme)
    x, lengths = normal(3, 7, 12), [7, 4, 1]
    batch, keep = (
        torch.full((3, 9, 12), float("nan"), dtype=torch.float64),
        torch.zeros(3, 9, dtype=torch.bool),
    )
    batch = torch.full((3, 9, 12), 1e3, dtype=torch.float64)
    for i, n in enumerate(lengths):
        rows = slice(9 - n, 9) if padded == "left" else slice(0, n)
        batch[i, rows], keep[i, rows] = x[i, :n], True
    found = layer(batch, key_mask=keep)
    for i, n in enumerate(lengths):
        compare(found[i, keep[i]], layer(x[i, :n]))


def test_nan_in_padding_stays_there():
    layer, x, memory = layer_of({"embed_dim": 8, "num_heads": 2}), normal(2, 3, 8), normal(2, 6, 8, seed=2)
    keep = torch.arange(6) < torch.tensor([[6], [4]])
    poisoned = torch.where(keep[..., None], memory, torch.nan).requires_grad_()
    found = layer(x.requires_grad_(), poisoned, key_mask=keep)
    compare(found, layer(x, memory, key_mask=keep))
    found.sum().backward()
    assert x.grad.isfinite().all() and poisoned.grad[keep].isfinite().all()
    # In self-attention the padded rows are queries too, and only their own outputs are NaN.
    found = layer(poisoned, key_mask=keep)
    compare(found[keep], layer(memory, key_mask=keep)[keep])


def test_entries_of_length_zero():
    """An entry without a real token has rows of the output's bias, and gradients stay finite."""
    layer, x = layer_of({"embed_dim": 8, "num_heads": 2, "is_causal": True}), normal(2, 5, 8).requires_grad_()
    keep = torch.tensor([[True] * 5, [False] * 5])
    found = layer(x, key_mask=keep)
    compare(found[1], layer.out_proj.bias.expand(5, 8))
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
    assert (x.grad[1] == 0).all()


def test_a_loss_on_entropy_leaves_empty_rows_out():
    layer, x = layer_of({"embed_dim": 8, "num_heads": 2, "num_kv_heads": 1}), normal(2, 5, 8)
    keep, wanted = torch.tensor([[True] * 5, [False] * 5]), AuxRequest(entropy=True)
    aux = layer(x, key_mask=keep, return_aux=wanted)[1]
    assert aux.entropy[1].isnan().all()
    parameters = (layer.q_proj.weight, layer.k_proj.weight)
    found = torch.autograd.grad(aux.entropy.nanmean(), parameters)
    expected = torch.autograd.grad(layer(x[0], return_aux=wanted)[1].entropy.mean(), parameters)
    for mine, theirs in zip(found, expected, strict=True):
        compare(mine, theirs)


def test_packed_sequences():
    options = {"embed_dim": 12, "num_heads": 3, "is_causal": True, "rope": True, "alibi": True}
    layer, parts = layer_of(options), [normal(n, 12, seed=n) for n in (3, 1, 4)]
    ids = torch.repeat_interleave(torch.arange(3), torch.tensor([3, 1, 4]))
    compare(layer(torch.cat(parts), segment_ids=ids), torch.cat([layer(part) for part in parts]))
    # The same beside padding, which comes first and has ids of real sequences, and a mask.
    padded, keep = torch.cat([normal(2, 12), *parts]), torch.arange(10) >= 2
    ids = torch.cat([torch.tensor([2, 0]), ids])
    mask = torch.ones(10, 10, dtype=torch.bool)
    found = layer(padded, segment_ids=ids, key_mask=keep, attn_mask=mask)
    compare(found[2:], torch.cat([layer(part) for part in parts]))


def test_rotary_positions_of_ones_own():
    layer, x = layer_of({"embed_dim": 12, "num_heads": 3, "rope": True}), normal(2, 5, 12)
    at = torch.tensor([[3, 9, 0, 1, 40], [0, 1, 2, 3, 4]])
    found = layer(x, positions=at)
    for i in range(2):
        compare(found[i], plain_pass(layer, x[i], positions=at[i])[0])
    memory = normal(2, 7, 12, seed=3)
    found = layer(x, memory, positions=at, key_positions=torch.arange(7) * 2)
    expected = plain_pass(layer, x[0], memory[0], positions=at[0], key_positions=torch.arange(7) * 2)[0]
    compare(found[0], expected)
    compare(layer(x, memory, causal_alignment="lower_right"), layer(x, memory, query_offset=2))


def test_keys_and_values_of_a_memory_are_projected_once():
    options = {"embed_dim": 12, "num_heads": 6, "num_kv_heads": 2, "kdim": 7, "qk_norm": "rms"}
    layer, memory = layer_of(options), normal(3, 8, 7)
    keep = torch.rand(3, 8) < 0.7
    calls = []
    layer.k_proj.register_forward_hook(lambda *_: calls.append(1))
    kept = layer.keys_and_values(memory, key_mask=keep)
    x = normal(3, 5, 12, seed=2)
    stepwise = torch.cat([layer(x[:, i : i + 1], kept) for i in range(5)], 1)
    assert len(calls) == 1
    compare(stepwise, layer(x, memory, key_mask=keep))
    beams = torch.tensor([2, 2, 0, 1])
    compare(layer(x[beams], kept.reorder(beams)), layer(x, kept)[beams])
    assert repr(kept) == "KeysValues(key (3, 2, 8, 2), value (3, 2, 8, 2), key_mask (3, 8))"
    turning = layer_of({"embed_dim": 12, "num_heads": 3, "rope": True})
    kept = turning.keys_and_values(memory := normal(2, 6, 12))
    compare(turning(x[:2], kept, query_offset=3), turning(x[:2], memory, query_offset=3))


def test_heads_and_their_weights():
    options = {
        "embed_dim": 12,
        "num_heads": 6,
        "num_kv_heads": 2,
        "rope": True,
        "is_causal": True,
        "sinks": 1,
    }
    layer, x = layer_of(options | {"softcap": 3.0, "window_size": (3, 0)}), normal(2, 7, 12)
    keep = torch.arange(7) < torch.tensor([[7], [5]])
    heads = layer.heads(x, key_mask=keep, return_aux=AuxRequest(lse=True))
    _, weights = plain_pass(layer, x[1], key_mask=keep[1])
    compare(torch.as_tensor(heads.weights()[1]), weights.detach())
    assert heads.aux.lse.shape == (2, 6, 7)
    merged = heads.output.transpose(1, 2).flatten(-2)
    compare(layer.out_proj(merged), layer(x, key_mask=keep))
    assert (
        repr(heads) == "Heads(query (2, 6, 7, 2), key (2, 2, 7, 2), value (2, 2, 7, 2), output (2, 6, 7, 2))"
    )


def test_statistics_change_no_bit_of_the_output():
    layer, x = MultiHeadAttention(32, 4, is_causal=True), torch.randn(2, 40, 32)
    everything = AuxRequest(
        lse=True, max_weight=True, argmax=True, entropy=True, sum_squares=True, distance=True, top_k=3,
        sink_mass=2, relative=(-1, 0), received=True, pooled=8,
    )  # fmt: skip
    output, aux = layer(x, return_aux=everything)
    assert torch.equal(output, layer(x))
    assert aux.top_k_index.shape == (2, 4, 40, 3) and aux.received.shape == (2, 4, 40)
    compare(aux.received.sum(-1), torch.full((2, 4), 40.0), atol=1e-3)


def test_dropout_only_in_training_and_from_a_seed():
    layer, x = MultiHeadAttention(32, 4, dropout=0.5), torch.randn(2, 9, 32)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer(x, rng=3), layer(x, rng=3))
    assert not torch.equal(layer(x, rng=3), layer(x, rng=4))
    torch.manual_seed(11)
    first = layer(x)
    torch.manual_seed(11)
    assert torch.equal(layer(x), first)
    aux = layer(x, rng=3, return_aux=AuxRequest(entropy=True))[1]
    layer.eval()
    assert torch.equal(layer(x), layer(x, rng=3))  # twice the same, bit for bit
    assert torch.equal(
        aux.entropy, layer(x, return_aux=AuxRequest(entropy=True))[1].entropy
    )  # before dropout
    layer.train().dropout = 0.0
    assert torch.equal(layer(x), layer.eval()(x))


def test_dropout_keeps_the_mean():
    layer, x = MultiHeadAttention(8, 2, dropout=0.3).double(), normal(4, 8)
    mean = layer(x.expand(4000, 4, 8), rng=0).mean(0)
    compare(mean, layer.eval()(x), atol=0.05)


def test_pruned_heads_are_masked_heads():
    for seed, (kv_heads, gone) in enumerate([(6, [1, 4]), (6, [0]), (2, [0, 1, 2]), (2, [1, 5]), (1, [3])]):
        options = {"embed_dim": 12, "num_heads": 6, "num_kv_heads": kv_heads, "head_dim": 4, "sinks": 2}
        layer = layer_of(
            options | {"alibi": True, "rel_bias": True, "v_head_dim": 3, "is_causal": True}, seed
        )
        x, mask = normal(2, 5, 12), torch.ones(6, dtype=torch.float64)
        mask[gone] = 0
        expected = layer(x, head_mask=mask)
        layer.prune_heads(gone)
        assert layer.num_heads == 6 - len(gone)
        assert layer.q_proj.out_features == 4 * (6 - len(gone)) == layer.q_proj.weight.shape[0]
        compare(layer(x), expected)
        layer(x).sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


def test_shared_position_modules_survive_pruning():
    first = layer_of({"embed_dim": 12, "num_heads": 6, "rel_bias": True})
    second = MultiHeadAttention(12, 6, rel_bias=first.rel_bias, dtype=torch.float64)
    assert second.rel_bias is first.rel_bias
    first.prune_heads([0])
    assert second.rel_bias.num_heads == 6 and first.rel_bias.num_heads == 5
    second(normal(3, 12))


def test_no_tokens_at_all():
    layer = layer_of({"embed_dim": 8, "num_heads": 2, "rope": True, "rel_bias": True, "is_causal": True})
    assert layer(torch.zeros(2, 0, 8, dtype=torch.float64)).shape == (2, 0, 8)
    assert layer(torch.zeros(0, 3, 8, dtype=torch.float64)).shape == (0, 3, 8)
    nothing = torch.zeros(2, 0, 8, dtype=torch.float64)
    compare(layer(normal(2, 3, 8), nothing, query_offset=0), layer.out_proj.bias.expand(2, 3, 8))


@pytest.mark.parametrize("kind", ["transposed", "strided", "expanded", "flipped"])
def test_any_strides(kind):
    layer, x = layer_of({"embed_dim": 6, "num_heads": 3}), normal(4, 5, 6)
    view = {
        "transposed": x.transpose(0, 1).contiguous().transpose(0, 1),
        "strided": normal(4, 10, 12)[:, ::2, ::2],
        "expanded": x[:1].expand(4, 5, 6),
        "flipped": x.flip(1),
    }[kind]
    assert torch.equal(layer(view), layer(view.contiguous()))
