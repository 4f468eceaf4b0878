"""The drop-in layer beside torch's own: the same numbers where torch is right, and what each of the listed
differences is."""

import copy
import itertools
import pickle
import random
import re
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.torch.compat import MultiheadAttention, replace_attention

DOCUMENT = Path(__file__).parents[2] / "docs" / "in_place_of_torch.md"
CASES = 120


@contextmanager
def fast_path(enabled):
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def pair(*sizes, **options):
    """Torch's layer and ours with the same parameters, biases other than 0."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(*sizes, **{"batch_first": True, "dtype": torch.float64, **options})
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) / 4)
    ours = MultiheadAttention(*sizes, **{"batch_first": True, "dtype": torch.float64, **options})
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def random_case(seed):
    """Options, inputs and masks of one call; every row sees a key."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    heads, width = rng.choice([(1, 3), (2, 4), (3, 5), (4, 1)])
    embed_dim = heads * width
    options = {
        "bias": rng.random() < 0.7, "add_bias_kv": rng.random() < 0.25, "add_zero_attn": rng.random() < 0.25,
        "batch_first": rng.random() < 0.5,
        "kdim": rng.choice([None, 7]), "vdim": rng.choice([None, 6]),
    }  # fmt: skip
    batch, n_q, n_k = rng.choice([1, 2, 3]), rng.choice([1, 2, 5]), rng.choice([1, 4, 7])
    batched = rng.random() < 0.8
    kind = rng.choice(["self", "shared", "cross"])
    if kind != "cross":
        options["vdim"] = options["kdim"]
    if kind == "self":
        options["kdim"] = options["vdim"] = None
        n_k = n_q

    def sequence(n, width):
        if not batched:
            return torch.randn(n, width, dtype=torch.float64)
        shape = (batch, n, width) if options["batch_first"] else (n, batch, width)
        return torch.randn(shape, dtype=torch.float64)

    query = sequence(n_q, embed_dim)
    key = query if kind == "self" else sequence(n_k, options["kdim"] or embed_dim)
    value = key if kind != "cross" else sequence(n_k, options["vdim"] or embed_dim)

    def mask(shape, floats):
        hidden = torch.rand(shape) < 0.4
        hidden[..., -1] = False
        return torch.randn(shape, dtype=torch.float64).masked_fill(hidden, -torch.inf) if floats else hidden

    call = {"need_weights": rng.random() < 0.5, "average_attn_weights": rng.random() < 0.5}
    floats = rng.random() < 0.5
    b = batch if batched else 1
    if rng.random() < 0.6:
        call["attn_mask"] = mask(rng.choice([(n_q, n_k), (b * heads, n_q, n_k)]), floats)
    if rng.random() < 0.5:
        call["key_padding_mask"] = mask((batch, n_k) if batched else (n_k,), floats)
    appended = options["add_bias_kv"] or options["add_zero_attn"]
    if n_q == n_k and len(call) == 2 and not appended and rng.random() < 0.6:
        call["is_causal"] = True
    return (embed_dim, heads), options, (query, key, value), call


@pytest.mark.parametrize("start", range(0, CASES, 10))
def test_the_same_numbers_as_torch(start):
    """Output, weights, and the gradients of inputs and parameters, over random options and masks."""
    for seed in range(start, start + 10):
        sizes, options, inputs, call = random_case(seed)
        results = []
        layers = pair(*sizes, **options)
        for layer in layers:
            leaf = {id(x): x.clone().requires_grad_() for x in inputs}
            given = [leaf[id(x)] for x in inputs]
            told = dict(call)
            if layer is layers[0] and call.get(
                "is_causal"
            ):  # torch's layer asks for the mask beside the flag
                n = inputs[0].shape[1 if options["batch_first"] and inputs[0].ndim == 3 else 0]
                told["attn_mask"] = nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
            with fast_path(False):
                output, weights = layer(*given, **told)
            total = output.square().sum() + (0 if weights is None else (weights.square() * 3).sum())
            wanted = [*leaf.values(), *layer.parameters()]
            grads = torch.autograd.grad(total, wanted)
            results.append((output, weights, *grads))
        for one, other in zip(*results, strict=True):
            if one is not None or other is not None:
                torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)


