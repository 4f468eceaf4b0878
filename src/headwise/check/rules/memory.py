"""The rules on memory, batches, lengths and precision: what has nothing to do with the formula."""

from dataclasses import replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.case import plain as plain_case
from headwise.check.rules import makers
from headwise.check.rules.rule import GROUP, Rule, changed, earlier, finding, follow, lost, plain
from headwise.check.subjects.kinds import KINDS, UNIT, take
from headwise.check.subjects.subject import NoAnswer, Subject
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOT_OFFERED, NOTE, PASSED, Finding
from headwise.check.verdict.judge import compare, follows, judge, right


def _repeated(subject: Subject) -> Finding:
    name, group = "same bits again", "called"
    case = plain(subject, name)
    first = subject.run(case).output
    for _ in range(2):
        again = subject.run(case).output
        if not np.array_equal(first, again, equal_nan=True):
            off = float(np.nanmax(np.abs(again - first)))
            large = off > 1e-5 * float(np.nanmax(np.abs(first)))  # more than an order of sums
            said = (
                "two calls with the same inputs differ: dropout that is on, or other random numbers"
                if large
                else "two calls with the same inputs differ in the last bits"
            )
            return Finding(
                name,
                group,
                FAILED if large else NOTE,
                said,
                fault="dropout left on" if large else "",
                repair="no dropout outside training" if large else "",
                evidence=f"largest difference {off:.3g}",
                error=off,
                allowed=0.0,
                seen=("pytorch/pytorch#124464", "karpathy/nanoGPT#240") if large else (),
            )
    return Finding(name, group, PASSED, error=0.0, allowed=0.0)


def _dtype(subject: Subject) -> Finding:
    name, group = "dtype", "dtype"
    case = plain(subject, name)
    for dtype in [dtype for dtype in subject.framework.dtypes() if dtype in ("float64", "float32")]:
        try:
            answer = subject.run(case, dtype)
        except NoAnswer as no:
            if dtype == subject.dtype:
                raise
            return Finding(name, group, NOTE, f"{dtype} is not taken: {no.what}", where=no.where)
        if answer.kind != subject.kind:
            said = f"{subject.kind} arrays in, {answer.kind} out"
            return Finding(name, group, NOTE, said, repair="give back the caller's kind of array")
        if answer.dtype != dtype:
            said, repair = f"{dtype} in, {answer.dtype} out", "give back the caller's dtype"
            if answer.dtype == "float64":  # wider: nothing is lost
                return Finding(name, group, NOTE, said, repair=repair)
            return Finding(name, group, FAILED, said, fault="dtype changed", repair=repair)
    return Finding(name, group, PASSED)


def _shape(subject: Subject) -> Finding:
    name, group = "shape", "shape"
    case = plain(subject, name)
    output = subject.run(case).output
    if output.shape != (*case.query.shape[:-1], case.value.shape[-1]):
        wanted = (*case.query.shape[:-1], case.value.shape[-1])
        said = f"the output has shape {output.shape} (as batch, head, row, feature); {wanted} is right"
        return Finding(name, group, FAILED, said, fault="wrong shape")
    return Finding(name, group, PASSED)


def _lengths(subject: Subject) -> Finding:
    """Lengths around the block sizes that kernels use; batch, heads and length of 1."""
    name, worst = "lengths", (0.0, 0.0)
    for n in (17,) if subject.few_shapes else (1, 2, 15, 16, 17, 33, 65):
        small = {"batch": 1, "heads": 1, "n_q": n, "d_k": 8}
        if "gqa" in subject.contract.always:
            small |= {"heads": 3, "kv_heads": 1}
        case = makers.complete(
            plain_case(subject.random(name, n), **small), subject.random(name, n), subject.promise
        )
        try:
            verdict = judge(subject, case, subject.run(case).output)
        except NoAnswer as no:
            said = f"length {n}, batch 1, one head: {no.what}"
            return finding(name, FAILED, said, where=no.where)
        if not verdict.ok:
            if earlier(subject, case, verdict):
                return finding(name, FOLLOWS, follow(subject))
            said = f"wrong at length {n} (batch 1, one head)"
            return finding(name, FAILED, said, evidence=verdict.evidence, **verdict.measured)
        worst = max(worst, (verdict.error, verdict.allowed))
    return finding(name, PASSED, error=worst[0], allowed=worst[1])


def _batch(subject: Subject) -> Finding:
    name = "batch entries apart"
    case = plain(subject, name)
    before = subject.run(case).output
    changes: dict[str, Any] = {}
    for field in ("query", "key", "value", "past_key", "past_value", "past_key_turned"):
        array = getattr(case, field)
        if array is not None:
            changes[field] = np.concatenate([array[:1], array[1:] + 1.7])
    after = subject.run(replace(case, **changes)).output
    verdict = compare(after[:1], before[:1], lost(subject, case)[:1])
    if verdict.ok or not np.isfinite(before).all():
        return finding(name, PASSED, error=verdict.error, allowed=verdict.allowed)
    said = "batch entry 0 changes when entry 1 does"
    if subject.named and follows(subject, case, judge(subject, case, before)):
        return finding(name, FOLLOWS, follow(subject))
    evidence = changed(verdict)
    return finding(
        name,
        FAILED,
        said,
        fault="batch leaks",
        repair="entries of a batch never meet",
        evidence=evidence,
        **verdict.measured,
    )


