"""One answer against the specification, and the mistake that explains a wrong one.

A mistake is named only if its output is the function's own within the rounding that is allowed, every other
known mistake is ten times farther away, and fresh numbers in another shape agree.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.check.cases.case import Case, allowed, expected
from headwise.check.cases.chain import Fault, attend, averaging
from headwise.check.cases.layer_case import LayerCase, LayerFault, attend_layer, expected_layer
from headwise.check.faults import FAULTS, LAYER_FAULTS
from headwise.check.subjects.kinds import UNIT
from headwise.check.subjects.subject import NoAnswer, Subject
from headwise.check.verdict import readout
from headwise.plain.types import Array

AnyCase = Case | LayerCase
Mistake = Fault | LayerFault
Make = Callable[[np.random.Generator, int], AnyCase]
FARTHER = 10.0
_HIDING = frozenset({"mask", "padding", "causal", "window"})
_SAME = 1e-9  # two mistakes whose outputs agree to this are the same mistake


@dataclass(frozen=True)
class Verdict:
    """An answer beside the right one.

    Attributes:
        error, allowed: the largest difference, and what was allowed where it is worst.
        place: index of the first element that is wrong.
    """

    ok: bool
    error: float
    allowed: float
    output: Array
    expected: Array
    lost: Array
    place: tuple[int, ...] | None = None

    @property
    def where(self) -> str:
        """``batch 0, head 1, row 2, feature 0``."""
        if self.place is None:
            return ""
        names = ("batch", "head", "row", "feature") if len(self.place) == 4 else ("batch", "row", "feature")
        return ", ".join(f"{name} {at}" for name, at in zip(names, self.place, strict=True))

    @property
    def measured(self) -> dict[str, Any]:
        """The fields of a `Finding` that an answer gives."""
        return {"error": self.error, "allowed": self.allowed, "where": self.where}

    @property
    def evidence(self) -> str:
        """What was expected there and what came."""
        if self.place is None:
            return ""
        expected, got = self.expected[self.place], self.output[self.place]
        return f"expected {expected:.6g}, got {got:.6g}"


@dataclass(frozen=True)
class Diagnosis:
    """The mistakes that explain an answer; more than one where they are the same by arithmetic."""

    mistakes: tuple[Mistake, ...]
    evidence: str = ""
    averages: bool = False  # a row left without keys holds the mean of all

    @property
    def key(self) -> str:
        return self.mistakes[0].key


def right(case: AnyCase) -> tuple[Array, Array]:
    """The right output, and what may be lost at each element at unit roundoff 1."""
    if isinstance(case, LayerCase):
        return expected_layer(case)
    output, weights = expected(case)
    return output, allowed(case, weights, 1.0)


def judge(subject: Subject, case: AnyCase, output: Array, unit: float | None = None) -> Verdict:
    """The answer beside the right one. ``unit``: unit roundoff; None: that of float32, or coarser."""
    expected, lost = right(case)
    unit = max(UNIT[subject.dtype], UNIT["float32"]) if unit is None else unit
    return compare(output, expected, lost * unit + 1e-30)


def compare(output: Array, expected: Array, allowed: Array) -> Verdict:
    """Element by element."""
    if output.shape != expected.shape:
        named = f"the output has shape {output.shape}, {expected.shape} is right"
        raise NoAnswer(named + " (in the order batch, head, row, feature)" * (expected.ndim == 4))
    with np.errstate(invalid="ignore"):
        difference = np.abs(output - expected)
    wrong = ~(difference <= allowed)
    if not difference.size:
        return Verdict(True, 0.0, 0.0, output, expected, allowed)
    excess = np.where(np.isfinite(difference), difference / np.maximum(allowed, 1e-300), np.inf)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    place = tuple(int(at) for at in np.argwhere(wrong)[0]) if wrong.any() else None
    return Verdict(
        place is None, float(difference[worst]), float(allowed[worst]), output, expected, allowed, place
    )


def candidates(
    subject: Subject, case: AnyCase, known: Iterable[Mistake], averages: bool = False
) -> list[tuple[Mistake, Array]]:
    """The outputs that the mistakes would give here; those that cannot be made in this shape are left out."""
    made = []
    base = subject.base.exchange({"hidden": averaging}) if averages else subject.base
    with np.errstate(all="ignore"):
        for mistake in known:
            try:
                if isinstance(case, LayerCase):
                    output = attend_layer(case, mistake, base, subject.mistake)
                elif isinstance(mistake, Fault):
                    output = attend(case, base.exchange(mistake.changes))
                else:
                    continue
            except (ValueError, IndexError, TypeError, AttributeError):  # no such output in this shape
                continue
            made.append((mistake, output))
    return made


def known(case: AnyCase) -> list[Mistake]:
    """Every mistake that has a meaning for the case, the most special first."""
    has = case.has()
    found: tuple[Mistake, ...] = (*LAYER_FAULTS, *FAULTS) if isinstance(case, LayerCase) else FAULTS
    return sorted((one for one in found if one.needs <= has), key=lambda one: -len(one.needs))


def diagnose(subject: Subject, make: Make, name: str, case: AnyCase, verdict: Verdict) -> Diagnosis | None:
    """The mistake that explains the verdict, confirmed by fresh numbers, or None."""
    if np.isfinite(verdict.output).all(-1).mean() < 0.5:
        return None
    found = _match(subject, case, verdict, known(case))
    if found is not None and all(_agrees(subject, make, name, again, found) for again in (1, 2)):
        return Diagnosis(found)
    if case.has() & _HIDING:
        found = _match(subject, case, verdict, known(case), True)
        if found is not None and all(_agrees(subject, make, name, again, found, True) for again in (1, 2)):
            return Diagnosis(found, averages=True)
    if isinstance(case, Case) and np.isfinite(verdict.output).all():
        return _read_out(subject, make, name, case, verdict)
    return None


def follows(subject: Subject, case: AnyCase, verdict: Verdict) -> bool:
    """Whether the mistakes that were already named explain the answer."""
    if not subject.named or np.isfinite(verdict.output).all(-1).mean() < 0.5:
        return False
    try:
        with np.errstate(all="ignore"):
            if isinstance(case, LayerCase):
                made = attend_layer(case, None, subject.base, subject.mistake)
            else:
                made = attend(case, subject.base)
    except (ValueError, IndexError):  # no such output in this shape
        return False
    return bool(made.shape == verdict.output.shape and _far(made, verdict) <= 1)


def _match(
    subject: Subject, case: AnyCase, verdict: Verdict, tried: Iterable[Mistake], averages: bool = False
) -> tuple[Mistake, ...] | None:
    made = candidates(subject, case, tried, averages)
    made = [(one, out) for one, out in made if out.shape == verdict.output.shape]
    made = [(one, out) for one, out in made if not _same(out, verdict.expected)]
    near = [(_far(out, verdict), one, out) for one, out in made]
    near.sort(key=lambda entry: entry[0])
    if not near or near[0][0] > 1:
        return None
    best = near[0][2]
    same = [one for _, one, out in near if _same(out, best)]
    others = [far for far, _, out in near if not _same(out, best)]
    if others and min(others) < FARTHER:
        return None
    return tuple(sorted(same, key=lambda one: -len(one.needs)))


def _far(output: Array, verdict: Verdict) -> float:
    """Largest distance from the function's answer, in units of what may be lost."""
    rows = np.isfinite(verdict.output).all(-1)
    if not rows.all():  # NaN explains itself where the mistake leaves a row without keys
        if output.ndim == 4 and output[~rows].any():
            return np.inf
        found, output = verdict.output[rows], output[rows]
    else:
        found = verdict.output
    size = max(np.abs(output).max(initial=0), np.abs(found).max(initial=0), 1e-30)
    usual = max(np.abs(verdict.expected).max(initial=0), 1e-30)
    allowed = verdict.lost.max(initial=1e-30) * max(size / usual, 1.0) * 4
    with np.errstate(all="ignore"):
        distance = np.abs(output - found).max(initial=0)
    return float(distance / allowed) if np.isfinite(distance) else np.inf


