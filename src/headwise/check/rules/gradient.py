"""The rules on gradients, for torch and JAX: against the derivative of the specification in float64.

With P = softmax(S), O = P V and the gradient dO of the output:

    dV = P^T dO,   dP = dO V^T,   dS = P * (dP - sum_j P dP),   dQ = scale dS K,   dK = scale dS^T Q
"""

from dataclasses import replace

import numpy as np

from headwise.check.cases.case import Case, expected
from headwise.check.rules import makers
from headwise.check.rules.rule import Rule, Run
from headwise.check.subjects.kinds import UNIT
from headwise.check.subjects.signature import convert, lay
from headwise.check.subjects.subject import NoAnswer, Subject
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOT_OFFERED, PASSED, Finding
from headwise.check.verdict.judge import follows, judge
from headwise.plain.types import AnyArray, Array

_GROUP = "gradient"
_NAMES = ("query", "key", "value")
_SERVED = ("bhnd", "bnhd", "bne", "bnd")


def derivative(case: Case, weight: Array) -> tuple[Array, Array, Array]:
    """Gradients of sum(weight * output) for query, key and value: no cap, no rotation, no cache."""
    _, p = expected(case)
    k, v = case.key.repeat(case.group, 1), case.value.repeat(case.group, 1)
    dv = p.swapaxes(-1, -2) @ weight
    dp = weight @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = case.factor * ds @ k
    dk = case.factor * ds.swapaxes(-1, -2) @ case.query
    kv = (len(dk), case.key.shape[1], case.group)
    dk, dv = (x.reshape(*kv, *x.shape[2:]).sum(2) for x in (dk, dv))
    return dq, dk, dv


def _gradients(subject: Subject, case: Case, weight: Array) -> list[Array | None]:
    """The function's own, as (B, H, n, d)."""
    part = lay(case, subject.layout)[0]
    ready = convert(part, subject.kind, subject.dtype, subject.contract.mask_means)

    def call(*arrays: AnyArray) -> AnyArray:
        found = subject.call(replace(ready, **dict(zip(_NAMES, arrays, strict=True))))
        return found[0] if isinstance(found, tuple | list) else found

    laid = lay(replace(case, value=weight, key=weight), subject.layout)[0].value
    with subject.calm():
        leaves = [getattr(ready, name) for name in _NAMES]
        made = subject.framework.gradients(call, leaves, laid)
    heads = (case.query.shape[1], case.key.shape[1], case.key.shape[1])
    wide = [
        None if one is None else _back(one, subject.layout, case, h)
        for one, h in zip(made, heads, strict=True)
    ]
    return wide


def _back(x: Array, layout: str, case: Case, heads: int) -> Array:
    if layout == "bnhd":
        return x.swapaxes(1, 2)
    if layout == "bne":
        return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)
    return x.reshape(len(case.query), heads, *x.shape[-2:])


def _run(name: str, make_name: str, empty: bool) -> Run:
    def run(subject: Subject) -> Finding:
        if subject.layout not in _SERVED:
            return Finding(name, _GROUP, NOT_OFFERED, f"not asked in the layout {subject.layout}")
        random = subject.random(name)
        case = makers.maker(make_name, subject.promise)(random, 0)
        if case.has() & {"softcap", "rope", "cache"}:
            return Finding(name, _GROUP, NOT_OFFERED, "asked only without soft cap, rotation and cache")
        if empty:
            mask = case.mask.copy()
            mask[0, :, 1] = False
            case = replace(case, mask=mask)
        weight = random.standard_normal((*case.query.shape[:-1], case.value.shape[-1]))
        found = _gradients(subject, case, weight)
        return _judged(subject, name, case, weight, found, empty)

    return run


