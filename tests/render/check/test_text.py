"""The terminal view of a check: what stands first, what is cut, and that names cannot forge it."""

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len

from headwise import check_attention
from headwise.render.check.text import to_text
from tests.broken import functions


@pytest.fixture(scope="module")
def report():
    return check_attention(functions.forgets_maximum, name="mine.py:attention")


def test_the_verdict_comes_first(report):
    lines = to_text(report.to_dict()).splitlines()
    assert lines[0] == "headwise check mine.py:attention"
    assert lines[1] == "NumPy float64, (B, H, n, d); contract default"
    assert lines[3].startswith("Wrong: no maximum subtracted  (1 rule failed, ")
    assert lines[3].endswith("1 more follow from the same mistake)")
    assert str(report) == "\n".join(lines)


def test_findings_say_what_instead_and_where(report):
    text = to_text(report.to_dict())
    assert "\u2717 no maximum subtracted   rule: large scores" in text
    assert "  instead    e^(s - max s), row by row" in text
    assert "  at         batch 0, head 0, row 0, feature 0" in text
    assert re.search(r"\u2713  values +\d\.\de-\d\d  \d\.\de-\d\d", text)
    assert re.search(r"\u21b3  very low scores +.*follows from no maximum subtracted", text)
    assert re.search(r"\u00b7  grouped heads +not offered: raises ValueError", text)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(report, width):
    for line in to_text(report.to_dict(), width).splitlines():
        assert cell_len(line) <= width


def test_names_are_text_and_colours_only_where_asked(report):
    odd = replace(report, name="a[red]b\x1b[31m")
    text = to_text(odd.to_dict())
    assert "a[red]b\\x1b[31m" in text and "\x1b" not in text
    assert "\x1b[" in to_text(report.to_dict(), color=True)


def test_a_right_function_needs_few_lines():
    def attention(q, k, v):
        return functions.softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v

    text = to_text(check_attention(attention).to_dict())
    assert re.match(r"Right: \d+ rules kept", text.splitlines()[3])
    assert "instead" not in text


@pytest.mark.parametrize("data", [{}, [], {"schema": "headwise.check", "version": 9}])
def test_what_is_no_report(data):
    with pytest.raises(ValueError, match="data: expected"):
        to_text(data)
