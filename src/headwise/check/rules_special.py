"""The rules on special cases: empty rows, hidden NaN, huge scores, odd memory, repeated calls, precision."""

from dataclasses import replace
from typing import Any

import numpy as np

from headwise.check import cases, frameworks, making
from headwise.check.cases import Case
from headwise.check.judge import Verdict, compare, follows, judge, right
from headwise.check.report import FAILED, FOLLOWS, NOT_OFFERED, NOTE, PASSED, Finding
from headwise.check.rules import Rule, Run
from headwise.check.rules_values import explain
from headwise.check.steps import attend
from headwise.check.subject import NoAnswer, Subject

Array = np.ndarray[Any, Any]
_GROUP = "special cases"
_NO_MAXIMUM = "no maximum subtracted"


def _plain(subject: Subject, name: str) -> Case:
    return making.maker("values", subject.promise)(subject.random(name), 0)


def _finding(name: str, status: str, said: str = "", **more: Any) -> Finding:
    return Finding(name, _GROUP, status, said, **more)


def _follow(subject: Subject) -> str:
    return f"follows from {', '.join(subject.named)}"


def _empty_rows(subject: Subject) -> Finding:
    name = "empty rows"
    case = making.maker("mask", subject.promise)(subject.random(name), 0)
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
        "mean": "a row that sees no key averages all values: hidden scores are a large negative number, as -1e9",
    }
    held = next((kind for kind, is_it in found.items() if is_it), None)
    if wanted == "any" or held == wanted:
        shown = f"{row[0, 0]:.4g}"
        return _finding(name, PASSED if held == "zero" or wanted != "any" else NOTE,
                        "" if held == "zero" or wanted != "any" else what.get(held or "", f"holds {shown}"))  # fmt: skip
    key = {"nan": "NaN in empty rows", "mean": "fill -1e9", "zero": "empty rows are 0"}.get(held or "", "")
    said = what[held] if held else "a row that sees no key holds neither 0 nor a mean"
    repair = {
        "zero": "give 0 for a row that sees no key: where(any key seen, softmax, 0)",
        "mean": "the contract has the mean of all values here",
        "nan": "the contract has NaN here",
    }[wanted]
    evidence = f"batch 0, head 0, row 1: {' '.join(f'{number:.4g}' for number in row[0][:4])} \u2026"
    seen = ("pytorch/pytorch#103963", "NVIDIA/apex#1390", "Xilinx/brevitas#1591")
    return _finding(name, FAILED, said, fault=key, repair=repair, evidence=evidence,
                    where="batch 0, head 0, row 1", seen=seen)  # fmt: skip


def _hiding(subject: Subject, name: str) -> tuple[Case, Array]:
    """A case, and which of its keys (B, n_k) some rows do not see: only those rows are compared."""
    served = subject.declared
    make = "mask" if "mask" in served else "padding" if "padding" in served else "causal"
    case = making.maker(make, subject.promise)(subject.random(name), 0)
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
        unseen = ~(cases.expected(case)[1][..., hidden] > 0).any(-1)
        before = subject.run(case).output
        lost = right(case)[1] * frameworks.unit("float32" if subject.dtype == "float64" else subject.dtype)
        for where in ("value", "key"):
            for number in numbers:
                changed = getattr(case, where).copy()
                changed[:, :, hidden] = number
                after = subject.run(replace(case, **{where: changed})).output
                with np.errstate(invalid="ignore"):
                    wrong = ~(np.abs(after - before) <= lost + 1e-30) & unseen[..., None]
                if wrong.any():
                    place = tuple(int(at) for at in np.argwhere(wrong)[0])
                    said = _leak(where, number)
                    keep = "select hidden scores and values away; 0 times NaN is NaN"
                    repair = _BEFORE if np.isfinite(number) else keep
                    evidence = f"a hidden {where} set to {number:g} turns {before[place]:.4g} into {after[place]:.4g}"
                    seen = () if np.isfinite(number) else ("pytorch/pytorch#101967", "Dao-AILab/flash-attention#1745")
                    return _finding(name, FAILED, said, fault=f"hidden {where} leaks", repair=repair, evidence=evidence,
                                    where=_index(place), seen=seen)  # fmt: skip
        return _finding(name, PASSED)

    return run


_BEFORE = "set hidden scores to minus infinity before the softmax"


def _leak(where: str, number: float) -> str:
    if np.isfinite(number):
        return f"what a hidden {where} holds reaches the output"
    return f"NaN or infinity in a hidden {where} reaches the output"


