"""Finding out where a model computes its attention, on a few tokens of its own text."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from headwise.inspect.capture import Attachment, AttentionCall, Seams, attached

Forward = Callable[[], Any]
EVERYWHERE = Seams(registry=None, sdpa=True, softmax=True)


def find_seams(model: torch.nn.Module, forward: Forward) -> Seams:
    """Where the attention of ``model`` can be heard; nothing is heard where there is none.

    First the whole model is told to use transformers' registry, and torch's own attention and softmax are
    listened to: most models use one of the three throughout. Only what calls the registry may be told so: a
    model with an attention of its own may then lack its mask, or fail. So where the registry was not all that
    was heard, a second pass leaves the rest of the model as it was, and says what that calls.

    Args:
        forward: runs a short forward pass of the model.
    """
    failed = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with attached(model, _ignore, seams=EVERYWHERE) as first, suppress(Exception):
            forward()
            failed = False
    registry = _configs_of(first)
    heard = first.heard
    if failed or not heard["registry"] or heard["sdpa"] or heard["softmax"] - heard["registry"]:
        with attached(model, _ignore, seams=Seams(registry, sdpa=True, softmax=True)) as second:
            forward()
        heard = second.heard
    with_query_and_key = heard["registry"] | heard["sdpa"]
    return Seams(
        registry=registry,
        sdpa=bool(heard["sdpa"]),
        softmax=bool(heard["softmax"] - with_query_and_key),
        not_softmax=frozenset(with_query_and_key),
    )


def _configs_of(attachment: Attachment) -> frozenset[int] | None:
    """The configs of the modules that called the registry; None where one of them has no config."""
    modules = [attachment.names[number][1] for number in attachment.heard["registry"]]
    configs = [id(module.config) for module in modules if hasattr(module, "config")]
    return frozenset(configs) if len(configs) == len(modules) else None


def _ignore(_: AttentionCall) -> None:
    pass
