"""The operator ``headwise::attend`` and its backward: what torch's autograd and compiler see of headwise.

Both are opaque to the compiler, which calls them as they are and knows their results' shapes; so a compiled
model runs the same code as an eager one.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.errors import CapabilityError
from headwise.problem import Problem
from headwise.running import run
from headwise.torch.call import ANSWERS, DIFFERENTIABLE, TENSORS, Call, answer_shapes
from headwise.torch.tiled import Rows, Upstream, Wanted, backward, forward
from headwise.torch.tiled_statistics import statistics

_TENSORS = ", ".join(f"{'Tensor' if name in DIFFERENTIABLE[:3] else 'Tensor?'} {name}" for name in TENSORS)
_VALUES = (
    "float? scale, bool is_causal, bool? enable_gqa, str? alignment, SymInt? offset, SymInt? window_left, "
    "SymInt? window_right, float? softcap, float dropout_p, str statistics, SymInt top_k, SymInt sink_mass, "
    "SymInt[] relative, SymInt pooled, SymInt classes, str implementation, int? num_threads"
)
_ANSWERS = (
    "Tensor grad_output, Tensor? grad_lse, Tensor? grad_entropy, Tensor output, Tensor lse, Tensor? entropy"
)


@torch.library.custom_op(
    "headwise::attend", mutates_args=(), schema=f"({_TENSORS}, *, {_VALUES}) -> Tensor[]"
)
def attend(*tensors: Tensor | None, **values: Any) -> list[Tensor]:
    """Output and statistics: ``[output, lse, ...]``, the statistics in the order of ``Aux``'s fields."""
    call = _call(tensors, values)
    output = _empty_output(call)
    wide = call.wide()
    answers = _run_kernel(wide, output) if call.on_kernel() else _run_tiles(wide, output)
    return [output, *(answers[name] for name in ANSWERS if name in answers)]


@attend.register_fake
def _(*tensors: Tensor | None, **values: Any) -> list[Tensor]:
    call = _call(tensors, values)
    shapes = answer_shapes(call)
    answers = [call.query.new_empty(shape, dtype=dtype) for shape, dtype in shapes.values()]
    return [_empty_output(call), *answers]


@torch.library.custom_op(
    "headwise::attend_backward",
    mutates_args=(),
    schema=f"({_ANSWERS}, {_TENSORS}, *, bool[] wanted, {_VALUES}) -> Tensor[]",
)
def attend_backward(*tensors: Tensor | None, wanted: list[bool], **values: Any) -> list[Tensor]:
    """Gradients of those of ``DIFFERENTIABLE`` that are wanted, in their order.

    One place decides who computes them: so far the tiled torch code for every device.
    """
    grad_output, grad_lse, grad_entropy, output, lse, entropy, *inputs = tensors
    call = _call(tuple(inputs), values).wide()
    problem = call.problem()
    tiles = call.tiles(problem)
    shape = tiles.row_shape

    def rows(x: Tensor | None) -> Any:
        return None if x is None else x.detach().to(tiles.dtype).reshape(shape)

    assert grad_output is not None and output is not None
    upstream = Upstream(
        output.to(tiles.dtype).reshape(*shape, -1) if output.numel() else output.new_zeros(*shape, tiles.d_v),
        rows(lse),
        grad_output.to(tiles.dtype).reshape(*shape, tiles.d_v),
        rows(grad_lse),
        rows(entropy),
        rows(grad_entropy),
    )
    wants = Wanted(*wanted)
    added = [
        want for array, want in ((call.attn_mask, wants.mask), (call.attn_bias, wants.bias))
        if array is not None and array.dtype != torch.bool
    ]  # fmt: skip
    grads = backward(tiles, upstream, wants, added)
    of_added = iter(grads.added)
    mask, bias = (
        next(of_added) if array is not None and array.dtype != torch.bool else None
        for array in (call.attn_mask, call.attn_bias)
    )
    found = (grads.query, grads.key, grads.value, mask, bias, grads.alibi_slopes, grads.sinks)
    answers = []
    for name, want, grad, given in zip(DIFFERENTIABLE, wanted, found, inputs, strict=False):
        if not want:
            continue
        assert given is not None
        if grad is None:  # no logits at all
            grad = given.new_zeros(given.shape)
        elif name == "alibi_slopes":
            grad = grad.reshape(*problem.lead, problem.heads).sum_to_size(given.shape)
        elif name in ("attn_mask", "attn_bias"):
            grad = _unflattened(grad, given, problem)
        answers.append(grad.reshape(given.shape).to(given.device, given.dtype))
    return answers