def _index(place: tuple[int, ...]) -> str:
    return ", ".join(f"{n} {at}" for n, at in zip(("batch", "head", "row", "feature"), place, strict=True))


def _large_scores(subject: Subject) -> Finding:
    name = "large scores"
    case = _plain(subject, name)
    if case.has() & {"rope", "bias", "cache", "softcap"}:
        return _finding(name, NOT_OFFERED, "asked only of plain scores")
    query, key = np.zeros_like(case.query), np.zeros_like(case.key)
    query[..., 0] = 100
    key[..., 0, 0] = 100
    case = replace(case, query=query, key=key)
    output = subject.run(case).output
    verdict = judge(subject, case, output)
    if verdict.ok:
        return _finding(name, PASSED, error=verdict.error, allowed=verdict.allowed)
    evidence = f"scores of {case.factor * 1e4:.0f} beside 0: {verdict.evidence}"
    if np.isfinite(output).all() and follows(subject, case, verdict):
        return _finding(name, FOLLOWS, _follow(subject))
    overflow = not np.isfinite(output).all()
    if overflow:
        subject.named.setdefault(_NO_MAXIMUM, name)
    said = "large scores give NaN: the maximum is not subtracted before the exponential"
    return _finding(
        name, FAILED, said if overflow else "large scores give a wrong answer",
        fault=_NO_MAXIMUM if overflow else "", repair="e^(s - max s), row by row", evidence=evidence,
        where=verdict.where,
    )  # fmt: skip


def _low_scores(subject: Subject) -> Finding:
    name = "very low scores"
    case = _plain(subject, name)
    if case.has() & {"rope", "bias", "cache", "softcap"}:
        return _finding(name, NOT_OFFERED, "asked only of plain scores")
    query, key = np.zeros_like(case.query), np.zeros_like(case.key)
    size = 700.0 * case.query.shape[-1] ** 0.25
    query[..., 0], key[..., 0] = size, -size  # every score is -490000
    case = replace(case, query=query, key=key)
    if "mask" in subject.declared and case.mask is None:
        mask = np.ones((len(query), 1, case.n_q, case.n_k), bool)
        mask[..., 2] = False
        case = replace(case, mask=mask)
    output = subject.run(case).output
    verdict = judge(subject, case, output, 2.0**-12)
    if verdict.ok:
        return _finding(name, PASSED, error=verdict.error, allowed=verdict.allowed)
    if np.isfinite(output).all() and follows(subject, case, verdict):
        return _finding(name, FOLLOWS, _follow(subject))
    if not np.isfinite(output).all() and _NO_MAXIMUM in subject.named:
        return _finding(name, FOLLOWS, _follow(subject))
    said, fault, repair = "scores near -490000 give a wrong answer", "", "subtract each row's own maximum"
    if not output.any():
        said, fault = "a row of very low scores gives 0: the maximum starts at a finite number", "finite maximum"
    elif case.mask is not None:
        other = case.value.repeat(case.group, 1)[:, :, 2:3]
        if np.allclose(output, np.broadcast_to(other, output.shape), rtol=1e-3, atol=1e-3):
            said = "a hidden key wins against very low scores: it is filled with a number that is not low enough"
            fault, repair = "fill not low enough", "fill with minus infinity"
    return _finding(name, FAILED, said, fault=fault, repair=repair, evidence=verdict.evidence, where=verdict.where,
                    seen=("flashinfer-ai/flashinfer#4267", "TransformerLensOrg/TransformerLens#319"))  # fmt: skip


def _lengths(subject: Subject) -> Finding:
    """Lengths around the block sizes that kernels use; batch, heads and length of 1."""
    name, worst = "lengths", (0.0, 0.0)
    for n in (1, 17) if subject.few_shapes else (1, 2, 15, 16, 17, 33, 65):
        small = {"batch": 1, "heads": 1, "n_q": n, "d_k": 8}
        if "gqa" in subject.contract.always:
            small |= {"heads": 3, "kv_heads": 1}
        case = making.complete(cases.plain(subject.random(name, n), **small), subject.random(name, n), subject.promise)
        try:
            verdict = judge(subject, case, subject.run(case).output)
        except NoAnswer as no:
            said = f"length {n}, batch 1, one head: {no.what}"
            return _finding(name, FAILED, said, where=no.where)
        if not verdict.ok:
            if follows(subject, case, verdict):
                return _finding(name, FOLLOWS, _follow(subject))
            said = f"wrong at length {n} (batch 1, one head)"
            return _finding(name, FAILED, said, evidence=verdict.evidence, where=verdict.where, error=verdict.error,
                            allowed=verdict.allowed)  # fmt: skip
        worst = max(worst, (verdict.error, verdict.allowed))
    return _finding(name, PASSED, error=worst[0], allowed=worst[1])


