"""Run one checked problem: plan, let the kernel fill output and statistics, hand the statistics back."""

import headwise._core as _core
from headwise.compute.answers import records
from headwise.compute.planning import make_plan
from headwise.compute.problem import Problem
from headwise.plain.types import Array


def run(problem: Problem, output: Array | None) -> dict[str, Array]:
    """Fill ``output``; the statistics come back under the names of ``Aux``.

    Args:
        problem: checked; its value is None where ``output`` is.
        output: ``(*lead, H, n_q, d_v)``, or None for statistics only.
    """
    plan = make_plan(problem)
    options, answers = records(problem)
    _core.attend(
        problem.query,
        problem.key,
        problem.value,
        output,
        problem.mask,
        problem.scale,
        problem.is_causal,
        problem.offset,
        plan.isa,
        plan.num_threads,
        options,
        answers,
    )
    return {name: answer[0] for name, answer in answers.items()} if problem.one_head else answers
