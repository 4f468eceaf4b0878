"""What happens to a layer in its life: saved, copied, moved, compiled, hooked, adapted, quantised, cast."""

import copy
import inspect
import io
import pickle

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

from headwise import AuxRequest, CapabilityError, ShapeError
from headwise.torch import (
    DynamicCache,
    EncoderLayer,
    LearnedPositions,
    MultiHeadAttention,
    RotaryPositions,
    RotaryScaling,
    StaticCache,
    attention,
)
from tests.torch.layers import layer_of, normal, random_options

FULL = {
    "embed_dim": 12, "num_heads": 6, "num_kv_heads": 2, "rope": True, "qk_norm": "rms", "sinks": 2,
    "rel_bias": True, "alibi": True, "softcap": 3.0, "window_size": (4, 0), "is_causal": True,
}  # fmt: skip


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "torch.save", "state dict"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_saved_and_copied(way, seed):
    options = FULL if seed == 0 else random_options(seed)
    layer = layer_of(options, seed)
    x = normal(2, 5, layer.embed_dim)
    expected = layer(x, query_offset=0)
    if way == "deepcopy":
        other = copy.deepcopy(layer)
    elif way == "pickle":
        other = pickle.loads(pickle.dumps(layer))
    elif way == "torch.save":
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    else:
        other = layer_of(copy.deepcopy(options), seed + 100)
        assert not torch.allclose(other(x, query_offset=0), expected)
        other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, query_offset=0), expected)
    assert repr(other) == repr(layer)


def test_state_dict_names():
    names = set(layer_of(FULL | {"bias": False}).state_dict())
    assert names == {
        "q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight", "q_norm.weight",
        "k_norm.weight", "rel_bias.weight", "sinks",
    }  # fmt: skip


def test_made_on_meta_and_filled_later():
    expected = layer_of(FULL)
    with torch.device("meta"):
        layer = MultiHeadAttention(**FULL, dtype=torch.float64)
    assert all(parameter.is_meta for parameter in layer.parameters())
    layer.to_empty(device="cpu").load_state_dict(expected.state_dict())
    x = normal(2, 5, 12)
    assert torch.equal(layer(x), expected(x))
    assert MultiHeadAttention(**FULL, device="meta").q_proj.weight.is_meta
    layer.reset_parameters()
    assert (layer.q_proj.bias == 0).all() and (layer.q_norm.weight == 1).all() and (layer.sinks == 0).all()
    bound = (6 / 24) ** 0.5
    assert 0.8 * bound < layer.q_proj.weight.abs().max() <= bound


def test_called_on_meta_says_shapes_without_numbers():
    layer = MultiHeadAttention(**FULL, dropout=0.1, device="meta")
    x = torch.zeros(2, 5, 12, device="meta", requires_grad=True)
    keep = torch.ones(2, 5, dtype=torch.bool, device="meta")
    output, aux = layer(x, key_mask=keep, return_aux=AuxRequest(entropy=True, top_k=2))
    output.sum().backward()
    assert output.is_meta and output.shape == x.shape == x.grad.shape
    assert (aux.entropy.shape, aux.top_k_index.shape) == ((2, 6, 5), (2, 6, 5, 2))
    query = torch.zeros(4, 5, 8, device="meta")
    assert attention(query, query, query, torch.zeros(5, 5, device="meta")).shape == (4, 5, 8)
    with pytest.raises(ShapeError, match="key: expected width d_k = 8"):
        attention(query, query[..., :6], query)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    layer, x = layer_of(FULL | {"rel_bias": None}).to(dtype), normal(2, 9, 12).to(dtype)
    exact = copy.deepcopy(layer).double()
    expected = exact(x.double())
    found = layer(x)
    assert found.dtype == dtype
    spacing = torch.finfo(dtype).eps * 40 * expected.abs().max()
    assert (found.double() - expected).abs().max() < spacing
    cache = DynamicCache()
    with torch.no_grad():
        pieces = torch.cat([layer(x[:, :4], cache=cache), layer(x[:, 4:], cache=cache)], 1)
    assert pieces.dtype == dtype and (pieces.double() - expected).abs().max() < spacing
    found.sum().backward()
    assert layer.q_proj.weight.grad.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_those_of_the_output(dtype):
    layer, x = layer_of(FULL).to(dtype), normal(2, 5, 12).to(dtype)
    keep = torch.arange(5) < torch.tensor([[5], [3]])
    heads = layer.heads(x, key_mask=keep)
    weights = torch.as_tensor(heads.weights()[0])
    assert weights.dtype == torch.float32
    values = heads.value[0].detach().float().repeat_interleave(3, 0)
    torch.testing.assert_close((weights @ values).to(dtype), heads.output[0].detach(), atol=1e-3, rtol=1e-2)
    exact = copy.deepcopy(layer).float().heads(x.float(), key_mask=keep)
    torch.testing.assert_close(weights, torch.as_tensor(exact.weights()[0]), atol=0.05, rtol=0)