# ---- the list of differences: docs/in_place_of_torch.md names these tests ----


def test_every_listed_difference_has_its_test():
    listed = re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8"))
    assert len(listed) >= 12
    assert set(listed) <= set(globals())


def empty_first(n=4):
    x = torch.randn(2, n, 8, dtype=torch.float64)
    hidden = torch.zeros(2, n, dtype=torch.bool)
    hidden[0] = True
    return x, hidden


def test_empty_rows_give_zero_whether_weights_are_asked_for_or_not():
    theirs, ours = pair(8, 2)
    x, hidden = empty_first()
    assert theirs(x, x, x, key_padding_mask=hidden)[0][0].isnan().all()
    for need_weights in (True, False):
        output, weights = ours(x, x, x, key_padding_mask=hidden, need_weights=need_weights)
        torch.testing.assert_close(output[0], ours.out_proj.bias.expand(4, 8))
        assert weights is None or (weights[0] == 0).all()
        torch.testing.assert_close(output[1], theirs(x, x, x, need_weights=False)[0][1])


def test_empty_rows_in_evaluation():
    theirs, ours = (layer.eval() for layer in pair(8, 2))
    x, hidden = empty_first()
    with torch.no_grad():
        assert theirs(x, x, x, key_padding_mask=hidden, need_weights=False)[0][0].isnan().all()
        output, _ = ours(x, x, x, key_padding_mask=hidden, need_weights=False)
    torch.testing.assert_close(output[0], ours.out_proj.bias.detach().expand(4, 8))


def test_an_empty_row_spoils_no_gradient():
    x, hidden = empty_first()
    spoiled = []
    for layer in pair(8, 2):
        output, _ = layer(x, x, x, key_padding_mask=hidden)
        output[1].sum().backward()
        spoiled.append(layer.in_proj_weight.grad.isnan().any().item())
    assert spoiled == [True, False]


def test_causal_without_a_mask_in_evaluation():
    theirs, ours = (layer.eval() for layer in pair(8, 2))
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    changed = x.clone()
    changed[:, -1] += 1
    sees_ahead = []
    with torch.no_grad():
        for layer in (theirs, ours):
            first, second = (
                layer(y, y, y, need_weights=False, is_causal=True)[0][:, 0] for y in (x, changed)
            )
            sees_ahead.append(not torch.equal(first, second))
    assert sees_ahead == [True, False]


def test_causal_without_a_mask_in_training():
    theirs, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="attn_mask"):
        theirs(x, x, x, is_causal=True)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    for one, other in zip(ours(x, x, x, is_causal=True), theirs(x, x, x, attn_mask=mask), strict=True):
        torch.testing.assert_close(one, other)


def test_causal_composes_with_a_mask():
    theirs, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[:, 0] = True
    hidden[0, 0] = False
    both = hidden | torch.ones(5, 5, dtype=torch.bool).triu(1)
    right = theirs(x, x, x, attn_mask=both, need_weights=False)[0]
    dropped = theirs(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0]
    assert not torch.allclose(dropped, right)
    torch.testing.assert_close(ours(x, x, x, attn_mask=hidden, is_causal=True, need_weights=False)[0], right)


def test_weights_are_those_before_dropout():
    theirs, ours = pair(8, 2, dropout=0.5)
    x = torch.randn(2, 50, 8, dtype=torch.float64)
    sums = [layer(x, x, x)[1].sum(-1) for layer in (theirs, ours)]
    one = torch.ones_like(sums[0])
    assert (sums[0] - one).abs().max() > 0.1
    torch.testing.assert_close(sums[1], one)


def test_hidden_nan_does_not_spread():
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    memory = torch.randn(2, 4, 8, dtype=torch.float64)
    memory[:, -1] = torch.nan
    hidden = torch.zeros(2, 4, dtype=torch.bool)
    hidden[:, -1] = True
    theirs, ours = pair(8, 2)
    assert theirs(x, memory, memory, key_padding_mask=hidden, need_weights=False)[0].isnan().any()
    for need_weights in (True, False):
        output, weights = ours(x, memory, memory, key_padding_mask=hidden, need_weights=need_weights)
        clean = ours(x, memory[:, :-1], memory[:, :-1])
        torch.testing.assert_close(output, clean[0])
        if need_weights:
            torch.testing.assert_close(weights[..., :-1], clean[1])


