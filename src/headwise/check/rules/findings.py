"""What the rules on special cases and on memory share."""

from typing import Any

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.rules import makers
from headwise.check.subjects import frameworks
from headwise.check.subjects.subject import Subject
from headwise.check.verdict.judge import Verdict, follows, right
from headwise.check.verdict.report import Finding

Array = np.ndarray[Any, Any]
GROUP = "special cases"


def plain(subject: Subject, name: str) -> Case:
    return makers.maker("values", subject.promise)(subject.random(name), 0)


def finding(name: str, status: str, said: str = "", **more: Any) -> Finding:
    return Finding(name, GROUP, status, said, **more)


def follow(subject: Subject) -> str:
    return f"follows from {', '.join(subject.named) or subject.unexplained}"


def earlier(subject: Subject, case: Case, verdict: Verdict) -> bool:
    """Whether an earlier rule has already found what is wrong here, or has found no name for it."""
    return bool(subject.unexplained) or follows(subject, case, verdict)


def index(place: tuple[int, ...]) -> str:
    return ", ".join(f"{n} {at}" for n, at in zip(("batch", "head", "row", "feature"), place, strict=True))


def lost(subject: Subject, case: Case) -> Array:
    """What rounding may change at each element, between two calls with the same numbers."""
    unit = frameworks.unit("float32" if subject.dtype == "float64" else subject.dtype)
    return right(case)[1] * unit + 1e-30


def changed(verdict: Verdict) -> str:
    """The first place where two answers differ."""
    place = verdict.place or ()
    return f"{verdict.expected[place]:.6g} becomes {verdict.output[place]:.6g}"