def test_far_positions_in_half_precision():
    """A rotation by an angle that was rounded to bfloat16 is wrong by radians at position 15963."""
    rope = RotaryPositions()
    x = normal(1, 1, 64)
    exact, half = rope(x, offset=15963), rope(x.bfloat16(), offset=15963)
    assert (exact - half.double()).abs().max() < 0.03


def test_autocast():
    layer, x = MultiHeadAttention(**FULL), torch.randn(2, 9, 12)
    expected = layer(x)
    for cache in (None, DynamicCache()):
        with torch.autocast("cpu", torch.bfloat16):
            found = layer(x, cache=cache)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    found.sum().backward()
    assert layer.q_proj.weight.grad.dtype == torch.float32


def test_hooks_see_every_projection():
    """pytorch/pytorch#78109: nn.MultiheadAttention never calls its out_proj."""
    layer, seen = layer_of({"embed_dim": 12, "num_heads": 3}), []
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        projection = getattr(layer, name)
        projection.register_forward_hook(lambda module, given, out, name=name: seen.append(name))
        projection.register_full_backward_hook(
            lambda module, g_in, g_out, name=name: seen.append(f"grad {name}")
        )
    x = normal(2, 5, 12).requires_grad_()
    layer(x).sum().backward()
    assert sorted(seen) == sorted(
        [*(p := ["q_proj", "k_proj", "v_proj", "out_proj"]), *(f"grad {n}" for n in p)]
    )
    layer.out_proj.register_forward_hook(lambda module, given, out: torch.zeros_like(out))
    assert (layer(x) == 0).all()


