"""Who computes: the native kernel or the tiled torch code, forward and backward. Nothing here records."""

import numpy as np
import torch
from torch import Tensor

from headwise.compute.problem import Problem
from headwise.compute.request import AuxRequest
from headwise.compute.running import run
from headwise.torch.operator.call import DIFFERENTIABLE, Call
from headwise.torch.tiled.passes import Upstream, Wanted, backward, forward
from headwise.torch.tiled.statistics import statistics


def compute(call: Call, request: AuxRequest | None = None) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and statistics.

    Args:
        request: the statistics; None means those that the call names, and the log-sum-exp.
    """
    call.check()
    output = call.query.new_empty((*call.query.shape[:-1], call.value.shape[-1]))
    run_on = _run_kernel if call.on_kernel() else _run_tiles
    return output, run_on(call.wide(), output, request)


@torch.no_grad()
def differentiate(
    call: Call,
    wanted: list[bool],
    grad_output: Tensor | None,
    grad_lse: Tensor | None,
    grad_entropy: Tensor | None,
    output: Tensor,
    lse: Tensor,
    entropy: Tensor | None,
) -> list[Tensor]:
    """Gradients of those of ``DIFFERENTIABLE`` that are wanted, in their order.

    The one place that decides who computes them: the tiled torch code, on every device.

    Args:
        wanted: one for each of ``DIFFERENTIABLE``.
        grad_output, grad_lse, grad_entropy: what flows back into the answers; None is 0.
        output, lse, entropy: the answers; entropy only where it has a gradient.
    """
    given = [getattr(call, name) for name in DIFFERENTIABLE]
    call = call.wide()
    problem = call.problem()
    tiles = call.tiles(problem)
    shape = tiles.row_shape

    def rows(x: Tensor | None, *width: int) -> Tensor | None:
        return None if x is None else x.detach().to(tiles.dtype).reshape(*shape, *width)

    if grad_output is None:
        grad_output = torch.zeros_like(output)
    upstream = Upstream(
        rows(output, tiles.d_v),
        rows(lse),
        rows(grad_output, tiles.d_v),
        rows(grad_lse),
        rows(entropy),
        rows(grad_entropy),
    )
    wants = Wanted(*wanted)
    masks = ((call.attn_mask, wants.mask), (call.attn_bias, wants.bias))
    added = [want for array, want in masks if array is not None and array.dtype != torch.bool]
    grads = backward(tiles, upstream, wants, added)
    of_added = iter(grads.added)
    mask, bias = (
        next(of_added) if array is not None and array.dtype != torch.bool else None for array, _ in masks
    )
    found = (grads.query, grads.key, grads.value, mask, bias, grads.alibi_slopes, grads.sinks)
    answers = []
    for name, want, grad, array in zip(DIFFERENTIABLE, wanted, found, given, strict=True):
        if not want:
            continue
        if grad is None:  # no logits at all
            grad = array.new_zeros(array.shape)
        elif name == "alibi_slopes":
            grad = grad.reshape(*problem.lead, problem.heads).sum_to_size(array.shape)
        elif name in ("attn_mask", "attn_bias"):
            grad = _unflattened(grad, array, problem)
        answers.append(grad.reshape(array.shape).to(array.device, array.dtype))
    return answers


def _run_kernel(call: Call, output: Tensor, request: AuxRequest | None) -> dict[str, Tensor]:
    """The native kernel on the tensors' own memory, half precision on its float32 image."""
    problem = call.problem(request)
    into = (
        output if output.dtype == call.query.dtype else output.new_empty(output.shape, dtype=call.query.dtype)
    )
    view = into.numpy()
    answers = run(problem, view[None] if problem.one_head else view)
    if into is not output:
        output.copy_(into)
    return {name: torch.from_numpy(np.ascontiguousarray(answer)) for name, answer in answers.items()}


def _run_tiles(call: Call, output: Tensor, request: AuxRequest | None) -> dict[str, Tensor]:
    problem = call.problem(request)
    tiles = call.tiles(problem)
    rows = forward(tiles)
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
