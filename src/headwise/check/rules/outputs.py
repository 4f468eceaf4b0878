"""The rules on values: the answer to random inputs, option by option, and what a wrong one means."""

from dataclasses import replace

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import averaging
from headwise.check.cases.layer_case import LayerFault
from headwise.check.faults import FAULTS
from headwise.check.rules.makers import maker
from headwise.check.rules.rule import Rule, Run
from headwise.check.subjects.contract import Contract
from headwise.check.subjects.subject import NoAnswer, Subject
from headwise.check.verdict import readout
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOTE, PASSED, Finding
from headwise.check.verdict.judge import AnyCase, Diagnosis, Make, Verdict, diagnose, follows, judge
from headwise.plain.types import Array

_ALWAYS_CAUSAL = next(fault for fault in FAULTS if fault.key == "causal unasked")
_ALIGNMENT = {
    "upper_left": "causal order counts keys from the first (top-left): query i sees keys j <= i",
    "lower_right": "causal order counts keys from the last (bottom-right): query i sees j <= i + n_k - n_q",
}


def value_rule(name: str, says: str, needs: str = "", tried: bool = False) -> Rule:
    """A rule that compares answers to the cases of that name."""
    return Rule(name, "values", says, _run(name), frozenset(needs.split()), tried)


def _run(name: str) -> Run:
    return lambda subject: ask(subject, name, maker(name, subject.promise))


def ask(subject: Subject, name: str, make: Make, group: str = "values") -> Finding:
    """Asks the first shape and another one; explains the first wrong answer."""
    note, worst = "", None
    for again in (0,) if subject.few_shapes else (0, 2):
        case = make(subject.random(name, again), again)
        try:
            verdict = judge(subject, case, subject.run(case).output)
        except NoAnswer:
            if again:
                continue  # one shape is served, and right
            raise
        other = None if verdict.ok else _other_alignment(subject.contract, case)
        if other is not None:
            second = judge(subject, other, verdict.output)
            if second.ok:
                note, verdict = _ALIGNMENT[other.aligned], second
            elif follows(subject, other, second):
                case, verdict = other, second
        if not verdict.ok:
            return failure(subject, name, group, make, case, verdict)
        if worst is None or verdict.error / max(verdict.allowed, 1e-300) > worst[0] / max(worst[1], 1e-300):
            worst = (verdict.error, verdict.allowed)
    error, allowed = worst or (0.0, 0.0)
    if note:
        repair = "say which is meant: causal_alignment='upper_left' or 'lower_right'"
        return Finding(name, group, NOTE, note, repair=repair, error=error, allowed=allowed)
    return Finding(name, group, PASSED, error=error, allowed=allowed)


def _other_alignment(contract: Contract, case: AnyCase) -> Case | None:
    if not isinstance(case, Case) or contract.causal_alignment is not None or case.n_past:
        return None
    if case.n_q == case.n_k or not (case.is_causal or case.window):
        return None
    return replace(case, aligned="upper_left" if case.aligned == "lower_right" else "lower_right")


def failure(subject: Subject, name: str, group: str, make: Make, case: AnyCase, verdict: Verdict) -> Finding:
    """The finding for a wrong answer: the mistake by name, or the first place that is wrong."""
    measured = verdict.measured
    if follows(subject, case, verdict):
        said = f"follows from {', '.join(subject.named)}"
        return Finding(name, group, FOLLOWS, said, **measured)
    found = diagnose(subject, make, name, case, verdict)
    if found is None and subject.unexplained:
        return Finding(name, group, FOLLOWS, f"follows from {subject.unexplained}", **measured)
    if found is None:
        subject.unexplained = name
        said, evidence = _unknown(subject, case, verdict)
        repair = _if_causal(subject, make, name, case, verdict)
        return Finding(name, group, FAILED, said, evidence=evidence, repair=repair, **measured)
    first = found.mistakes[0]
    if first.key in subject.named:
        return Finding(name, group, FOLLOWS, f"follows from {first.key}", **measured)
    subject.named.setdefault(first.key, name)
    if isinstance(first, LayerFault):
        subject.mistake = first
    elif not found.evidence or "scale" in first.changes:  # a pattern that was read out is that of its shape
        changes = {"hidden": averaging, **first.changes} if found.averages else first.changes
        subject.base = subject.base.exchange(changes)
    else:
        subject.unexplained = subject.unexplained or name
    averages = "rows left without keys average all" if found.averages else ""
    shown = found.evidence or _measured(subject, case, found)
    evidence = "; ".join(filter(None, (shown, averages, verdict.evidence)))
    also = tuple(one.key for one in found.mistakes if one.key != first.key)
    return Finding(
        name, group, FAILED, first.what, fault=first.key, also=also,
        repair=first.repair, evidence=evidence, seen=first.seen, **measured,
    )  # fmt: skip


