"""Statistics of attention weights: the answers, the buffers that the kernel fills, and the definitions.

The definitions (`dense_statistics`) are written from the dense weight matrix in float64 and share nothing
with the kernel: they say what every streamed statistic means, and its tests compare against them.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.compute.problem import NOTHING, Problem
from headwise.compute.request import distance_buckets

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Aux:
    """Answers to an :class:`AuxRequest`, in the caller's own kind of array; None where not asked.

    Shapes are given for input ``(..., H, n, d)``; with two-dimensional input the head axis is absent. A row
    that sees no key has lse -inf, argmax and top-k index -1 with weight 0, and NaN in every other row
    statistic; it counts as no row in means.

    Attributes:
        lse, max_weight, argmax, entropy, sum_squares, distance, sink_mass, sink_logit_mass: ``(..., H,
            n_q)``. With sink logits the weights over the keys sum to 1 - sink_logit_mass, and lse includes
            them.
        distance_histogram: ``(..., H, buckets)``, mean over the rows that see a key of their mass at distance
            0, 1, 2-3, 4-7, ...: bucket i > 0 holds [2^(i-1), 2^i). There are 1 + ceil(log2(max(n_q, n_k)))
            of them; the last one is open. NaN for a head without such rows.
        top_k_index, top_k_weight: ``(..., H, n_q, k)``, heaviest first; -1 and 0 where a row sees fewer keys.
        relative: ``(..., H, n_q, len(relative))``; 0 where that key does not exist or is not seen.
        duplicate, induction: ``(..., H, n_q)``, mass on keys that hold the query's own token at another
            place, and on keys that follow such a place (causal: earlier places only).
        duplicate_count, induction_count: ``(..., H, n_q)``, how many such keys the row sees.
        classes: ``(..., H, n_q, class_count)``, mass on each class of keys.
        received: ``(..., H, n_k)``, sum of each key's weights over all rows.
        received_count: ``(..., H, n_k)``, how many rows see the key.
        pooled: ``(..., H, ceil(n_q / b), ceil(n_k / b))``, mean over the rows of a block that see a key of
            their mass on the block of keys; NaN where no row sees one.
    """

    lse: Any = None
    max_weight: Any = None
    argmax: Any = None
    entropy: Any = None
    sum_squares: Any = None
    distance: Any = None
    distance_histogram: Any = None
    top_k_index: Any = None
    top_k_weight: Any = None
    sink_mass: Any = None
    sink_logit_mass: Any = None
    relative: Any = None
    duplicate: Any = None
    duplicate_count: Any = None
    induction: Any = None
    induction_count: Any = None
    classes: Any = None
    received: Any = None
    received_count: Any = None
    pooled: Any = None

    def asked(self) -> dict[str, Any]:
        """Name -> array of what was asked for."""
        answers = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: answer for name, answer in answers if answer is not None}

    def map(self, function: Callable[[Any], Any]) -> "Aux":
        """The same answers after ``function``, applied to each array."""
        return Aux(**{name: function(answer) for name, answer in self.asked().items()})

    def __repr__(self) -> str:
        answers = [f"{name} {tuple(answer.shape)}" for name, answer in self.asked().items()]
        return f"Aux({', '.join(answers) or 'nothing was asked for'})"


def allocate(problem: Problem) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Buffers for the answers under the names of :class:`Aux`, and the kernel's keyword arguments."""
    request, dtype = problem.request, problem.query.dtype
    if request is NOTHING:
        return {}, {}
    head = (*problem.lead, problem.heads)
    row = (*head, problem.n_q)
    answers: dict[str, NDArray[Any]] = {}
    inputs: dict[str, Any] = {}
    for name in ("lse", "max_weight", "entropy", "sum_squares", "distance", "sink_logit_mass"):
        if getattr(request, name):
            answers[name] = np.empty(row, dtype)
    if request.argmax:
        answers["argmax"] = np.empty(row, np.int64)
    if request.distance:
        buckets = distance_buckets(problem.n_q, problem.n_k)
        answers["distance_histogram"] = np.empty((*head, buckets), dtype)
    if request.top_k:
        answers["top_k_index"] = np.empty((*row, request.top_k), np.int64)
        answers["top_k_weight"] = np.empty((*row, request.top_k), dtype)
    if request.sink_mass:
        answers["sink_mass"] = np.empty(row, dtype)
        inputs["sink_keys"] = request.sink_mass
    if request.relative:
        answers["relative"] = np.empty((*row, len(request.relative)), dtype)
        inputs["offsets"] = np.array(request.relative, np.int64)
    if problem.key_tokens is not None:
        for name in ("duplicate", "induction"):
            answers[name] = np.empty(row, dtype)
            answers[f"{name}_count"] = np.empty(row, np.int64)
        inputs["key_tokens"], inputs["query_tokens"] = problem.key_tokens, problem.query_tokens
    if problem.classes is not None:
        answers["classes"] = np.empty((*row, request.class_count), dtype)
        inputs["segments"] = problem.classes
    if request.received:
        answers["received"] = np.empty((*head, problem.n_k), dtype)
        answers["received_count"] = np.empty((*head, problem.n_k), np.int64)
    if request.pooled:
        down, across = (-(-n // request.pooled) for n in (problem.n_q, problem.n_k))
        answers["pooled"] = np.empty((*head, down, across), dtype)
        inputs["pooled_block"] = request.pooled
    outputs = {KERNEL_NAMES.get(name, name): buffer for name, buffer in answers.items()}
    return answers, {**inputs, **outputs}


# The kernel takes offsets and classes as inputs, so their masses have names of their own there.
KERNEL_NAMES = {"relative": "offset_mass", "classes": "segment_mass"}
