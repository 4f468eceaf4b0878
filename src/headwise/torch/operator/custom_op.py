"""The operator ``headwise::attend`` and its backward: what torch's autograd and compiler see of headwise.

Both are opaque to the compiler, which calls them as they are and knows their results' shapes; so a compiled
model runs the same code as an eager one.
"""

import math
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from headwise.compute.request import ANSWERS
from headwise.errors import CapabilityError
from headwise.torch.operator.call import DIFFERENTIABLE, TENSORS, TYPES, answer_shapes, make_call
from headwise.torch.operator.dispatch import compute, differentiate

# How the schema writes the types of a call. Numbers may be symbols of the compiler, but not that of threads.
_WORDS: dict[Any, str] = {
    Tensor: "Tensor", Tensor | None: "Tensor?", float: "float", float | None: "float?", bool: "bool",
    bool | None: "bool?", int: "SymInt", int | None: "SymInt?", tuple[int, ...]: "SymInt[]", str: "str",
    str | None: "str?",
}  # fmt: skip
_WRITTEN = {name: f"{_WORDS[kind]} {name}" for name, kind in TYPES.items()} | {
    "num_threads": "int? num_threads"
}
_TENSORS = ", ".join(_WRITTEN[name] for name in TENSORS)
_VALUES = ", ".join(text for name, text in _WRITTEN.items() if name not in TENSORS)
_ANSWERS = (
    "Tensor? grad_output, Tensor? grad_lse, Tensor? grad_entropy, Tensor output, Tensor lse, Tensor? entropy"
)


@torch.library.custom_op(
    "headwise::attend", mutates_args=(), schema=f"({_TENSORS}, *, {_VALUES}) -> Tensor[]"
)
def attend(*tensors: Tensor | None, **values: Any) -> list[Tensor]:
    """Output and statistics: ``[output, lse, ...]``, the statistics in the order of ``Aux``'s fields."""
    output, answers = compute(make_call(tensors, values))
    return [output, *(answers[name] for name in ANSWERS if name in answers)]


@attend.register_fake
def _(*tensors: Tensor | None, **values: Any) -> list[Tensor]:
    call = make_call(tensors, values)
    shapes = answer_shapes(call)
    answers = [call.query.new_empty(shape, dtype=dtype) for shape, dtype in shapes.values()]
    return [call.query.new_empty((*call.query.shape[:-1], call.value.shape[-1])), *answers]


@torch.library.custom_op(
    "headwise::attend_backward",
    mutates_args=(),
    schema=f"({_ANSWERS}, {_TENSORS}, *, bool[] wanted, {_VALUES}) -> Tensor[]",
)
def attend_backward(*tensors: Tensor | None, wanted: list[bool], **values: Any) -> list[Tensor]:
    grad_output, grad_lse, grad_entropy, output, lse, entropy, *inputs = tensors
    assert output is not None and lse is not None
    call = make_call(inputs, values)
    return differentiate(call, wanted, grad_output, grad_lse, grad_entropy, output, lse, entropy)


@attend_backward.register_fake
def _(*tensors: Tensor | None, wanted: list[bool], **values: Any) -> list[Tensor]:
    given = tensors[6 : 6 + len(DIFFERENTIABLE)]
    return [x.new_empty(x.shape) for x, want in zip(given, wanted, strict=True) if want and x is not None]


def _setup(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]
) -> None:
    call = make_call(inputs, keyword_only_inputs)
    names = list(answer_shapes(call))
    entropy = output[1 + names.index("entropy")] if "entropy" in names else None
    ctx.save_for_backward(*inputs, output[0], output[1 + names.index("lse")], entropy)
    ctx.values, ctx.names = keyword_only_inputs, names


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    *inputs, output, lse, entropy = ctx.saved_tensors
    of = dict(zip(("output", *ctx.names), grads, strict=True))
    wanted = list(ctx.needs_input_grad[: len(DIFFERENTIABLE)])
    found = iter(
        attend_backward(
            of["output"],
            of["lse"],
            of.get("entropy"),
            output,
            lse,
            entropy,
            *inputs,
            wanted=wanted,
            **ctx.values,
        )
    )
    grads_of = [next(found) if want else None for want in wanted]
    return (*grads_of, *(None for _ in range(len(TENSORS) - len(DIFFERENTIABLE))))


def _refuse(ctx: Any, *grads: Any) -> Any:
    refuse_second_derivative()


def refuse_second_derivative() -> NoReturn:
    """Gradients of gradients are not served.

    Raises:
        CapabilityError: always.
    """
    raise CapabilityError(
        "gradient",
        "a first derivative (gradients of gradients are not served)",
        "a backward pass through the backward pass of attention",
        "create_graph=False, or attention written out in torch operations for this one use",
    )


attend.register_autograd(_backward, setup_context=_setup)
attend_backward.register_autograd(_refuse, setup_context=lambda ctx, **told: None)


@register_flop_formula(torch.ops.headwise.attend)
def _flops(query: Any, key: Any, value: Any, *others: Any, **values: Any) -> int:
    """Both products, over all pairs of a query and a key, as torch counts its own: a mask saves nothing."""
    return _pairs(query, key) * 2 * (query[-1] + value[-1])


@register_flop_formula(torch.ops.headwise.attend_backward)
def _backward_flops(*shapes: Any, **values: Any) -> int:
    """Five products: scores and queries' and keys' gradients of width d_k, two of width d_v."""
    query, key, value = shapes[6:9]
    return _pairs(query, key) * 2 * (3 * query[-1] + 2 * value[-1])


def _pairs(query: Any, key: Any) -> int:
    return math.prod(query[:-1]) * int(key[-2])
