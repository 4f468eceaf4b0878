"""Asking the rules one after the other, and what comes of each."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from headwise.check.rules.called import manner
from headwise.check.rules.rule import Rule
from headwise.check.subjects.subject import HANGS, NoAnswer, Subject
from headwise.check.verdict.findings import FAILED, NOT_OFFERED, NOTE, CheckReport, Finding

_IN_MORE_SHAPES = ("grouped heads and mask", "grouped heads and causal", "half precision")


Progress = Callable[[int, int, str], None]


def run(subject: Subject, rules: Iterable[Rule], name: str, progress: Progress | None = None) -> CheckReport:
    """Asks the rules one after the other; nothing more is asked of a function that cannot be called."""
    asked = [(rule, tried) for rule in rules for tried in [is_asked(rule, subject)] if tried is not None]
    outcomes: list[Finding] = []
    for done, (rule, tried) in enumerate(asked):
        if tried and "gqa" in rule.needs and subject.layout not in ("bhnd", "bnhd"):
            continue  # no axis for key/value heads
        if rule.group == "gradient" and not subject.framework.differentiates:
            continue
        if subject.few_shapes and rule.name in _IN_MORE_SHAPES:
            continue
        if progress is not None:
            progress(done, len(asked), rule.name)
        outcomes.append(_outcome(rule, subject, tried))
        last = outcomes[-1]
        if last.status == FAILED and (rule.group == "called" or last.fault == HANGS):
            break  # what comes of later calls would say nothing
    calling = manner(subject) if outcomes[0].status != FAILED else "could not be called"
    return CheckReport(name, subject.contract.name, calling, tuple(outcomes), subject.seed)


def is_asked(rule: Rule, subject: Subject) -> bool | None:
    """Whether the rule is tried without having been promised; None where it is not asked."""
    missing = [need for need in rule.needs if not any(name in subject.declared for name in need.split("|"))]
    if not missing:
        return rule.tried and not rule.needs
    is_open = subject.contract.features is None and missing == ["gqa"] and rule.name == "grouped heads"
    return True if is_open else None


def _outcome(rule: Rule, subject: Subject, tried: bool) -> Finding:
    base, named = subject.base, dict(subject.named)
    try:
        found = rule.run(subject)
    except NoAnswer as no:
        if rule.tried and no.kind == "raised" and rule.name != "called":
            return Finding(rule.name, rule.group, NOT_OFFERED, no.what, where=no.where)
        fault = HANGS if no.kind == "hangs" else ""
        found = Finding(rule.name, rule.group, FAILED, no.what, fault=fault, where=no.where)
    if found.status != FAILED:
        return found
    if rule.name in subject.contract.notes:
        return replace(found, status=NOTE)
    if tried and "gqa" in rule.needs:
        subject.base, subject.named = base, named
        said = f"grouped heads are taken, though nothing says that they are served: {found.diagnosis}"
        return replace(found, status=NOTE, diagnosis=said)
    return found
