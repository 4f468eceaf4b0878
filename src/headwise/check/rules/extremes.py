"""The rules on special cases: rows that see no key, hidden NaN and infinity, scores that overflow."""

from dataclasses import replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case, expected
from headwise.check.cases.chain import RIGHT
from headwise.check.rules import makers
from headwise.check.rules.rule import GROUP, Rule, Run, finding, follow, index, lost, plain
from headwise.check.subjects.subject import Subject
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOT_OFFERED, NOTE, PASSED, Finding
from headwise.check.verdict.judge import Verdict, compare, follows, judge, right
from headwise.plain.types import Array

_LARGE_KEY = 20.0  # scores near 60: beyond them even a right mask after the softmax underflows
_SIGHT = ("causal", "windowed", "masked", "padded", "combined", "hidden", "weighed", "capped")
NO_MAXIMUM = "no maximum subtracted"


def _empty_rows(subject: Subject) -> Finding:
    name = "empty rows"
    case = makers.maker("mask", subject.promise)(subject.random(name), 0)
    mask = case.mask.copy()
    mask[0, :, 1] = False
    case = replace(case, mask=mask)
    output = subject.run(case).output
    row, wanted = output[0, :, 1], subject.contract.empty_rows
    values = case.value.repeat(case.group, 1)
    mean = values[0].mean(-2)
    found = {
        "zero": not row.any(),
        "nan": bool(np.isnan(row).all()),
        "mean": bool(np.allclose(row, mean, rtol=1e-4, atol=1e-5)),
    }
    what = {
        "zero": "a row that sees no key holds 0",
        "nan": "a row that sees no key holds NaN: softmax of nothing but minus infinity is 0/0",
        "mean": "a row that sees no key averages all values: hidden scores are filled with -1e9 or so",
    }
    held = next((kind for kind, is_it in found.items() if is_it), None)
    if wanted == "any" or held == wanted:
        shown = f"{row[0, 0]:.4g}"
        return finding(
            name,
            PASSED if held == "zero" or wanted != "any" else NOTE,
            "" if held == "zero" or wanted != "any" else what.get(held or "", f"holds {shown}"),
        )
    if held is None and _sees_more(subject):
        return finding(name, FOLLOWS, follow(subject))
    key = {"nan": "NaN in empty rows", "mean": "fill -1e9", "zero": "empty rows are 0"}.get(held or "", "")
    said = what[held] if held else "a row that sees no key holds neither 0 nor a mean"
    repair = {
        "zero": "give 0 for a row that sees no key: where(any key seen, softmax, 0)",
        "mean": "the contract has the mean of all values here",
        "nan": "the contract has NaN here",
    }[wanted]
    evidence = f"batch 0, head 0, row 1: {' '.join(f'{number:.4g}' for number in row[0][:4])} \u2026"
    seen = ("pytorch/pytorch#103963", "NVIDIA/apex#1390", "Xilinx/brevitas#1591")
    return finding(
        name,
        FAILED,
        said,
        fault=key,
        repair=repair,
        evidence=evidence,
        where="batch 0, head 0, row 1",
        seen=seen,
    )


def _hiding(subject: Subject, name: str) -> tuple[Case, Any]:
    """A case, and which of its keys (B, n_k) some rows do not see: only those rows are compared."""
    served = subject.declared
    make = "mask" if "mask" in served else "padding" if "padding" in served else "causal"
    case = makers.maker(make, subject.promise)(subject.random(name), 0)
    if make == "mask":
        mask = case.mask.copy()
        mask[..., 2] = False
        mask[..., 0] |= ~mask.any(-1)
        return replace(case, mask=mask), np.arange(case.n_k) == 2
    return case, np.arange(case.n_k) == case.n_k - 1


def _poison(name: str, numbers: tuple[float, ...]) -> Run:
    """Hidden keys and values are replaced; rows that do not see them must not change."""

    def run(subject: Subject) -> Finding:
        case, hidden = _hiding(subject, name)
        unseen: Any = ~(expected(case)[1][..., hidden] > 0).any(-1)
        before = subject.run(case).output
        allowed = lost(subject, case)
        for where in ("value", "key"):
            for given in numbers:
                number = _LARGE_KEY if where == "key" and np.isfinite(given) else given
                poisoned = getattr(case, where).copy()
                poisoned[:, :, hidden[case.n_past :]] = number
                after = subject.run(replace(case, **{where: poisoned})).output
                with np.errstate(invalid="ignore"):
                    wrong: Array = ~(np.abs(after - before) <= allowed) & unseen[..., None]
                if (
                    wrong.any()
                    and _sees_more(subject)
                    and follows(subject, case, judge(subject, case, before))
                ):
                    return finding(name, FOLLOWS, follow(subject))
                if wrong.any():
                    place = tuple(int(at) for at in np.argwhere(wrong)[0])
                    said = _leak(where, number)
                    keep = "select hidden scores and values away; 0 times NaN is NaN"
                    repair = _BEFORE if np.isfinite(number) else keep
                    evidence = (
                        f"hidden {where} set to {number:g}: {before[place]:.4g} becomes {after[place]:.4g}"
                    )
                    seen = (
                        ()
                        if np.isfinite(number)
                        else ("pytorch/pytorch#101967", "Dao-AILab/flash-attention#1745")
                    )
                    return finding(
                        name,
                        FAILED,
                        said,
                        fault=f"hidden {where} leaks",
                        repair=repair,
                        evidence=evidence,
                        where=index(place),
                        seen=seen,
                    )
        return finding(name, PASSED)

    return run


