"""Every rule as a test of pytest.

from headwise.check import parametrize_with_checks

@parametrize_with_checks(my_attention, contract="torch-sdpa")
def test_attention(check):
    check()
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from headwise.check.rules.inquiry import is_asked
from headwise.check.subjects.contract import Contract
from headwise.check.subjects.presets import preset, preset_of
from headwise.check.subjects.subject import Subject
from headwise.check.suite import RULES, check_attention
from headwise.check.verdict.findings import FAILED, FOLLOWS, NOT_OFFERED, CheckReport, Finding
from headwise.errors import HeadwiseError
from headwise.plain.values import shown


def parametrize_with_checks(
    fn: Any,
    contract: Contract | str | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
    seed: int = 0,
) -> Callable[[Any], Any]:
    """Makes a test function of one argument ``check`` run once per rule; ``check()`` asserts it.

    The check itself runs once, when the first of these tests does. A rule that the function does not serve is
    skipped, with the reason. Rules in ``expected_failures`` (name -> reason) still run: they are reported as
    expected failures, and fail as soon as they pass.

    Raises:
        HeadwiseError: an expected failure names no rule, or has no reason.
    """
    import pytest

    expected = dict(expected_failures or {})
    names = [rule.name for rule in RULES]
    subject = Subject(fn, preset_of(fn) if contract is None else preset(contract))
    for name, reason in expected.items():
        if name not in names:
            raise HeadwiseError("expected_failures", "names of rules", shown(name), "headwise check --list")
        if not isinstance(reason, str) or not reason.strip():
            raise HeadwiseError("expected_failures", f"a reason for {name!r}", shown(reason))

    @cache
    def report() -> CheckReport:
        return check_attention(fn, contract, seed=seed)

    cases = [
        pytest.param(
            partial(_check, report, name),
            id=name.replace(" ", "-").replace(",", ""),
            marks=[pytest.mark.xfail(reason=expected[name], strict=True)] if name in expected else [],
        )
        for rule in RULES
        for name in [rule.name]
        if is_asked(rule, subject) is not None and ("layer" in rule.needs) == ("layer" in subject.declared)
    ]
    return pytest.mark.parametrize("check", cases)


def _check(report: Callable[[], CheckReport], name: str) -> None:
    import pytest

    outcome = next((outcome for outcome in report().outcomes if outcome.rule == name), None)
    if outcome is None:
        last = report().outcomes[-1]
        pytest.skip(
            f"not asked after {last.rule!r}: {last.diagnosis}" if last.diagnosis else "not asked here"
        )
    if outcome.status == NOT_OFFERED:
        pytest.skip(f"not offered: {outcome.diagnosis}")
    if outcome.status == FOLLOWS:
        pytest.xfail(outcome.diagnosis)  # its cause fails in a test of its own
    if outcome.status == FAILED:
        pytest.fail(sentence(outcome), pytrace=False)


def sentence(outcome: Finding) -> str:
    """A finding in a few lines."""
    lines = [f"{outcome.rule}: {outcome.diagnosis}", outcome.repair and f"instead: {outcome.repair}"]
    lines += [outcome.where and f"at {outcome.where}", outcome.evidence]
    if outcome.error is not None:
        lines.append(f"error {outcome.error:.2g}, rounding allows {outcome.allowed:.2g}")
    return "\n".join(filter(None, lines))
