"""What the kernel reads and fills beside the arrays of a call: a record of options and one of answers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwise.compute.problem import NOTHING, Problem
from headwise.compute.problem.rules import NO_RULES
from headwise.compute.request import COUNTS, answer_axes, distance_buckets
from headwise.plain.types import Array


def records(
    problem: Problem, make: Callable[[tuple[int, ...], Any], Array] = np.empty
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The options by name, and a buffer for each answer under its name in ``Aux``.

    Args:
        make: makes a buffer of a shape and a dtype.
    """
    request, rules = problem.request, problem.rules
    options = {} if rules is NO_RULES else rules.options()
    if request is NOTHING:
        return options, {}
    asked, n_q, n_k = request.asked(), problem.n_q, problem.n_k
    classes = 0 if problem.classes is None else request.class_count
    axes = answer_axes(asked, n_q, n_k, request.top_k, len(request.relative), classes, request.pooled)
    for name in COUNTS:
        if count := getattr(request, name):
            options[name] = count
    if request.relative:
        options["relative"] = np.array(request.relative, np.int64)
    if request.distance:
        options["buckets"] = distance_buckets(n_q, n_k)
    if problem.key_tokens is not None:
        options |= {"key_tokens": problem.key_tokens, "query_tokens": problem.query_tokens}
    if problem.classes is not None:
        options |= {"classes": problem.classes, "class_count": classes}
    head, dtype = (*problem.lead, problem.heads), problem.query.dtype
    return options, {
        name: make((*head, *lengths), np.int64 if whole else dtype) for name, lengths, whole in axes
    }