_BEFORE = "set hidden scores to minus infinity before the softmax"


def _sees_more(subject: Subject) -> bool:
    """Whether a mistake that was named lets rows see keys that they should not."""
    return any(getattr(subject.base, step) is not getattr(RIGHT, step) for step in _SIGHT)


def _leak(where: str, number: float) -> str:
    if np.isfinite(number):
        return f"what a hidden {where} holds reaches the output"
    return f"NaN or infinity in a hidden {where} reaches the output"


def _close(case: Case, output: Array) -> Verdict:
    """Against the right answer, where the scores are exact and their rounding plays no part."""
    expected, _ = right(case)
    return compare(output, expected, np.full_like(expected, 1e-4 * np.abs(case.value).max()))


def _large_scores(subject: Subject) -> Finding:
    name = "large scores"
    case = plain(subject, name)
    if case.has() & {"rope", "bias", "cache", "softcap"}:
        return finding(name, NOT_OFFERED, "asked only of plain scores")
    query, key = np.zeros_like(case.query), np.zeros_like(case.key)
    query[..., 0] = 100
    key[..., 0, 0] = 100
    case = replace(case, query=query, key=key)
    output = subject.run(case).output
    verdict = _close(case, output)
    if verdict.ok:
        return finding(name, PASSED, **verdict.measured)
    evidence = f"scores of {case.factor * 1e4:.0f} beside 0: {verdict.evidence}"
    if subject.unexplained or (np.isfinite(output).all() and follows(subject, case, verdict)):
        return finding(name, FOLLOWS, follow(subject))
    overflow = not np.isfinite(output).all()
    if overflow:
        subject.named.setdefault(NO_MAXIMUM, name)
    said = "large scores give NaN: the maximum is not subtracted before the exponential"
    return finding(
        name,
        FAILED,
        said if overflow else "large scores give a wrong answer",
        fault=NO_MAXIMUM if overflow else "",
        repair="e^(s - max s), row by row",
        evidence=evidence,
        where=verdict.where,
    )


def _low_scores(subject: Subject) -> Finding:
    name = "very low scores"
    case = plain(subject, name)
    if case.has() & {"rope", "bias", "cache", "softcap"}:
        return finding(name, NOT_OFFERED, "asked only of plain scores")
    query, key = np.zeros_like(case.query), np.zeros_like(case.key)
    size = 700.0 * case.query.shape[-1] ** 0.25
    query[..., 0], key[..., 0] = size, -size  # every score is -490000
    case = replace(case, query=query, key=key)
    if "mask" in subject.declared and case.mask is None:
        mask = np.ones((len(query), 1, case.n_q, case.n_k), bool)
        mask[..., 2] = False
        case = replace(case, mask=mask)
    output = subject.run(case).output
    verdict = _close(case, output)
    if verdict.ok:
        return finding(name, PASSED, **verdict.measured)
    if subject.unexplained or (np.isfinite(output).all() and follows(subject, case, verdict)):
        return finding(name, FOLLOWS, follow(subject))
    if not np.isfinite(output).all() and NO_MAXIMUM in subject.named:
        return finding(name, FOLLOWS, follow(subject))
    said, fault, repair = "scores near -490000 give a wrong answer", "", "subtract each row's own maximum"
    if not output.any():
        said, fault = (
            "a row of very low scores gives 0: the maximum starts at a finite number",
            "finite maximum",
        )
    elif case.mask is not None:
        other = case.value.repeat(case.group, 1)[:, :, 2:3]
        if np.allclose(output, np.broadcast_to(other, output.shape), rtol=1e-3, atol=1e-3):
            said = (
                "a hidden key wins against very low scores: it is filled with a number that is not low enough"
            )
            fault, repair = "fill not low enough", "fill with minus infinity"
    return finding(
        name,
        FAILED,
        said,
        fault=fault,
        repair=repair,
        evidence=verdict.evidence,
        where=verdict.where,
        seen=("flashinfer-ai/flashinfer#4267", "TransformerLensOrg/TransformerLens#319"),
    )


EXTREME_RULES = (
    Rule("empty rows", GROUP, "a row that sees no key holds 0", _empty_rows, frozenset({"mask"})),
    Rule("hidden values", GROUP, "what hidden keys and values hold does not matter",
         _poison("hidden values", (1e30,)), frozenset({"mask|padding|causal"})),
    Rule("masked NaN", GROUP, "nor does NaN or infinity there", _poison("masked NaN", (np.nan, np.inf)),
         frozenset({"mask|padding|causal"})),
    Rule("large scores", GROUP, "scores in the thousands do not overflow", _large_scores),
    Rule("very low scores", GROUP, "scores near -490000 are scores, not a mask", _low_scores),
)  # fmt: skip