def _unchanged(subject: Subject) -> Finding:
    name = "inputs unchanged"
    subject.run(plain(subject, name))
    if not subject.changed:
        return finding(name, PASSED)
    names = ", ".join(sorted(subject.changed))
    return finding(
        name,
        FAILED,
        f"writes to its inputs: {names}",
        fault="inputs modified",
        repair="work on a copy: no += or out= on what the caller owns",
    )


def _strides(subject: Subject) -> Finding:
    name = "strides"
    if not subject.framework.strides:
        return finding(name, NOT_OFFERED, "JAX arrays have one layout")
    case = plain(subject, name)
    before = subject.run(case).output
    for how in subject.framework.strides:
        try:
            after = subject.run(case, stride=how).output
        except NoAnswer as no:
            said = f"an array in {how} memory: {no.what}"
            return finding(name, FAILED, said, where=no.where, repair="take any strides, or copy first")
        verdict = compare(after, before, lost(subject, case))
        if not verdict.ok and not np.array_equal(after, before, equal_nan=True):
            said = f"the answer changes when the same numbers lie in {how} memory"
            evidence = changed(verdict)
            return finding(
                name,
                FAILED,
                said,
                fault="strides ignored",
                repair="read arrays by their strides",
                evidence=evidence,
                **verdict.measured,
                seen=("pytorch/pytorch#112577", "pytorch/pytorch#187506"),
            )
    return finding(name, PASSED)


def _float64(subject: Subject) -> Finding:
    name = "float64"
    if subject.dtype != "float64":
        return finding(name, NOT_OFFERED, "takes float32 at the finest")
    case = plain(subject, name)
    answer = subject.run(case)
    verdict = judge(subject, case, answer.output, UNIT["float64"])
    if verdict.ok:
        return finding(name, PASSED, **verdict.measured)
    measured = verdict.measured
    expected, lost = right(case)
    off = np.abs(answer.output - expected)
    if not np.isfinite(off).all() or (off > lost * UNIT["float32"]).any():
        if earlier(subject, case, judge(subject, case, answer.output)):
            return finding(name, FOLLOWS, follow(subject), **measured)
        return finding(name, FAILED, "the answer is wrong beyond rounding", **measured)
    size = float(off.max() / max(np.abs(expected).max(), 1e-30))
    if size < UNIT["float32"] / 8:
        said = "less exact than float64, finer than float32: such as a small number added to a sum"
        return finding(name, NOTE, said, **measured)
    return finding(
        name,
        FAILED,
        "float64 inputs are computed in float32, all of it or a part",
        fault="float64 in float32",
        repair="keep the dtype of the inputs all the way",
        **measured,
    )


def _half(subject: Subject) -> Finding:
    name, group = "half precision", GROUP
    case = plain(subject, name)
    served: list[tuple[float, float]] = []
    for dtype in subject.framework.dtypes():
        if dtype not in ("float16", "bfloat16"):
            continue
        try:
            rounded = _rounded(case, subject.kind, dtype)
            answer = subject.run(rounded, dtype)
        except NoAnswer:
            continue
        verdict = judge(subject, rounded, answer.output, UNIT[dtype])
        if not verdict.ok and earlier(subject, rounded, verdict):
            return Finding(name, group, FOLLOWS, follow(subject))
        if not verdict.ok:
            said = f"in {dtype} the error is larger than its rounding explains"
            return Finding(name, group, FAILED, said, evidence=verdict.evidence, **verdict.measured)
        if answer.dtype != dtype:
            return Finding(name, group, NOTE, f"{dtype} in, {answer.dtype} out")
        served.append((verdict.error, verdict.allowed))
    if not served:
        return Finding(name, group, NOT_OFFERED, "takes no half precision")
    error, allowed = max(served)
    return Finding(name, group, PASSED, error=error, allowed=allowed)


def _rounded(case: Case, kind: str, dtype: str) -> Case:
    """The case with numbers that the dtype holds exactly."""
    names = ("query", "key", "value", "bias", "past_key", "past_value", "past_key_turned")
    rounded: dict[str, Any] = {
        name: take(KINDS[kind].put(getattr(case, name), dtype))
        for name in names
        if getattr(case, name) is not None
    }
    return replace(case, **rounded)


DTYPE_RULES = (
    Rule("same bits again", "called", "the same call gives the same bits", _repeated),
    Rule("dtype", "dtype", "kind and dtype of the inputs come back", _dtype),
    Rule("shape", "shape", "the output is (..., n_q, d_v)", _shape),
)

MEMORY_RULES = (
    Rule("lengths", GROUP, "lengths 1, 2, 15, 16, 17, 33, 65; one batch entry, one head", _lengths),
    Rule("batch entries apart", GROUP, "entries of a batch do not meet", _batch),
    Rule("inputs unchanged", GROUP, "inputs are not written to", _unchanged),
    Rule("strides", GROUP, "transposed, reversed, spread and read-only memory", _strides),
    Rule("float64", GROUP, "float64 is computed in float64", _float64),
    Rule("half precision", GROUP, "float16 and bfloat16 err by their own rounding only", _half),
)