def _batch(subject: Subject) -> Finding:
    name = "batch entries apart"
    case = _plain(subject, name)
    before = subject.run(case).output
    changes = {}
    for field in ("query", "key", "value", "past_key", "past_value", "past_key_turned"):
        array = getattr(case, field)
        if array is not None:
            changes[field] = np.concatenate([array[:1], array[1:] + 1.7])
    after = subject.run(replace(case, **changes)).output
    lost = right(case)[1][:1] * frameworks.unit("float32" if subject.dtype == "float64" else subject.dtype)
    verdict = compare(after[:1], before[:1], lost + 1e-30)
    if verdict.ok or not np.isfinite(before).all():
        return _finding(name, PASSED, error=verdict.error, allowed=verdict.allowed)
    said = "batch entry 0 changes when entry 1 does"
    if subject.named and follows(subject, case, judge(subject, case, before)):
        return _finding(name, FOLLOWS, _follow(subject))
    evidence = f"{verdict.expected[verdict.place or ()]:.6g} becomes {verdict.output[verdict.place or ()]:.6g}"
    return _finding(name, FAILED, said, fault="batch leaks", repair="entries of a batch never meet",
                    evidence=evidence, where=verdict.where, error=verdict.error, allowed=verdict.allowed)  # fmt: skip


def _repeated(subject: Subject) -> Finding:
    name = "same bits again"
    case = _plain(subject, name)
    first = subject.run(case).output
    for _ in range(2):
        again = subject.run(case).output
        if not np.array_equal(first, again, equal_nan=True):
            off = float(np.nanmax(np.abs(again - first)))
            large = off > 1e-3 * float(np.nanmax(np.abs(first)))
            said = (
                "two calls with the same inputs differ: dropout that is on, or other random numbers"
                if large
                else "two calls with the same inputs differ in the last bits"
            )
            return _finding(name, FAILED if large else NOTE, said, fault="dropout left on" if large else "",
                            repair="no dropout outside training" if large else "", evidence=f"largest difference {off:.3g}",
                            error=off, allowed=0.0, seen=("pytorch/pytorch#124464", "karpathy/nanoGPT#240") if large else ())  # fmt: skip
    return _finding(name, PASSED, error=0.0, allowed=0.0)


def _unchanged(subject: Subject) -> Finding:
    name = "inputs unchanged"
    subject.run(_plain(subject, name))
    if not subject.changed:
        return _finding(name, PASSED)
    names = ", ".join(sorted(subject.changed))
    return _finding(name, FAILED, f"writes to its inputs: {names}", fault="inputs modified",
                    repair="work on a copy: no += or out= on what the caller owns")  # fmt: skip


def _strides(subject: Subject) -> Finding:
    name = "strides"
    if subject.kind == "jax":
        return _finding(name, NOT_OFFERED, "JAX arrays have one layout")
    case = _plain(subject, name)
    before = subject.run(case).output
    ways = ("transposed", "spread") if subject.kind == "torch" else ("transposed", "reversed", "spread", "read-only")
    lost = right(case)[1] * frameworks.unit("float32" if subject.dtype == "float64" else subject.dtype)
    for how in ways:
        try:
            after = subject.run(case, stride=how).output
        except NoAnswer as no:
            said = f"an array in {how} memory: {no.what}"
            return _finding(name, FAILED, said, where=no.where, repair="take any strides, or copy first")
        verdict = compare(after, before, lost + 1e-30)
        if not verdict.ok and not np.array_equal(after, before, equal_nan=True):
            said = f"the answer changes when the same numbers lie in {how} memory"
            evidence = f"{verdict.expected[verdict.place or ()]:.6g} becomes {verdict.output[verdict.place or ()]:.6g}"
            return _finding(name, FAILED, said, fault="strides ignored", repair="read arrays by their strides",
                            evidence=evidence, where=verdict.where, error=verdict.error, allowed=verdict.allowed,
                            seen=("pytorch/pytorch#112577", "pytorch/pytorch#187506"))  # fmt: skip
    return _finding(name, PASSED)


