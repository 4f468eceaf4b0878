"""The rule on the weights of a torch layer: what shows in them before anything runs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from headwise.check.subjects import frameworks
from headwise.check.subjects.subject import Subject
from headwise.check.subjects.torch_weights import LayerWeights
from headwise.check.verdict.report import FAILED, PASSED, Finding


def judge_weights(layer: LayerWeights, subject: Subject) -> Finding:
    """What shows in the weights themselves, before anything runs."""
    rule, group = "weights", "layer"
    if layer.is_shared():
        shape = tuple(layer.matrix("q").shape)
        return Finding(
            rule,
            group,
            FAILED,
            "all heads share one projection: the input is split before it is projected",
            fault="one projection for all heads",
            repair="project the whole input, then split",
            evidence=f"W_Q is {shape} in a layer of width {layer.width()} with {layer.heads} heads",
            seen=("MarcoMeter/episodic-transformer-memory-ppo#22",),
        )
    own = dict(layer.original.named_parameters(remove_duplicate=False))
    if "qkv" not in layer.roles:
        q, k, v = (own[layer.roles[role][0]] for role in "qkv")
        if q is k or q is v or k is v:
            what = (
                "query, key and value share one parameter"
                if q is k and k is v
                else "two projections are one parameter"
            )
            return Finding(
                rule,
                group,
                FAILED,
                what,
                fault="one projection for q, k and v",
                repair="each has a weight of its own",
            )
    if layer.heads > 1 and _heads_alike(layer, own):
        return Finding(
            rule,
            group,
            FAILED,
            "all heads start with the same weights, and so stay alike in training",
            fault="identical heads",
            repair="draw the weights of every head on their own",
        )
    if "o" not in layer.roles and layer.heads > 1:
        return Finding(
            rule,
            group,
            FAILED,
            "there is no output projection: nothing mixes the heads",
            fault="no output projection",
            repair="multiply the concatenation by W_O; if it lives in another "
            "module: Contract(notes={'weights'})",
        )
    return Finding(rule, group, PASSED)


def _heads_alike(layer: LayerWeights, own: Mapping[str, Any]) -> bool:
    """Whether W_Q of every head holds the same numbers, and not only zeros."""
    names = layer.roles["qkv" if "qkv" in layer.roles else "q"]
    matrix = np.concatenate(
        [
            frameworks.take(own[name]) if name.endswith("weight") else frameworks.take(own[name]).T
            for name in names
        ]
    )
    if "qkv" in layer.roles:
        matrix = matrix[: matrix.shape[0] * layer.heads // (layer.heads + 2 * layer.kv_heads)]
    if matrix.shape[0] % layer.heads:
        return False
    parts = matrix.reshape(layer.heads, -1, matrix.shape[1])
    return bool(matrix.any() and (parts == parts[:1]).all() and not (matrix == matrix.flat[0]).all())
