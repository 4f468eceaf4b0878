"""A rule, and what many rules say alike.

A rule is small and has a name. It is asked only of a function that serves what the rule needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwise.check.cases.case import Case
from headwise.check.rules.makers import maker
from headwise.check.subjects.kinds import UNIT
from headwise.check.subjects.subject import Subject
from headwise.check.verdict.findings import Finding
from headwise.check.verdict.judge import Verdict, follows, right
from headwise.plain.types import Floats

GROUP = "special cases"
Run = Callable[[Subject], Finding]


@dataclass(frozen=True)
class Rule:
    """One thing that a function has to keep.

    Attributes:
        name, group: as in the report.
        says: what it asks, in one line.
        needs: options that the function has to serve.
        run: asks it. Raises `NoAnswer` where the function gives nothing to judge.
        tried: asked also of a function that does not name what it needs: then a refusal is no fault, and
            what is wrong is a note.
    """

    name: str
    group: str
    says: str
    run: Run
    needs: frozenset[str] = frozenset()
    tried: bool = False


def plain(subject: Subject, name: str) -> Case:
    return maker("values", subject.promise)(subject.random(name), 0)


def finding(name: str, status: str, said: str = "", **more: Any) -> Finding:
    return Finding(name, GROUP, status, said, **more)


def follow(subject: Subject) -> str:
    return f"follows from {', '.join(subject.named) or subject.unexplained}"


def earlier(subject: Subject, case: Case, verdict: Verdict) -> bool:
    """Whether an earlier rule has already found what is wrong here, or has found no name for it."""
    return bool(subject.unexplained) or follows(subject, case, verdict)


def index(place: tuple[int, ...]) -> str:
    return ", ".join(f"{n} {at}" for n, at in zip(("batch", "head", "row", "feature"), place, strict=True))


def lost(subject: Subject, case: Case) -> Floats:
    """What rounding may change at each element, between two calls with the same numbers."""
    unit = UNIT["float32" if subject.dtype == "float64" else subject.dtype]
    return right(case)[1] * unit + 1e-30


def changed(verdict: Verdict) -> str:
    """The first place where two answers differ."""
    place = verdict.place or ()
    return f"{verdict.expected[place]:.6g} becomes {verdict.output[place]:.6g}"
