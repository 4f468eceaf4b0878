"""Every rule as a test: what passes, fails, is skipped or is expected to fail."""

import textwrap

from headwise.check import RULES, parametrize_with_checks
from tests.broken import functions

pytest_plugins = ["pytester"]


def test_what_comes_of_a_broken_one(pytester):
    pytester.makepyfile(
        textwrap.dedent(
            """
            from headwise.check import parametrize_with_checks
            from tests.broken.functions import forgets_maximum

            @parametrize_with_checks(forgets_maximum, expected_failures={
                "large scores": "the maximum is not subtracted yet", "values": "it is right"})
            def test_attention(check):
                check()

            @parametrize_with_checks(forgets_maximum)
            def test_again(check):
                check()
            """
        )
    )
    result = pytester.runpytest("-p", "no:cacheprovider", "-rxf")
    outcomes = result.parseoutcomes()
    assert outcomes["xfailed"] == 1 + 2  # the expected one; "very low scores" follows from it, twice
    assert outcomes["failed"] == 2  # "values" passes, against what was expected; "large scores"
    result.stdout.fnmatch_lines(["*XFAIL*large-scores*the maximum is not subtracted yet*"])
    result.stdout.fnmatch_lines(["*large scores give NaN: the maximum is not subtracted*"])


def test_only_rules_that_can_be_asked_become_tests():
    mark = parametrize_with_checks(functions.leaks_future)
    ids = {case.id for case in mark.args[1]}
    assert {"values", "causal", "grouped-heads", "same-bits-again"} <= ids
    assert not {"mask", "layer", "soft-cap"} & ids
    assert len(ids) < len(RULES)
