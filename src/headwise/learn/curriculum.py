"""What the book is made of: plain frozen data. Every number in it is computed when the book is made."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

LEVELS = (1, 2, 3, 4, 5)
KINDS = ("true or false", "spot the error", "why", "edge case", "self-test")


@dataclass(frozen=True)
class Lesson:
    """One lesson.

    Attributes:
        key: "A" to "I" for the worked examples, a word for the others.
        title, claim: its name, and what it shows in one sentence.
        text: paragraphs.
        formula: the formula it is about, plain text.
        table: (name, number as text) pairs.
        numbers: the same and more as floats and lists, for tests and for the page.
        lab: what the reader can move: {"kind": ..., ...}, or None.
        figure: key of a figure, or "".
    """

    key: str
    title: str
    claim: str
    text: tuple[str, ...] = ()
    formula: str = ""
    table: tuple[tuple[str, str], ...] = ()
    numbers: dict[str, Any] = field(default_factory=dict)
    lab: dict[str, Any] | None = None
    figure: str = ""


@dataclass(frozen=True)
class Exercise:
    """One exercise: what it asks, and its answer with the numbers in it.

    ``lesson`` is the key of the lesson to read first; ``numbers`` holds the answer as numbers.
    """

    key: str
    level: int
    title: str
    question: str
    answer: tuple[str, ...]
    numbers: dict[str, Any]
    lesson: str
    figure: str = ""


@dataclass(frozen=True)
class Question:
    """One question of the bank.

    Attributes:
        key: stays the same for the same question; progress is remembered under it.
        kind: one of ``KINDS``.
        text: the question or the claim.
        choices: possible answers; the first is right.
        reason: why, in a sentence or two.
        evidence: the numbers that show it.
        lesson: key of the lesson that teaches it.
    """

    key: str
    kind: str
    text: str
    choices: tuple[str, ...]
    reason: str
    evidence: str
    lesson: str

    @property
    def answer(self) -> str:
        return self.choices[0]


def plain(value: Any) -> Any:
    """Arrays, tuples and NumPy numbers as JSON would hold them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return value
