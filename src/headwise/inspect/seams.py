"""Finding out where a model computes its attention, on a few tokens of its own text."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from headwise.inspect.capture import REGISTRY, AttentionCall, Seams, attached

Forward = Callable[[], Any]


def find_seams(model: torch.nn.Module, forward: Forward) -> Seams:
    """Where the attention of ``model`` can be heard; nothing is heard where there is none.

    Two forward passes. In the first the whole model is told to use transformers' registry: what then calls it
    belongs there. A model with an attention of its own may fail in that pass, and that says nothing. In the
    second the rest of the model runs as it was, and torch's own attention and softmax are listened to.

    Args:
        forward: runs a short forward pass of the model.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with attached(model, _ignore, seams=REGISTRY) as first, suppress(Exception):
            forward()
    modules = [first.names[number][1] for number in first.heard["registry"]]
    configs = [id(module.config) for module in modules if hasattr(module, "config")]
    registry = frozenset(configs) if len(configs) == len(modules) else None
    with attached(model, _ignore, seams=Seams(registry, sdpa=True, softmax=True)) as second:
        forward()
    with_query_and_key = second.heard["registry"] | second.heard["sdpa"]
    return Seams(
        registry=registry,
        sdpa=bool(second.heard["sdpa"]),
        softmax=bool(second.heard["softmax"] - with_query_and_key),
        not_softmax=frozenset(with_query_and_key),
    )


def _ignore(_: AttentionCall) -> None:
    pass