def _float64(subject: Subject) -> Finding:
    name = "float64"
    if subject.dtype != "float64":
        return _finding(name, NOT_OFFERED, "takes float32 at the finest")
    case = _plain(subject, name)
    answer = subject.run(case)
    verdict = judge(subject, case, answer.output, frameworks.unit("float64"))
    if verdict.ok:
        return _finding(name, PASSED, error=verdict.error, allowed=verdict.allowed)
    measured = {"error": verdict.error, "allowed": verdict.allowed, "where": verdict.where}
    expected, lost = right(case)
    off = np.abs(answer.output - expected)
    if not np.isfinite(off).all() or (off > lost * frameworks.unit("float32")).any():
        if follows(subject, case, judge(subject, case, answer.output)):
            return _finding(name, FOLLOWS, _follow(subject), **measured)
        return _finding(name, FAILED, "the answer is wrong beyond rounding", **measured)
    size = float(off.max() / max(np.abs(expected).max(), 1e-30))
    if size < frameworks.unit("float32") / 8:
        said = "less exact than float64, though finer than float32: such as a small number added to the sum of weights"
        return _finding(name, NOTE, said, **measured)
    return _finding(name, FAILED, "float64 inputs are computed in float32", fault="float64 in float32",
                    repair="keep the dtype of the inputs all the way", **measured)  # fmt: skip


def _half(subject: Subject) -> Finding:
    name, group = "half precision", _GROUP
    case = _plain(subject, name)
    served = []
    for dtype in frameworks.dtypes(subject.kind):
        if dtype not in ("float16", "bfloat16") or (served and subject.few_shapes):
            continue
        try:
            rounded = _rounded(case, subject.kind, dtype)
            answer = subject.run(rounded, dtype)
        except NoAnswer:
            continue
        verdict = judge(subject, rounded, answer.output, frameworks.unit(dtype))
        if not verdict.ok and follows(subject, rounded, verdict):
            return Finding(name, group, FOLLOWS, _follow(subject))
        if not verdict.ok:
            said = f"in {dtype} the error is larger than its rounding explains"
            return Finding(name, group, FAILED, said, evidence=verdict.evidence, where=verdict.where,
                           error=verdict.error, allowed=verdict.allowed)  # fmt: skip
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
    return replace(case, **{
        name: frameworks.take(frameworks.put(getattr(case, name), kind, dtype))
        for name in names
        if getattr(case, name) is not None
    })  # fmt: skip


def _dtype(subject: Subject) -> Finding:
    name, group = "dtype", "dtype"
    case = _plain(subject, name)
    for dtype in [dtype for dtype in frameworks.dtypes(subject.kind) if dtype in ("float64", "float32")]:
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
    case = _plain(subject, name)
    output = subject.run(case).output
    if output.shape != (*case.query.shape[:-1], case.value.shape[-1]):
        wanted = (*case.query.shape[:-1], case.value.shape[-1])
        said = f"the output has shape {output.shape} (as batch, head, row, feature); {wanted} is right"
        return Finding(name, group, FAILED, said, fault="wrong shape")
    return Finding(name, group, PASSED)



DTYPE_RULES = (
    Rule("dtype", "dtype", "kind and dtype of the inputs come back", _dtype),
    Rule("shape", "shape", "the output is (..., n_q, d_v)", _shape),
)
SPECIAL_RULES = (
    Rule("empty rows", _GROUP, "a row that sees no key holds 0", _empty_rows, frozenset({"mask"})),
    Rule("hidden values", _GROUP, "what hidden keys and values hold does not matter", _poison("hidden values", (1e30,)),
         frozenset({"mask|padding|causal"})),
    Rule("masked NaN", _GROUP, "nor does NaN or infinity there", _poison("masked NaN", (np.nan, np.inf)),
         frozenset({"mask|padding|causal"})),
    Rule("large scores", _GROUP, "scores in the thousands do not overflow", _large_scores),
    Rule("very low scores", _GROUP, "scores near -490000 are scores, not a mask", _low_scores),
    Rule("lengths", _GROUP, "lengths 1, 2, 15, 16, 17, 33, 65; one batch entry, one head", _lengths),
    Rule("batch entries apart", _GROUP, "entries of a batch do not meet", _batch),
    Rule("same bits again", _GROUP, "the same call gives the same bits", _repeated),
    Rule("inputs unchanged", _GROUP, "inputs are not written to", _unchanged),
    Rule("strides", _GROUP, "transposed, reversed, spread and read-only memory", _strides),
    Rule("float64", _GROUP, "float64 is computed in float64", _float64),
    Rule("half precision", _GROUP, "float16 and bfloat16 err by their own rounding only", _half),
)  # fmt: skip
