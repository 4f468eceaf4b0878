"""The rules, in their order: called, dtype, shape, values, special cases, gradient.

A rule is small and has a name. It is asked only of a function that serves what the rule needs.
"""

from collections.abc import Callable
from dataclasses import dataclass

from headwise.check.subjects.subject import Subject
from headwise.check.verdict.report import Finding

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
        means, example, seen: what it is about, a tiny example with numbers, where it was met.
    """

    name: str
    group: str
    says: str
    run: Run
    needs: frozenset[str] = frozenset()
    tried: bool = False
    means: str = ""
    example: str = ""
    seen: tuple[str, ...] = ()