@attend_backward.register_fake
def _(*tensors: Tensor | None, wanted: list[bool], **values: Any) -> list[Tensor]:
    given = tensors[6 : 6 + len(DIFFERENTIABLE)]
    return [x.new_empty(x.shape) for x, want in zip(given, wanted, strict=True) if want and x is not None]


def _setup(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: list[Tensor]
) -> None:
    call = _call(inputs, keyword_only_inputs)
    names = list(answer_shapes(call))
    entropy = output[1 + names.index("entropy")] if "entropy" in names else None
    ctx.save_for_backward(*inputs, output[0], output[1 + names.index("lse")], entropy)
    ctx.values, ctx.names = keyword_only_inputs, names


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    *inputs, output, lse, entropy = ctx.saved_tensors
    of = dict(zip(("output", *ctx.names), grads, strict=True))
    wanted = list(ctx.needs_input_grad[: len(DIFFERENTIABLE)])
    grad_output = of["output"] if of["output"] is not None else torch.zeros_like(output)
    found = iter(
        attend_backward(
            grad_output,
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
    raise CapabilityError(
        "gradient",
        "a first derivative (gradients of gradients are not served)",
        "a backward pass through the backward pass of attention",
        "create_graph=False, or attention written out in torch operations for this one use",
    )


attend.register_autograd(_backward, setup_context=_setup)
attend_backward.register_autograd(_refuse, setup_context=lambda ctx, **told: None)


def _empty_output(call: Call) -> Tensor:
    return call.query.new_empty((*call.query.shape[:-1], call.value.shape[-1]))


def _call(tensors: tuple[Tensor | None, ...], values: dict[str, Any]) -> Call:
    return Call(**dict(zip(TENSORS, tensors, strict=True)), **values)  # type: ignore[arg-type]


def _run_kernel(call: Call, output: Tensor) -> dict[str, Tensor]:
    """The native kernel on the tensors' own memory, half precision on its float32 image."""
    problem = call.problem()
    into = (
        output if output.dtype == call.query.dtype else output.new_empty(output.shape, dtype=call.query.dtype)
    )
    view = into.numpy()
    answers = run(problem, view[None] if problem.one_head else view)
    if into is not output:
        output.copy_(into)
    return {name: torch.from_numpy(np.ascontiguousarray(answer)) for name, answer in answers.items()}


def _run_tiles(call: Call, output: Tensor) -> dict[str, Tensor]:
    problem = call.problem()
    tiles = call.tiles(problem)
    rows: Rows = forward(tiles)
    lead = output.shape[:-2]
    output.copy_(rows.output.reshape(output.shape))
    found = statistics(tiles, rows, problem.request)
    return {name: answer.reshape(*lead, *answer.shape[3:]) for name, answer in found.items()}


def _unflattened(grad: Tensor, given: Tensor, problem: Problem) -> Tensor:
    """``(B or 1, H or 1, ...)`` -> the shape of the mask that was given."""
    lead = problem.lead
    if grad.shape[0] == 1 and int(np.prod(lead)) != 1:
        return grad
    return grad.reshape(*lead, *grad.shape[1:]).sum_to_size((1,) * (len(lead) + 3 - given.ndim) + given.shape)
