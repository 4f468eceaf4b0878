"""Run one checked problem: plan, let the kernel fill output and statistics, hand the statistics back."""

from typing import Any

from numpy.typing import NDArray

import headwise._core as _core
from headwise.compute.answers import allocate
from headwise.compute.planning import make_plan
from headwise.compute.problem import Problem
from headwise.compute.problem.rules import NO_RULES


def run(problem: Problem, output: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Fill ``output``; the statistics come back under the names of ``Aux``.

    Args:
        problem: checked; its value is None where ``output`` is.
        output: ``(*lead, H, n_q, d_v)``, or None for statistics only.
    """
    plan = make_plan(problem)
    answers, arguments = allocate(problem)
    if problem.rules is not NO_RULES:
        arguments |= problem.rules.arguments()
    _core.attend(
        problem.query,
        problem.key,
        problem.value,
        output,
        problem.mask,
        scale=problem.scale,
        is_causal=problem.is_causal,
        query_offset=problem.offset,
        isa=plan.isa,
        num_threads=plan.num_threads,
        **arguments,
    )
    return {name: answer[0] for name, answer in answers.items()} if problem.one_head else answers