def test_hooks_of_the_output_projection_run():
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    calls = []
    for layer in pair(8, 2):
        layer.out_proj.register_forward_hook(lambda *told, layer=layer: calls.append(type(layer)))
        layer(x, x, x)
    assert calls == [MultiheadAttention]


def test_a_boolean_and_a_floating_mask_together():
    theirs, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1, 3:] = True
    bias = torch.randn(5, 5, dtype=torch.float64)
    with pytest.warns(UserWarning, match="mismatched"):
        expected = theirs(x, x, x, attn_mask=bias, key_padding_mask=padding)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ours(x, x, x, attn_mask=bias, key_padding_mask=padding)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_floating_mask_of_zeros_and_ones_is_refused():
    theirs, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    keep = torch.tensor([[0.0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.float64)
    weights = theirs(x, x, x, key_padding_mask=keep)[1]
    assert (weights[0, :, 3:] > 0.05).any()  # nothing is hidden: 1 is added
    with pytest.raises(HeadwiseError, match="key_padding_mask.bool"):
        ours(x, x, x, key_padding_mask=keep)
    with pytest.raises(HeadwiseError, match="attn_mask.bool"):
        ours(x, x, x, attn_mask=keep[0].expand(5, 5))


def test_the_encoder_answers_in_evaluation_as_in_training():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True)
    ours = copy.deepcopy(theirs)
    assert replace_attention(ours).switched_off == ("TransformerEncoder",)
    x, hidden = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    equal = []
    for encoder in (theirs, ours):
        training = encoder(x, src_key_padding_mask=hidden)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluation = encoder.eval()(x, src_key_padding_mask=hidden)
        equal.append(torch.allclose(training, evaluation, atol=1e-5))
        if encoder is theirs:
            assert (evaluation[1, 3:] == 0).all()
    assert equal == [False, True]


def test_the_mean_of_the_weights_needs_no_array_of_all_heads():
    _, ours = pair(64, 16, dtype=torch.float32)
    theirs, _ = pair(64, 16, dtype=torch.float32)
    n = 512
    x = torch.randn(1, n, 64)
    largest = []
    for layer in (theirs, ours):
        with torch.no_grad(), fast_path(False), Largest() as seen:
            layer(x, x, x)
        largest.append(seen.numel)
    assert largest[0] >= 16 * n * n
    assert largest[1] <= n * n


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """The largest tensor that any operation gives while the mode is on."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        for one in answer if isinstance(answer, list | tuple) else [answer]:
            if isinstance(one, torch.Tensor):
                self.numel = max(self.numel, one.untyped_storage().nbytes() // one.element_size())
        return answer


# ---- the rest of the layer ----


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("norm_first", [False, True])
def test_in_torchs_own_transformer(norm_first):
    """The whole model answers as before, in training mode and in evaluation, and its fast path is closed."""
    torch.manual_seed(0)
    model = nn.Transformer(
        8, 2, 2, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    source, target = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)
    padding = torch.zeros(2, 6, dtype=torch.bool)
    padding[1, 4:] = True
    causal = nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64) == -torch.inf
    told = dict(
        tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=padding, memory_key_padding_mask=padding
    )
    with fast_path(False):
        before = model(source, target, **told)
    report = replace_attention(model, source, target, **told)
    assert len(report.replaced) == 6 and not report.left
    assert all(one.difference < 1e-12 for one in report.replaced)
    assert report.model_difference < 1e-12
    assert "replaced 6 of 6" in str(report) and "encoder.layers.0.self_attn" in str(report)
    torch.testing.assert_close(model(source, target, **told), before)
    model.eval()
    calls = []
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            module.register_forward_hook(lambda *told: calls.append(1))
    with torch.no_grad():
        torch.testing.assert_close(model(source, target, **told), before)
    assert len(calls) == 6


@pytest.mark.parametrize("options", [{}, {"kdim": 6, "add_bias_kv": True}])
def test_parameters_can_be_reset(options):
    both = []
    for kind in (MultiheadAttention, nn.MultiheadAttention):
        layer = kind(8, 2, **options)
        torch.manual_seed(1)
        layer._reset_parameters()  # what training code that initialises a model calls
        both.append({name: held for name, held in layer.state_dict().items() if name != "out_proj.weight"})
    torch.testing.assert_close(*both, atol=0, rtol=0)
    encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    replace_attention(encoder)
    encoder.self_attn._reset_parameters()
    assert not encoder.self_attn._qkv_same_embed_dim  # or torch's encoder goes past the layer


def test_state_dicts_load_both_ways():
    for options in ({}, {"kdim": 5, "vdim": 3}, {"bias": False}, {"add_bias_kv": True}):
        theirs, ours = pair(8, 2, **options)
        again = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64, **options)
        again.load_state_dict(ours.state_dict())
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name])


def test_copies_and_pickles():
    _, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    for layer in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(layer, MultiheadAttention)
        torch.testing.assert_close(layer(x, x, x)[0], ours(x, x, x)[0])


@pytest.mark.parametrize("need_weights, dropout", [(True, 0.0), (False, 0.5)])
def test_compiled_as_one_graph(need_weights, dropout):
    torch.compiler.reset()
    _, ours = pair(8, 2, dropout=dropout)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    results = []
    for layer in (ours, compiled):
        torch.manual_seed(5)
        output, weights = layer(x, x, x, key_padding_mask=hidden, is_causal=True, need_weights=need_weights)
        grads = torch.autograd.grad(output.square().sum(), list(ours.parameters()))
        results.append((output, *(() if weights is None else (weights,)), *grads))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_exported_and_not_scripted():
    _, ours = pair(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    exported = torch.export.export(ours, (x, x, x), {"is_causal": True}).module()
    torch.testing.assert_close(exported(x, x, x, is_causal=True), ours(x, x, x, is_causal=True))
    with pytest.raises(CapabilityError, match="expected torch.compile or torch.export.* torch.jit.script"):
        torch.jit.script(ours)


def test_autocast_as_in_torch():
    theirs, ours = (layer.float() for layer in pair(8, 2))
    hidden = torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 3:] = True
    with torch.autocast("cpu", torch.bfloat16):
        told = {"key_padding_mask": hidden, "attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)}
        for mine, expected in zip(ours(X, X, X, **told), theirs(X, X, X, **told), strict=True):
            assert mine.dtype == expected.dtype == torch.bfloat16
            torch.testing.assert_close(mine, expected, atol=0.02, rtol=0.02)


def test_dropout_in_training_only_and_as_the_seed_says():
    _, ours = pair(8, 2, dropout=0.5)
    x = torch.randn(2, 9, 8, dtype=torch.float64)

    def run():
        torch.manual_seed(1)
        return ours(x, x, x, need_weights=False)[0]

    assert torch.equal(run(), run())
    first = run()
    assert not torch.equal(first, ours(x, x, x, need_weights=False)[0])
    ours.eval()
    assert torch.equal(ours(x, x, x)[0], ours(x, x, x)[0])


def test_replacing_shares_parameters_hooks_and_layers():
    shared = nn.MultiheadAttention(8, 2)
    seen = []
    shared.register_forward_hook(lambda *told: seen.append(1))
    model = nn.ModuleDict({"a": shared, "b": nn.ModuleDict({"c": shared}), "d": MultiheadAttention(8, 2)})

    class Own(nn.MultiheadAttention):
        pass

    model["e"] = Own(8, 2)
    report = replace_attention(model)
    assert not seen  # measuring calls no hook
    assert [one.path for one in report.replaced] == ["a", "b.c"]
    assert set(report.left) == {"d", "e"} and "Own" in report.left["e"]
    assert report.model_difference is None
    assert model["a"] is model["b"]["c"] and isinstance(model["a"], MultiheadAttention)
    assert model["a"].in_proj_weight is shared.in_proj_weight
    x = torch.randn(3, 2, 8)
    model["a"](x, x, x)
    assert seen == [1]
    assert "d left: headwise's already" in str(report)
    assert "e left: Own, whose forward may do other things" in str(report)


def test_layers_without_data_are_replaced_unmeasured():
    with torch.device("meta"):
        model = nn.Sequential(nn.MultiheadAttention(8, 2))
    report = replace_attention(model)
    assert report.replaced[0].difference is None
    assert "not measured" in str(report)
    x, mask = torch.zeros(4, 2, 8, device="meta"), torch.zeros(4, 4, device="meta")
    output, weights = model[0](x, x, x, attn_mask=mask)
    assert (output.shape, weights.shape) == ((4, 2, 8), (2, 4, 4))


X = torch.randn(2, 5, 8)
MEMORY = torch.randn(2, 7, 8)
MESSAGES = {
    "query: expected a torch tensor; received ndarray": (DtypeError, (X.numpy(),) * 3, {}),
    "key: expected torch.float32, the dtype of the layer; received torch.float64": (
        DtypeError, (X, X.double(), X), {}),
    "query: expected (B, n, embed_dim), or (n, embed_dim)": (ShapeError, (X[None],) * 3, {}),
    "key: expected 3 axes, as query (2, 5, 8) has": (ShapeError, (X, X[0], X), {}),
    "key: expected a last axis of 8": (ShapeError, (X, X[..., :3], X), {}),
    "value: expected a batch of 2, axis 0 of query (2, 5, 8)": (ShapeError, (X, X, X[:1]), {}),
    "value: expected the leading axes of key (2, 7, 8)": (ShapeError, (X, MEMORY, X), {}),
    "attn_mask: expected shape (5, 7), or (4, 5, 7)": (
        ShapeError, (X, MEMORY, MEMORY), {"attn_mask": torch.zeros(2, 5, 7, dtype=torch.bool)}),
    "key_padding_mask: expected shape (2, 7)": (
        ShapeError, (X, MEMORY, MEMORY), {"key_padding_mask": torch.zeros(2, 5, dtype=torch.bool)}),
    "attn_mask: expected booleans (True hides the key)": (
        DtypeError, (X, X, X), {"attn_mask": torch.zeros(5, 5, dtype=torch.int64)}),
    "key_padding_mask: expected booleans (True hides the key)": (
        DtypeError, (X, X, X), {"key_padding_mask": torch.zeros(2, 5, dtype=torch.uint8)}),
    "is_causal: expected causal_alignment=": (ShapeError, (X, MEMORY, MEMORY), {"is_causal": True}),
}  # fmt: skip


@pytest.mark.parametrize("start", MESSAGES)
def test_messages(start):
    kind, inputs, options = MESSAGES[start]
    layer = MultiheadAttention(8, 2, batch_first=True)
    with pytest.raises(kind) as caught:
        layer(*inputs, **options)
    assert str(caught.value).startswith(start)
    assert type(caught.value) is kind


def test_what_replacing_refuses():
    with pytest.raises(HeadwiseError, match="from_torch"):
        replace_attention(nn.MultiheadAttention(8, 2))
    with pytest.raises(HeadwiseError, match="model: expected a torch.nn.Module; received str. Hint: "):
        replace_attention("model")
    with pytest.raises(HeadwiseError, match="one without"):
        replace_attention(nn.Linear(2, 2))

    class Silent(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2)

        def forward(self, x):
            return "nothing"

    silent = Silent()
    with pytest.raises(HeadwiseError, match="answers with tensors"):
        replace_attention(silent, torch.randn(2))
    assert type(silent.attention) is nn.MultiheadAttention  # refused before anything was changed


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    nested = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(2, 8)])
    with pytest.raises(CapabilityError, match="use_nested_tensor = False"):
        MultiheadAttention(8, 2, batch_first=True)(nested, nested, nested)


def test_causal_cross_attention_follows_its_mask():
    theirs, ours = pair(8, 2)
    x, memory = X.double(), MEMORY.double()
    mask = torch.ones(5, 7, dtype=torch.bool).triu(3)
    expected = theirs(x, memory, memory, attn_mask=mask)
    for one, other in zip(ours(x, memory, memory, attn_mask=mask, is_causal=True), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_causal_beside_learned_and_zero_keys():
    """Keys that torch appends are seen by every row, causal or not."""
    for add_bias_kv, add_zero_attn in itertools.product([False, True], repeat=2):
        theirs, ours = pair(8, 2, add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn)
        x = X.double()
        mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
        expected = theirs(x, x, x, attn_mask=mask, average_attn_weights=False)
        found = ours(x, x, x, is_causal=True, average_attn_weights=False)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
