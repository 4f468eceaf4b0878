"""Attention as one node of torch's autograd graph, for eager code."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise.compute.request import AuxRequest
from headwise.torch.operator.call import DIFFERENTIABLE, make_call
from headwise.torch.operator.custom_op import refuse_second_derivative
from headwise.torch.operator.dispatch import compute, differentiate

CARRY_GRADIENTS = ("lse", "entropy")
LSE = AuxRequest(lse=True)


def recorded(
    tensors: tuple[Tensor | None, ...], values: dict[str, Any], request: AuxRequest | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """Output and statistics, the log-sum-exp among them, recorded for the backward pass."""
    names: list[str] = []  # the forward pass fills it
    if request is None:
        request = LSE
    elif not request.lse:
        request = replace(request, lse=True)
    output, *answers = _Attend.apply(names, values, request, *tensors)
    return output, dict(zip(names, answers, strict=True))


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        names: list[str], values: dict[str, Any], request: AuxRequest, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        output, answers = compute(make_call(tensors, values), request)
        names.extend(answers)
        return output, *answers.values()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        names, ctx.values, _, *tensors = inputs
        answers = dict(zip(names, output[1:], strict=True))
        ctx.save_for_backward(*tensors, output[0], answers["lse"], answers.get("entropy"))
        ctx.names = names
        ctx.mark_non_differentiable(*(x for name, x in answers.items() if name not in CARRY_GRADIENTS))
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, output, lse, entropy = ctx.saved_tensors
        call = make_call(tensors, ctx.values)
        of = dict(zip(("output", *ctx.names), grads, strict=True))
        wanted = list(ctx.needs_input_grad[3 : 3 + len(DIFFERENTIABLE)])
        found = iter(
            differentiate(call, wanted, of["output"], of["lse"], of.get("entropy"), output, lse, entropy)
        )
        if torch.is_grad_enabled():  # create_graph=True
            found = iter(_Once.apply(list(found), *grads, *tensors))
        gradients = [next(found) if want else None for want in wanted]
        return (None, None, None, *gradients, *(None for _ in tensors[len(DIFFERENTIABLE) :]))


class _Once(torch.autograd.Function):
    """Gradients that know what they depend on, so that differentiating them is refused.

    Without these edges ``torch.autograd.grad`` would pass attention by, and leave its part out in silence.
    """

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *depends_on: Tensor | None) -> tuple[Tensor, ...]:
        return tuple(gradients)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        refuse_second_derivative()