class LowRank(nn.Module):
    """An adapter around a linear map, as LoRA has it."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_adapters_train():
    layer, x = layer_of({"embed_dim": 12, "num_heads": 3, "is_causal": True}), normal(2, 5, 12)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        setattr(layer, name, LowRank(getattr(layer, name)))
    before = layer(x)
    optimiser = torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], 1e-4)
    before.square().sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in layer.parameters() if p.requires_grad)
    optimiser.step()
    assert layer(x).square().sum() < before.square().sum()


def test_what_stands_for_a_projection_resets_itself():
    layer = layer_of({"embed_dim": 12, "num_heads": 3})
    layer.q_proj = LowRank(layer.q_proj)
    called = []
    layer.v_proj = LowRank(layer.v_proj)
    layer.v_proj.reset_parameters = lambda: called.append("v_proj")
    kept, other = layer.q_proj.base.weight.clone(), layer.k_proj.weight.clone()
    layer.reset_parameters()
    assert torch.equal(layer.q_proj.base.weight, kept) and not torch.equal(layer.k_proj.weight, other)
    assert called == ["v_proj"] and (layer.k_proj.bias == 0).all()


class Rounded(nn.Module):
    """Weights as whole numbers from -127 to 127 with one scale per row, as quantisers have them."""

    def __init__(self, base):
        super().__init__()
        scale = base.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("whole", (base.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.register_buffer("bias", base.bias.detach())

    def forward(self, x):
        return nn.functional.linear(x, self.whole.to(x.dtype) * self.scale.to(x.dtype), self.bias.to(x.dtype))


def test_quantised_projections_serve():
    layer, x = MultiHeadAttention(32, 4, rope=True), torch.randn(2, 5, 32)
    expected = layer(x)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        setattr(layer, name, Rounded(getattr(layer, name)))
    torch.testing.assert_close(layer(x), expected, rtol=0.05, atol=0.05)
    assert layer(x.bfloat16()).dtype == torch.bfloat16


def test_a_subclass_may_take_other_projections():
    class Tied(MultiHeadAttention):
        def __init__(self):
            super().__init__(12, 3, dtype=torch.float64)
            self.k_proj = self.q_proj

    layer = Tied()
    heads = layer.heads(normal(4, 12))
    assert torch.equal(heads.query, heads.key)


@pytest.mark.parametrize("options", [{"embed_dim": 12, "num_heads": 3}, FULL])
def test_compiled(options):
    layer = layer_of(options).float().eval()
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 7, 12)
    keep = torch.arange(7) < torch.tensor([[7], [5]])
    for n in (7, 7, 5):
        torch.testing.assert_close(compiled(x[:, :n]), layer(x[:, :n]), rtol=1e-5, atol=1e-6)
    found, aux = compiled(x, key_mask=keep, return_aux=AuxRequest(entropy=True))
    expected, plain = layer(x, key_mask=keep, return_aux=AuxRequest(entropy=True))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(aux.entropy, plain.entropy, rtol=1e-5, atol=1e-6, equal_nan=True)
    mine, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    compiled(mine).square().sum().backward()
    layer(other).square().sum().backward()
    torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    torch.compiler.reset()


RELATIVE = {"embed_dim": 12, "num_heads": 3, "rel_bias": True, "alibi": True, "window_size": (4, 1)}


@pytest.mark.parametrize("options", [FULL, RELATIVE])
def test_exported_for_any_batch_and_length(options):
    """A graph without Python in it, which serves sizes that it was not made with; saved and loaded."""
    layer, x = layer_of(options), normal(2, 7, 12)
    sizes = {"query": {0: torch.export.Dim("entries", max=64), 1: torch.export.Dim("tokens", max=64)}}
    exported, file = torch.export.export(layer, (x,), dynamic_shapes=sizes), io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    again = torch.export.load(file).module()
    for batch, n in ((2, 7), (1, 11), (3, 2)):
        torch.testing.assert_close(again(x := normal(batch, n, 12, seed=n)), layer(x), rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore:.*:torch.jit.TracerWarning")
@pytest.mark.parametrize("options", [FULL, RELATIVE])
def test_traced_for_any_length(options):
    layer = layer_of(options)
    traced = torch.jit.trace(layer, normal(2, 7, 12))
    for batch, n in ((2, 7), (1, 11), (3, 2)):
        torch.testing.assert_close(traced(x := normal(batch, n, 12, seed=n)), layer(x), rtol=0, atol=1e-12)


def test_another_default_device_changes_nothing():
    layer, x = MultiHeadAttention(12, 3, dropout=0.4, rope=True, alibi=True).train(), torch.randn(2, 7, 12)
    torch.manual_seed(1)
    expected = layer(x)
    torch.manual_seed(1)
    with torch.device("meta"):
        assert torch.equal(layer(x), expected)


def test_compiled_training_draws_its_own_dropout():
    layer, x = MultiHeadAttention(12, 3, dropout=0.4).train(), torch.randn(2, 7, 12)
    torch.compiler.reset()
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    assert not torch.equal(compiled(x), compiled(x))
    torch.compiler.reset()


@pytest.mark.parametrize("make", [DynamicCache, lambda: StaticCache(32)])
def test_compiled_decoding(make):
    """After the first steps one graph serves every length: nothing is compiled anew."""
    layer = MultiHeadAttention(12, 3, is_causal=True, rope=True).eval().requires_grad_(False)
    torch.compiler.reset()
    counter = CompileCounter()
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    x, cache = torch.randn(2, 14, 12), make()
    rows, compiles = [compiled(x[:, :6], cache=cache)], []
    for i in range(6, 14):
        rows.append(compiled(x[:, i : i + 1], cache=cache))
        compiles.append(counter.frame_count)
    torch.testing.assert_close(torch.cat(rows, 1), layer(x), rtol=1e-4, atol=1e-5)
    assert compiles[2:] == compiles[2:3] * 6
    torch.compiler.reset()


def test_second_derivatives_are_refused_and_never_left_out():
    layer, x = layer_of({"embed_dim": 6, "num_heads": 2}), normal(4, 6).requires_grad_()
    gradient = torch.autograd.grad(layer(torch.tanh(x)).square().sum(), x, create_graph=True)[0]
    with pytest.raises(CapabilityError, match="gradients of gradients are not served"):
        torch.autograd.grad(gradient.sum(), x)
    with pytest.raises(CapabilityError, match="gradients of gradients are not served"):
        torch.autograd.functional.hessian(lambda y: layer(y).sum(), x.detach())


def test_in_a_model_with_data_parallel_names():
    """Sequential, ModuleList and functional_call find the parameters where they are."""
    model = nn.Sequential(LearnedPositions(8, 12), EncoderLayer(12, 3), EncoderLayer(12, 3, norm_first=False))
    x = torch.randn(2, 5, 12)
    weights = {name: parameter.detach() * 2 for name, parameter in model.named_parameters()}
    other = copy.deepcopy(model)
    other.load_state_dict(weights)
    torch.testing.assert_close(torch.func.functional_call(model, weights, (x,)), other(x))


def test_attention_may_be_replaced_in_a_subclass():
    """What the layer computes can be made by hand from its parts."""
    layer, x = layer_of(FULL), normal(2, 5, 12)
    heads = layer.heads(x)
    again = attention(heads.query, heads.key, heads.value, **heads.options)
    assert torch.equal(again, heads.output)


def test_the_pass_takes_what_forward_takes():
    passes = MultiHeadAttention.heads, MultiHeadAttention.forward
    heads, forward = (inspect.signature(method).parameters for method in passes)
    assert list(heads.values()) == list(forward.values())


def test_how_it_looks():
    rope = RotaryPositions(5e5, scaling=RotaryScaling(kind="linear", factor=2.0))
    layer = MultiHeadAttention(
        12, 6, num_kv_heads=2, head_dim=4, sinks=1, window_size=(7, 0), is_causal=True, dropout=0.1,
        rope=rope, alibi=True, rel_bias=True,
    )  # fmt: skip
    assert repr(layer).splitlines()[1] == (
        "  12, 6, num_kv_heads=2, head_dim=4, window_size=(7, 0), is_causal=True, dropout=0.1, sinks=1"
    )
    assert "(alibi): AlibiPositions(6)" in repr(layer)
    assert "(rope): RotaryPositions(base=500000.0, scaling=RotaryScaling(kind='linear', factor=2.0" in repr(
        layer
    )
    assert "(rel_bias): T5Positions(6, bidirectional=False, num_buckets=32, max_distance=128)" in repr(layer)
    assert MultiHeadAttention(12, 3).extra_repr() == "12, 3"