def _if_causal(subject: Subject, make: Make, name: str, case: AnyCase, verdict: Verdict) -> str:
    """What the mistake would be in a function that is meant to be causal in every call."""
    if "causal" in case.has():
        return ""
    base = subject.base
    subject.base = base.exchange(_ALWAYS_CAUSAL.changes)
    try:
        found = diagnose(subject, make, name, case, verdict)
    finally:
        subject.base = base
    said = "if it is meant to be always causal, say so (always={'causal'}, --always causal)"
    return "" if found is None else f"{said}: then its mistake is \u201c{found.key}\u201d"


def _unknown(subject: Subject, case: AnyCase, verdict: Verdict) -> tuple[str, str]:
    """What can be said of an answer that no known mistake explains."""
    strange = ~np.isfinite(verdict.output)
    if strange.any():
        rows = strange.any(-1).sum()
        said = f"{rows} of {strange[..., 0].size} rows hold NaN or infinity"
        return said, verdict.evidence
    said = "the answer is wrong, and no known mistake explains it"
    evidence = [verdict.evidence]
    if isinstance(case, Case):
        weights = readout.weights(subject, case)
        if weights is not None:
            row = (verdict.place or (0, 0, 0))[:3]
            right = readout.right_weights(case)
            evidence.append(
                f"weights of that row, read out: {_numbers(weights[row])}; right: {_numbers(right[row])}"
            )
            sums = weights.sum(-1)
            if not np.allclose(sums, 1, atol=1e-3):
                evidence.append(f"its rows sum to {sums.min():.4g} to {sums.max():.4g}")
    return said, "; ".join(evidence)


def _numbers(row: Array) -> str:
    return " ".join(f"{number:.3f}" for number in row[:8]) + (" \u2026" if len(row) > 8 else "")


def _measured(subject: Subject, case: AnyCase, found: Diagnosis) -> str:
    """What a read-out shows of the mistake: the factor of the scores, the keys seen, the head map."""
    if not isinstance(case, Case):
        return ""
    changed = set(getattr(found.mistakes[0], "changes", ()))
    if changed == {"scale"}:
        factor = readout.factor(subject, case)
        return "" if factor is None else f"measured factor {factor:.4g}, right {case.factor:.4g}"
    if changed & {"causal", "windowed", "masked", "padded", "combined", "hidden"}:
        seen = readout.seen_keys(subject, case)
        if seen is None:
            return ""
        right = readout.right_weights(case) > 0
        at = np.argwhere((seen != right).any((-1, -2)))
        b, h = (int(at[0][0]), int(at[0][1])) if len(at) else (0, 0)
        drawn = f"keys seen {readout.drawn(seen[b, h])}, right {readout.drawn(right[b, h])}"
        return f"batch {b}, head {h}: {drawn}" if len(at) else ""
    if "repeated" in changed:
        heads = readout.head_map(subject, case)
        right_map = [head // case.group for head in range(case.query.shape[1])]
        return "" if heads is None else f"kv head of heads 0, 1, \u2026: {heads}, right {right_map}"
    return ""


VALUE_RULES = (
    value_rule("values", "the output is softmax(query key^T / root d_k) value"),
    value_rule("more keys than queries", "n_q and n_k may differ", tried=True),
    value_rule("value width", "d_v may differ from d_k", tried=True),
    value_rule("all sizes unlike", "n_q, n_k, d_k and d_v may all differ", tried=True),
    value_rule("scale", "a scale that is passed replaces 1 / root d_k", "scale"),
    value_rule("grouped heads", "query head h meets key/value head h // (H / H_kv)", "gqa", tried=True),
    value_rule("mask", "hidden keys take no part: True means attend", "mask"),
    value_rule("padding", "padded keys take no part, in every head and row", "padding"),
    value_rule("mask and padding", "a key is seen where both allow it", "mask padding"),
    value_rule("bias", "the bias is added to the scaled scores", "bias"),
    value_rule("mask and bias", "mask and bias together", "mask bias", tried=True),
    value_rule("causal", "query i sees keys j <= i", "causal"),
    value_rule("causal, more keys", "causal order where n_q < n_k", "causal", tried=True),
    value_rule("causal and mask", "a key is seen where both allow it", "causal mask", tried=True),
    value_rule("rotary positions", "queries and keys turn by their position", "rope"),
    value_rule("cache", "cached keys stand first, and keep their places", "cache"),
    value_rule("window", "the query's key and the W keys before it", "window"),
    value_rule("causal window", "causal order and window together", "window causal"),
    value_rule("soft cap", "s becomes c tanh(s / c), after the scale", "softcap"),
    value_rule("soft cap and mask", "the cap comes before the mask", "softcap mask", tried=True),
    value_rule("soft cap and causal", "the cap comes before the mask", "softcap causal"),
    value_rule("grouped heads and mask", "masks reach every head of a group", "gqa mask", tried=True),
    value_rule("grouped heads and causal", "causal order in every head of a group", "gqa causal", tried=True),
)
