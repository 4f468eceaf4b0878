"""The operator under torch's own checks: opcheck, gradcheck, the compiler, autocast, counters, transforms."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from headwise import AuxRequest
from headwise.compute.options import OPTIONS, UNSERVED
from headwise.errors import CapabilityError
from headwise.torch import attention
from headwise.torch.operator.custom_op import attend
from headwise.torch.operator.packing import as_asked

IMPLEMENTATIONS = ("torch", "kernel")
EVERYTHING = AuxRequest(
    lse=True, max_weight=True, argmax=True, entropy=True, sum_squares=True, sink_logit_mass=True,
    distance=True, received=True, top_k=2, sink_mass=3, pooled=3, relative=(-1, 0),
    matches=np.arange(7) % 3, classes=np.arange(7) % 3 - 1,
)  # fmt: skip
PLAIN = {
    "scale": None, "is_causal": False, "enable_gqa": None, "alignment": None, "offset": 2,
    "window_left": None, "window_right": None, "softcap": None, "dropout_p": 0.0, "num_threads": None,
}  # fmt: skip


SCHEMA = (
    "headwise::attend(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Tensor? attn_bias, "
    "Tensor? alibi_slopes, Tensor? sinks, Tensor? query_lengths, Tensor? kv_lengths, Tensor? query_ids, "
    "Tensor? key_ids, Tensor? query_offsets, Tensor? seed, Tensor? key_tokens, Tensor? query_tokens, "
    "Tensor? classes, *, float? scale, bool is_causal, bool? enable_gqa, str? alignment, SymInt? offset, "
    "SymInt? window_left, SymInt? window_right, float? softcap, float dropout_p, str statistics, "
    "SymInt top_k, SymInt sink_mass, SymInt[] relative, SymInt pooled, SymInt class_count, "
    "str implementation, int? num_threads) -> Tensor[]"
)
# Options that the operator carries under other names, in parts, or not at all.
CARRIED = {
    "causal_alignment": ["alignment"],
    "query_offset": ["query_offsets", "offset"],
    "window_size": ["window_left", "window_right"],
    "segment_ids": ["query_ids", "key_ids"],
    "rng": ["seed"],
    "return_aux": [
        "key_tokens", "query_tokens", "classes", "statistics", "top_k", "sink_mass", "relative", "pooled",
        "class_count",
    ],
    "head_mask": [],  # multiplies the output behind it
    **dict.fromkeys(UNSERVED, []),
}  # fmt: skip


def test_the_operator_carries_every_option():
    schema = torch.ops.headwise.attend.default._schema
    assert str(schema) == SCHEMA
    carried = [name for option in OPTIONS for name in CARRIED.get(option, [option])]
    assert sorted(argument.name for argument in schema.arguments) == sorted(
        ["query", "key", "value", *carried]
    )


def leaves(*shapes, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def qkv(dtype=torch.float64, lead=(2,)):
    return leaves((*lead, 6, 5, 8), (*lead, 2, 7, 8), (*lead, 2, 7, 3), dtype=dtype)


def every_option():
    """Small inputs, tensors that take gradients, and every option that shapes scores."""
    inputs = leaves((2, 2, 3, 3), (2, 1, 4, 3), (2, 1, 4, 2))
    mask, bias, slopes, sinks, head_mask = leaves((2, 1, 3, 4), (2, 1, 4), (2,), (2, 2), (2, 2), seed=1)
    tensors = {
        "attn_mask": mask, "attn_bias": bias, "alibi_slopes": slopes, "sinks": sinks, "head_mask": head_mask,
    }  # fmt: skip
    options = {
        "softcap": 3.0, "is_causal": True, "query_offset": 1, "window_size": (2, None), "scale": 0.4,
        "kv_lengths": [4, 2], "segment_ids": (np.arange(3) // 2, np.arange(4) // 3),
    }  # fmt: skip
    return inputs, tensors, options


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("request_, dropout_p", [(None, 0.0), (EVERYTHING, 0.0), (EVERYTHING, 0.4)])
def test_opcheck(implementation, request_, dropout_p):
    ids, asked = as_asked(request_)
    mask, slopes = leaves((2, 1, 5, 7), (6,), seed=1)
    tensors = (
        *qkv(),
        mask,
        None,
        slopes,
        None,
        None,
        torch.tensor([6, 4]),
        *(None,) * 3,
        torch.tensor(7),
        *ids,
    )
    values = {**PLAIN, "dropout_p": dropout_p, "implementation": implementation, **asked}
    torch.library.opcheck(attend, tensors, values)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("through_the_operator", [False, True])
def test_gradcheck(implementation, through_the_operator, monkeypatch):
    if through_the_operator:
        monkeypatch.setattr("headwise.torch.functional._undisturbed", lambda tensors: False)
    inputs, given, options = every_option()

    def answers(query, key, value, *others):
        output, aux = attention(
            query, key, value, **dict(zip(given, others, strict=True)), **options,
            return_aux=AuxRequest(lse=True, entropy=True), implementation=implementation,
        )  # fmt: skip
        return output, torch.nan_to_num(aux.lse, neginf=0), torch.nan_to_num(aux.entropy)

    assert torch.autograd.gradcheck(answers, (*inputs, *given.values()))

    def dropped(query, key, value):
        return attention(query, key, value, dropout_p=0.4, rng=5, implementation=implementation)

    assert torch.autograd.gradcheck(dropped, inputs)


def test_one_head_without_axes():
    query, key, value, sinks, factor = leaves((5, 8), (7, 8), (7, 3), (1,), (1,))

    def answers(*tensors):
        output, aux = attention(
            *tensors[:3],
            sinks=tensors[3],
            head_mask=tensors[4],
            return_aux=AuxRequest(lse=True, entropy=True),
        )
        assert (output.shape, aux.lse.shape) == ((5, 3), (5,))
        return output, aux.lse, aux.entropy

    assert torch.autograd.gradcheck(answers, (query, key, value, sinks, factor))


@pytest.mark.parametrize("through_the_operator", [False, True])
def test_gradients_of_gradients_are_refused(through_the_operator, monkeypatch):
    if through_the_operator:
        monkeypatch.setattr("headwise.torch.functional._undisturbed", lambda tensors: False)
    query, key, value = qkv()
    (grad,) = torch.autograd.grad(attention(query, key, value).square().sum(), query, create_graph=True)
    with pytest.raises(CapabilityError, match="gradients of gradients"):
        grad.sum().backward()


def plain(query, key, value):
    output, aux = attention(query, key, value, is_causal=True, query_offset=2, return_aux=EVERYTHING)
    return (
        output,
        aux.lse,
        aux.entropy,
        aux.received,
        aux.pooled,
        aux.induction,
        aux.classes,
        aux.top_k_index,
    )


def with_tensors(query, key, value):
    output, aux = attention(
        query, key, value, causal_alignment="lower_right", window_size=(4, 0), softcap=2.0,
        kv_lengths=torch.tensor([7, 3]), query_offset=None, sinks=query.mean((0, 2, 3)),
        return_aux=AuxRequest(lse=True, entropy=True), head_mask=query[0, :, 0, 0],
    )  # fmt: skip
    return output, aux.lse.clamp(-9, 9), aux.entropy.nan_to_num()


def with_dropout(query, key, value):
    return (attention(query, key, value, dropout_p=0.3, rng=torch.randint(2**63 - 1, ())),)


def inside(query, key, value):
    request = AuxRequest(entropy=True, top_k=2)
    output, aux = attention(query * 2, key, value, return_aux=request)
    return torch.relu(output), aux.entropy, aux.top_k_weight


@pytest.mark.parametrize("function", [plain, with_tensors, with_dropout, inside])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_as_one_graph(function, dynamic):
    """The compiled function gives the same numbers and gradients, without a break in the graph."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    results = []
    for run in (function, compiled):
        inputs = qkv()
        torch.manual_seed(3)
        answers = run(*inputs)
        total = sum(answer.square().sum() for answer in answers if answer.requires_grad)
        results.append(([x.detach() for x in answers], torch.autograd.grad(total, inputs)))
    for mine, theirs in zip(*results, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["block_table", "cu_seqlens_k"])
