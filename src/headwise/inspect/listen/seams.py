"""Finding out where a model computes its attention, on a few tokens of its own text."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen.attachment import Attachment, Seams
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.intercept import TORCH_IS_CHANGED

Forward = Callable[[], Any]
EVERYWHERE = Seams(registry=None, sdpa=True, softmax=True)


@dataclass(frozen=True)
class Heard:
    """A forward pass that was listened to.

    Attributes:
        seams: where to listen.
        calls: what was heard there.
        output: of the model.
    """

    seams: Seams
    calls: list[AttentionCall] = field(default_factory=list)
    output: Any = None


def listen(model: torch.nn.Module, forward: Forward, compute: str = "torch") -> Heard:
    """Find out where the attention of ``model`` can be heard, and hear one pass there.

    First the whole model is told to use transformers' registry, and torch's own attention and softmax are
    listened to: most models use one of the three throughout. Only what calls the registry may be told so: a
    model with an attention of its own may then lack its mask, or fail. So where the registry was not all that
    was heard, a second pass leaves the rest of the model as it was, and says what that calls; a third one
    listens there alone.

    Args:
        forward: runs a short forward pass of the model.
        compute: who computes its output, as for ``attached``.

    Returns:
        Heard, with no calls and nowhere to listen where there is no attention.
    """
    calls: list[AttentionCall] = []
    output, failed = None, True
    with TORCH_IS_CHANGED, warnings.catch_warnings():  # which is not made for several threads either
        warnings.simplefilter("ignore")
        with attached(model, calls.append, compute=compute, seams=EVERYWHERE) as first, suppress(Exception):
            output = forward()
            failed = False
    registry = _configs_of(first)
    heard = first.heard
    if not failed and heard["registry"] and not heard["sdpa"] and not heard["softmax"]:
        return Heard(Seams(registry, not_softmax=frozenset(heard["registry"])), calls, output)
    if failed or not heard["registry"] or heard["sdpa"] or heard["softmax"] - heard["registry"]:
        with attached(model, _ignore, seams=Seams(registry, sdpa=True, softmax=True)) as second:
            forward()
        heard = second.heard
    with_query_and_key = heard["registry"] | heard["sdpa"]
    seams = Seams(
        registry=registry,
        sdpa=bool(heard["sdpa"]),
        softmax=bool(heard["softmax"] - with_query_and_key),
        not_softmax=frozenset(with_query_and_key),
    )
    calls = []
    with attached(model, calls.append, compute=compute, seams=seams):
        output = forward()
    return Heard(seams, calls, output)


def _configs_of(attachment: Attachment) -> frozenset[int] | None:
    """The configs of the modules that called the registry; None where one of them has no config."""
    modules = [attachment.names[number][1] for number in attachment.heard["registry"]]
    configs = [id(module.config) for module in modules if hasattr(module, "config")]
    return frozenset(configs) if len(configs) == len(modules) else None


def _ignore(_: AttentionCall) -> None:
    pass