def _judged(
    subject: Subject, name: str, case: Case, weight: Array, found: list[Array | None], empty: bool
) -> Finding:
    right = derivative(case, weight)
    if all(one is None for one in found):
        said = "no gradient reaches query, key or value: the output is cut off from them"
        return Finding(
            name, _GROUP, FAILED, said, fault="no gradient", repair="no detach(), no NumPy on the way"
        )
    if subject.named:
        try:
            verdict = judge(subject, case, subject.run(case).output)
        except NoAnswer:
            verdict = None
        if verdict is not None and not verdict.ok and follows(subject, case, verdict):
            return Finding(name, _GROUP, FOLLOWS, f"follows from {', '.join(subject.named)}")
    if (
        empty
        and subject.contract.empty_rows != "zero"
        and all(one is None or np.isfinite(one).all() for one in found)
    ):
        return Finding(name, _GROUP, PASSED)  # what such a row holds is another convention
    unit = max(UNIT[subject.dtype], UNIT["float32"])
    spread = case.factor * np.abs(case.query).max() * np.abs(case.key).max() * case.query.shape[-1]
    worst = (0.0, 1.0)
    for which, own, wanted in zip(_NAMES, found, right, strict=True):
        allowed = unit * (64 + 16 * spread) * max(float(np.abs(wanted).max()), 1e-30)
        own = np.zeros_like(wanted) if own is None else own
        off = np.abs(own - wanted)
        error = float(off.max()) if np.isfinite(off).all() else float("inf")
        if error <= allowed:
            worst = max(worst, (error, allowed), key=lambda pair: pair[0] / pair[1])
            continue
        place = np.unravel_index(int(np.argmax(np.where(np.isfinite(off), off, np.inf))), off.shape)
        said, fault = _named(which, own, wanted, case, weight)
        seen = ("pytorch/pytorch#178251", "pytorch/pytorch#41508") if not np.isfinite(error) else ()
        if empty and not np.isfinite(own).all():
            said, fault = (
                f"a row that sees no key gives the {which} a gradient of NaN",
                "NaN gradient of empty rows",
            )
        return Finding(
            name,
            _GROUP,
            FAILED,
            said,
            fault=fault,
            repair="compare with the derivative of the formula",
            evidence=f"gradient of the {which}: expected {wanted[place]:.6g}, got {own[place]:.6g}",
            where=", ".join(
                f"{n} {int(at)}" for n, at in zip(("batch", "head", "row", "feature"), place, strict=True)
            ),
            error=error,
            allowed=allowed,
            seen=seen,
        )
    return Finding(name, _GROUP, PASSED, error=worst[0], allowed=worst[1])


def _named(which: str, own: Array, wanted: Array, case: Case, weight: Array) -> tuple[str, str]:
    """The mistake in a gradient, in words and by name."""
    if not np.isfinite(own).all():
        return f"the gradient of the {which} holds NaN or infinity", "NaN gradient"
    if not own.any():
        return f"no gradient reaches the {which}: it is cut off, as by detach()", "no gradient"
    factor = float((own * wanted).sum() / (wanted * wanted).sum())
    if np.allclose(own, factor * wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max()):
        near = {
            "the scale is missing": 1 / case.factor,
            "the scale is applied twice": case.factor,
            "its sign is wrong": -1,
        }
        why = next((why for why, number in near.items() if abs(factor / number - 1) < 1e-3), "")
        said = f"the gradient of the {which} is {factor:.4g} times what it should be"
        return (f"{said}: {why}" if why else said), "gradient scaled"
    if which != "value":
        _, p = expected(case)
        v = case.value.repeat(case.group, 1)
        ds = p * (weight @ v.swapaxes(-1, -2))
        q, k = case.query, case.key.repeat(case.group, 1)
        bare = case.factor * (ds @ k if which == "query" else ds.swapaxes(-1, -2) @ q)
        if bare.shape == own.shape and np.allclose(own, bare, rtol=1e-3, atol=1e-3 * np.abs(bare).max()):
            said = "the softmax's derivative lacks its second term: dS = P * (dP - sum P dP)"
            return said, "softmax gradient without its sum"
    return f"the gradient of the {which} is wrong", "wrong gradient"


GRADIENT_RULES = (
    Rule("gradient", _GROUP, "gradients of query, key and value are those of the formula",
         _run("gradient", "values", False)),
    Rule("gradient with mask", _GROUP, "the same where keys are hidden",
         _run("gradient with mask", "mask", False), frozenset({"mask"})),
    Rule("gradient, causal", _GROUP, "the same in causal order", _run("gradient, causal", "causal", False),
         frozenset({"causal"})),
    Rule("gradient of empty rows", _GROUP, "a row that sees no key gives no NaN",
         _run("gradient of empty rows", "mask", True), frozenset({"mask"})),
)  # fmt: skip