def test_an_unserved_option_is_refused_by_name_where_the_graph_is_traced(name):
    query, key, value = qkv()
    option = {name: torch.zeros(3, dtype=torch.long)}
    with pytest.raises(CapabilityError) as plain:
        attention(query, key, value, **option)
    torch.compiler.reset()
    with pytest.raises(CapabilityError) as broken:  # torch leaves the graph, and the error is Python's own
        torch.compile(attention, backend="aot_eager")(query, key, value, **option)
    assert str(broken.value) == str(plain.value)
    torch.compiler.reset()
    # Where a break is not allowed, torch answers with an error of its own that shows ours.
    with pytest.raises(torch._dynamo.exc.Unsupported) as whole:
        torch.compile(attention, backend="aot_eager", fullgraph=True)(query, key, value, **option)
    error = plain.value
    parts = (error.argument, error.expected, error.received, error.hint)
    assert f"raised exception CapabilityError{parts!r}" in str(whole.value)
    assert "is not a function" not in str(whole.value)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_compiled_by_the_default_backend():
    torch.compiler.reset()
    compiled = torch.compile(inside, fullgraph=True)
    inputs = qkv(torch.float32)
    for one, other in zip(inside(*inputs), compiled(*inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, implementation):
    halves = [x.detach().to(dtype).requires_grad_() for x in qkv()]
    mask = torch.randn(5, 7).to(dtype).requires_grad_()
    wide = [x.detach().float().requires_grad_() for x in (*halves, mask)]
    request = AuxRequest(lse=True, entropy=True, received=True)
    found = attention(*halves, mask, return_aux=request, implementation=implementation)
    exact = attention(*wide, return_aux=request, implementation=implementation)
    assert found[0].dtype == dtype
    torch.testing.assert_close(found[0], exact[0].to(dtype), rtol=0, atol=0)
    for name, answer in found[1].asked().items():
        assert answer.dtype in (torch.float32, torch.int64)
        torch.testing.assert_close(answer, getattr(exact[1], name), rtol=0, atol=0)
    factor = torch.randn(found[0].shape).to(dtype)
    found = torch.autograd.grad(found[0], (*halves, mask), factor)
    exact = torch.autograd.grad(exact[0], wide, factor.float())
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=2e-2)


def test_autocast_brings_its_dtype_to_query_key_value_and_mask():
    query, key, value = (x.detach() for x in qkv(torch.float32))
    mask = torch.randn(5, 7)
    for run in (attention, torch.compile(attention, fullgraph=True, backend="aot_eager")):
        with torch.autocast("cpu", torch.bfloat16):
            found = run(query, key.bfloat16(), value, mask)
            doubles = attention(*(x.double() for x in (query, key, value)))
        assert found.dtype == torch.bfloat16
        assert doubles.dtype == torch.float64
        torch.testing.assert_close(
            found, attention(*(x.bfloat16() for x in (query, key, value, mask))), rtol=0, atol=0
        )


def test_floating_point_operations_are_counted():
    query, key, value = qkv()
    with FlopCounterMode(display=False) as counter:
        attention(query, key, value).sum().backward()
    forward = 2 * 2 * 6 * 5 * 7 * (8 + 3)
    backward = 2 * 2 * 6 * 5 * 7 * (3 * 8 + 2 * 3)
    assert counter.get_total_flops() == forward + backward
