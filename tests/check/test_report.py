"""The report: JSON both ways, JUnit, what counts as passed."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from headwise import HeadwiseError, check_attention
from headwise.check import CheckReport
from tests.broken import functions


@pytest.fixture(scope="module")
def broken():
    return check_attention(functions.forgets_scale)


@pytest.fixture(scope="module")
def noted():
    return check_attention(functions.gives_nan_in_empty_rows)


def test_json_both_ways(broken, noted):
    for report in (broken, noted):
        assert CheckReport.from_json(report.to_json()) == report
        assert json.loads(report.to_json())["passed"] == report.passed


def test_infinite_errors_are_left_out_of_json(broken):
    first = replace(broken.outcomes[0], error=float("inf"), allowed=1.0)
    text = replace(broken, outcomes=(first,)).to_json()
    assert json.loads(text)["outcomes"][0]["error"] is None


def test_findings_are_failures_then_notes(broken, noted):
    assert [found.status for found in broken.findings] == ["failed"]
    assert {found.status for found in noted.findings} == {"note"} and noted.passed
    assert broken.faults == ("no scale",) and not broken.passed
    assert any(outcome.status == "follows" for outcome in broken.outcomes)


def test_junit(broken, noted):
    suite = ElementTree.fromstring(broken.to_junit().encode())
    wrong = [outcome for outcome in broken.outcomes if outcome.status in ("failed", "follows")]
    assert int(suite.get("failures")) == len(wrong) == len(suite.findall(".//failure"))
    assert int(suite.get("tests")) == len(broken.outcomes) == len(suite.findall("testcase"))
    assert suite.find(".//failure").get("message") == "the scores are not scaled"
    assert "expected" in suite.find(".//failure").text
    quiet = ElementTree.fromstring(noted.to_junit().encode())
    assert quiet.get("failures") == "0"
    assert any("NaN" in out.text for out in quiet.findall(".//system-out"))


def test_junit_takes_any_text(broken):
    odd = replace(broken.outcomes[0], status="failed", diagnosis="<b>&\x00\x1b[31m")
    suite = ElementTree.fromstring(replace(broken, outcomes=(odd,)).to_junit().encode())
    assert suite.find(".//failure").get("message") == "<b>&[31m"


def test_a_status_that_is_none(broken):
    data = broken.to_dict()
    data["outcomes"][0]["status"] = "fine"
    with pytest.raises(HeadwiseError):
        CheckReport.from_dict(data)
