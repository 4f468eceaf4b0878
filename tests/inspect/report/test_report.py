"""The report: plain data, JSON both ways, versioned."""

import dataclasses
import html
import json
import re
import sys

import pytest

from headwise.errors import HeadwiseError
from headwise.inspect import HeadReport, inspect_heads
from tests.inspect.zoo import N_TOKENS


@pytest.fixture
def report(bert, ids):
    return inspect_heads(bert, ids, ["</script>", "it"] * 9 + ["\u2028é"], special=[0, N_TOKENS - 1])


def test_json_both_ways(report):
    again = HeadReport.from_json(report.to_json())
    assert again == report
    assert again.to_json() == report.to_json()


def test_dict_both_ways(report):
    data = report.to_dict()
    assert HeadReport.from_dict(data) == report
    assert (data["schema"], data["version"]) == ("headwise.report", 2)
    data["layers"][0]["heads"].clear()
    assert len(report.layers[0]["heads"]) == 6  # the dict is a copy


def test_the_fields_of_a_head(report):
    head = report.to_dict()["layers"][0]["heads"][0]
    assert list(head) == [
        "head", "label", "scores", "offsets", "distances", "received", "links", "evidence", "rows", "pooled",
    ]  # fmt: skip
    assert list(head["scores"]["duplicate"]) == ["value", "null", "share", "rows", "all_rows"]
    assert [len(row) for row in head["rows"]["index"]] == [6] * N_TOKENS
    assert head["pooled"]["block"] == 1 and len(head["pooled"]["map"]) == N_TOKENS


def test_only_plain_data(report):
    kinds = set()

    def walk(value):
        kinds.add(type(value))
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)

    walk(report.to_dict())
    assert kinds <= {dict, list, str, int, float, bool, type(None)}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_none_become_null(report, value):
    broken = dataclasses.replace(report, check={**report.check, "max_abs_difference": value})
    text = broken.to_json()
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads(text)["check"]["max_abs_difference"] is None


def test_a_report_is_frozen(report):
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.tokens = []


def test_what_is_no_report_is_refused(report):
    data = report.to_dict()
    for given, message in [
        ({**data, "schema": "other"}, r"expected a dict with schema 'headwise\.report'; received 'other'"),
        ({}, "received None"),
        ([], "received 'list'"),
        (
            {**data, "version": 3},
            r"expected version 2; received version 3\. Hint: pip install --upgrade",
        ),
        ({**data, "version": 1}, "received version 1"),
        ({**data, "version": None}, "received version None"),
        ({**data, "version": 0}, "received version 0"),
        ({key: value for key, value in data.items() if key != "layers"}, "received a report without layers"),
    ]:
        with pytest.raises(HeadwiseError, match=message):
            HeadReport.from_dict(given)
    with pytest.raises(HeadwiseError, match="expected JSON text; received what is not JSON text"):
        HeadReport.from_json("{")


def test_fields_of_a_later_release_are_passed_over(report):
    assert HeadReport.from_dict({**report.to_dict(), "more": 1}) == report


def test_the_terminal_view(report):
    assert "BertModel" in str(report) and "\n" in str(report)


def test_the_terminal_view_is_as_wide_as_the_terminal(report, monkeypatch):
    widths = []
    for columns in (80, 130):
        monkeypatch.setenv("COLUMNS", str(columns))
        widths.append(max(map(len, str(report).splitlines())))
    assert widths[0] <= 80 < widths[1] <= 130


def test_its_repr_is_one_short_line(report):
    assert repr(report) == f"HeadReport(BertModel, 3 layers x 6 heads, {N_TOKENS} tokens)"


def test_a_notebook_shows_the_page_in_a_frame(report):
    frame = report._repr_html_()
    (attributes,) = re.findall(r"^<iframe ([^<>]*)></iframe>$", frame)
    found = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
    assert html.unescape(found["srcdoc"]) == report.to_html()
    assert found["sandbox"] == "allow-scripts allow-forms" and found["title"] == repr(report)
    assert 400 <= int(re.search(r"height: (\d+)px", found["style"])[1]) <= 1000


def test_the_page(report):
    page = report.to_html()
    assert page.lstrip().lower().startswith("<!doctype html")
    assert "</script>it" not in page


def test_reading_a_report_needs_no_torch(report, monkeypatch):
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "BertModel" in str(HeadReport.from_json(report.to_json()))
