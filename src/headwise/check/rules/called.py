"""Finds out how a function wants its arrays: kind, dtype and layout, by trying."""

from dataclasses import dataclass

from headwise.check.rules.makers import maker
from headwise.check.rules.rule import Rule
from headwise.check.subjects.contract import LAYOUTS, Contract
from headwise.check.subjects.kinds import KINDS, installed, kinds_for
from headwise.check.subjects.subject import HANGS, NoAnswer, Subject
from headwise.check.verdict.findings import FAILED, NOTE, PASSED, Finding
from headwise.check.verdict.judge import diagnose, judge

_FULL = ("bhnd", "bnhd", "bne")
_SMALL = ("bnd", "hnd", "nd")
_ACROSS = "attends across heads"


@dataclass(frozen=True)
class Way:
    """One way to call the function, and what came of it: 0 right, 1 a known mistake, 2 some other answer."""

    kind: str
    layout: str
    dtype: str
    rank: int


def choose(subject: Subject) -> Finding:
    """Sets kind, layout and dtype of the subject to the first way that is right, or else the best one."""
    contract = subject.contract
    kinds = kinds_for(subject.fn) if contract.kind is None else [contract.kind]
    if contract.kind is not None and not installed(contract.kind):
        return Finding("called", "called", FAILED, f"{contract.kind} is not installed")
    layouts = _layouts(subject, contract)
    ways: list[Way] = []
    refusals: list[NoAnswer] = []
    for kind in kinds:
        for layout in layouts:
            if layout in _SMALL and any(way.layout in _FULL for way in ways):
                continue  # it takes four axes: what they hold is judged there
            way = _try(subject, kind, layout, refusals)
            if way is not None:
                ways.append(way)
            if way is not None and way.rank == 0:
                break
            if refusals and refusals[-1].kind == "hangs":
                return _refused(refusals[-1:])
        if ways or any(refusal.kind == "output" or refusal.arguments for refusal in refusals):
            break  # a kind that runs is the kind that is meant
    if not ways:
        return _refused(refusals)
    best = min(ways, key=lambda way: way.rank)
    subject.kind, subject.layout, subject.dtype = best.kind, best.layout, best.dtype
    subject.changed.clear()
    remarks = sorted(subject.remarks)
    if remarks:
        return Finding("called", "called", NOTE, remarks[0], repair="Contract(call=...) picks another item")
    return Finding("called", "called", PASSED)


def _layouts(subject: Subject, contract: Contract) -> tuple[str, ...]:
    if contract.layout is not None:
        return (contract.layout,)
    if "heads" in subject.signature.options:  # it splits the heads itself
        return ("bne", "bhnd", "bnhd")
    grouped = "gqa" in contract.always or contract.call is not None
    return _FULL[:2] if grouped else (*_FULL[:2], *_SMALL)


def _try(subject: Subject, kind: str, layout: str, refusals: list[NoAnswer]) -> Way | None:
    subject.kind, subject.layout = kind, layout
    make = maker("values", subject.promise)
    case = make(subject.random("called"), 0)
    for dtype in KINDS[kind].dtypes()[:2]:
        subject.dtype = dtype
        try:
            answer = subject.run(case)
            verdict = judge(subject, case, answer.output)
        except NoAnswer as refusal:
            refusals.append(refusal)
            if refusal.kind == "hangs":
                return None
            continue
        if verdict.ok:
            return Way(kind, layout, dtype, 0)
        named = diagnose(subject, make, "called", case, verdict)
        misread = named is not None and layout == "bnhd" and named.key == _ACROSS  # it takes (B, H, n, d)
        return Way(kind, layout, dtype, 2 if named is None or misread else 1)
    return None


def _refused(refusals: list[NoAnswer]) -> Finding:
    """The refusal that tells most: of the first way tried, unless that one was only about a shape."""
    first = next((one for one in refusals if one.kind == "hangs"), refusals[0])
    repair = {
        "hangs": "look for an endless loop; --time-limit gives more time",
        "raised": "Contract(call=lambda fn, case: ...) says how it is called",
        "output": "return one array",
    }[first.kind]
    fault = HANGS if first.kind == "hangs" else ""
    return Finding("called", "called", FAILED, first.what, fault=fault, repair=repair, where=first.where)


CALLED = Rule("called", "called", "the function runs and returns an array", choose)


def manner(subject: Subject) -> str:
    """How the function was called: ``NumPy float64, (B, H, n, d); options: mask, causal``."""
    served = sorted(subject.declared)
    said = f"{subject.framework.title} {subject.dtype}, {LAYOUTS[subject.layout]}"
    return f"{said}; options: {', '.join(served)}" if served else said
