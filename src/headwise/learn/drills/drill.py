"""Exercises without end: ``make_drill`` gives a question, its computed answer, a grader and a solution."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.learn.curriculum import LEVELS
from headwise.learn.drills import levels_1_to_3, levels_4_to_5
from headwise.learn.drills.draft import Draft, Maker
from headwise.learn.drills.grading import Grade, grade_choice, grade_numbers
from headwise.trace.data import Trace

MAKERS: dict[int, tuple[Maker, ...]] = {**levels_1_to_3.MAKERS, **levels_4_to_5.MAKERS}


@dataclass(frozen=True)
class Drill:
    """One exercise.

    Attributes:
        level, seed: what it was made from; the same pair gives the same exercise.
        kind: what it trains, in words.
        question: the text, with the tolerance in it; several lines.
        answer: the right answer as it may be typed.
        expected: the answer as numbers; empty for a choice.
        tolerance: how far each number may be off.
        choices: letter -> text, for a choice.
        notes: how to get there, in a line or two.
        trace: the forward pass that the answer was read off, or None.
    """

    level: int
    seed: int
    kind: str
    question: str
    answer: str
    expected: tuple[float, ...]
    tolerance: float
    choices: dict[str, str] = field(default_factory=dict)
    notes: str = ""
    trace: Trace | None = None

    @property
    def solution(self) -> str:
        """How to get there, with every number: the notes, and the trace where there is one; several lines."""
        return "\n".join(part for part in (self.notes, "" if self.trace is None else str(self.trace)) if part)

    def grade(self, text: str) -> Grade:
        """Is ``text`` the right answer? Never raises for text, whatever it holds."""
        if self.choices:
            return grade_choice(text, self.answer, self.choices)
        return grade_numbers(text, self.expected, self.tolerance)


def make_drill(level: int, seed: int) -> Drill:
    """The exercise of this level and seed.

    Args:
        level: 1 (recognise) to 5 (judge).
        seed: a whole number of at least 0.

    Raises:
        HeadwiseError: another level or seed.

    >>> drill = make_drill(1, 0)
    >>> drill.grade(drill.answer).right
    True
    """
    for name, value, expected, fits in (
        ("level", level, "a whole number from 1 to 5", lambda v: v in LEVELS),
        ("seed", seed, "a whole number of at least 0", lambda v: v >= 0),
    ):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole or not fits(value):
            raise HeadwiseError(name, expected, repr(value)[:60])
    rng = np.random.default_rng([int(level), int(seed)])
    makers = MAKERS[level]
    draft = makers[int(rng.integers(len(makers)))](rng)
    return Drill(level=int(level), seed=int(seed), **_finished(draft))


def _finished(draft: Draft) -> dict[str, Any]:
    """The question with its choices or its tolerance, and the answer as text."""
    if draft.choices:
        letters = dict(zip("abcdefgh", draft.choices, strict=False))
        answer = next(letter for letter, choice in letters.items() if choice == draft.right)
        lines = [draft.question, *(f"  {letter}) {choice}" for letter, choice in letters.items())]
        return {
            "kind": draft.kind,
            "question":
            "\n".join(lines),
            "answer": answer,
            "expected": (),
            "tolerance": 0.0,
            "choices": letters, "notes": draft.notes, "trace": draft.trace,
        }  # fmt: skip
    exact = draft.tolerance == 0
    one = len(draft.expected) == 1
    allowed = f"{'it' if one else 'each number'} may be off by {draft.tolerance:g}"
    if exact:
        allowed = "a whole number, exact" if one else "whole numbers, exact"
    answer = ", ".join(str(int(v)) if exact else f"{v:.6f}" for v in draft.expected)
    return {
        "kind": draft.kind,
        "question":
        f"{draft.question} ({allowed})",
        "answer": answer,
        "expected": draft.expected,
        "tolerance": draft.tolerance, "notes": draft.notes, "trace": draft.trace,
    }  # fmt: skip