def _same(a: Array, b: Array) -> bool:
    size = max(np.abs(a).max(initial=0), np.abs(b).max(initial=0), 1.0)
    return bool(np.abs(a - b).max(initial=0) <= _SAME * size)


def _agrees(
    subject: Subject, make: Make, name: str, again: int, found: tuple[Mistake, ...], averages: bool = False
) -> bool:
    """Fresh numbers, in another shape where the case has one: one of the mistakes found explains them too."""
    case = make(subject.random(name, again), again)
    try:
        answer = subject.run(case)
        verdict = judge(subject, case, answer.output)
    except NoAnswer:
        return again == 2  # another shape is not served; the first fresh numbers must agree
    made = candidates(subject, case, found, averages)
    return any(out.shape == verdict.output.shape and _far(out, verdict) <= 1 for _, out in made)


def _read_out(subject: Subject, make: Make, name: str, case: Case, verdict: Verdict) -> Diagnosis | None:
    """Mistakes with a number or a pattern in them, measured rather than looked up."""
    for measure in readout.MEASURES:
        found = measure(subject, case)
        if found is None or _match(subject, case, verdict, [found.mistake]) is None:
            continue
        fresh = make(subject.random(name, 1), 1)
        assert isinstance(fresh, Case)
        again = measure(subject, fresh)
        if again is None or not found.agrees(again):
            continue
        try:
            second = judge(subject, fresh, subject.run(fresh).output)
        except NoAnswer:
            continue
        if _match(subject, fresh, second, [again.mistake]) is not None:
            return Diagnosis((found.mistake,), found.evidence)
    return None
