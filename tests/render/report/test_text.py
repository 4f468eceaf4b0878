"""The terminal view. `python -m tests.render.report.test_text` writes the golden file anew."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from headwise.errors import HeadwiseError
from headwise.render.report import words
from headwise.render.report.text import render_text, to_text
from tests.render.reports import HOSTILE, make_report, own

GOLDEN = Path(__file__).parents[2] / "golden" / "report_80.txt"


def test_golden_view_at_80_columns() -> None:
    assert to_text(make_report()) == GOLDEN.read_text(encoding="utf-8")


def test_the_view_says_what_a_reader_needs() -> None:
    text = to_text(make_report(), width=120)
    for needed in (
        "toy: 6 layers × 12 heads, 13 tokens",
        "max |Δ| = 0",
        "Most telling heads",
        "uniform",
        "Counting is from 0",
    ):
        assert needed in text
    assert "not proof" in text and "Jain and Wallace 2019" in text


def test_the_link_of_a_telling_head_is_printed_in_words() -> None:
    report = make_report()
    entry = {"layer": 5, "head": 11, "label": "unlabelled", "score": "max_weight", "value": 0.3, "null": 0.08}
    row = next(
        line for line in to_text(report | {"telling": [entry]}).splitlines() if line.startswith("    5")
    )
    assert row.split() == [
        "5",
        "11",
        "unlabelled,",
        "largest",
        "weight",
        "0.30",
        "0.08",
        '"it"',
        "→",
        '"cat"',
        ".41",
    ]


def telling_row(report: dict[str, Any], width: int, at: int = 0) -> str:
    return to_text(report, width).split("strongest link")[1].splitlines()[2 + at]


def test_a_label_that_is_called_like_its_score_is_printed_once() -> None:
    report = own(make_report())
    entry = report["telling"][0]
    assert entry["label"] == entry["score"] == "next"
    assert telling_row(report, 120).count("next token") == 1
    report["telling"] = [{**entry, "label": "separator", "score": "special"}]
    assert "separator, special tokens" in telling_row(report, 120)
    assert "separator, special tokens" not in telling_row(report, 70)


def test_a_label_out_of_some_rows_says_out_of_how_many() -> None:
    report = own(make_report())
    head = words.head_table(report)[2, 0]
    head["scores"]["induction"] |= {"share": 2 / 13, "rows": 2}
    report["telling"] = [{**report["telling"][0], "label": "induction", "score": "induction"}]
    assert "induction, in 2 of 13 rows" in telling_row(report, 80)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_links_are_whole_where_there_is_room(width: int) -> None:
    tokens = ["[CLS]", "because", "looked", "tired", "on", "the", "mat", "[SEP]"]
    report = own(make_report(tokens))
    next(score for score in report["scores"] if score["key"] == "max_weight")["name"] = "Max weight"
    table = to_text(report, width).split("strongest link")[1].split("All heads")[0]
    assert "…" not in table and '"because"' in table


def test_a_longer_link_takes_the_room_of_the_label() -> None:
    tokens = ["[CLS]", *(f"wonderful{i}" for i in range(6)), "[SEP]"]
    report = make_report(tokens)
    assert "…" not in to_text(report, 100).split("All heads")[0]
    narrow = to_text(report, 40).split("strongest link")[1].split("All heads")[0]
    assert all(re.search(r'" → ".*" ?(1|<?\.\d\d)$', line) for line in narrow.splitlines()[2:] if line)


def test_a_footnote_says_what_links_leave_out() -> None:
    assert words.LINKS_LEAVE_OUT in to_text(make_report(), 200)
    assert words.LINKS_LEAVE_OUT not in to_text(make_report(telling=[]), 200)


@pytest.mark.parametrize("width", [1, 10, 39, 40, 50, 62, 70, 80, 100, 200])
@pytest.mark.parametrize("name", ["demo", "hostile", "wide"])
def test_no_line_is_wider_than_asked(width: int, name: str) -> None:
    report = {
        "demo": make_report(),
        "hostile": make_report(HOSTILE, layers=3, heads=4),
        "wide": make_report(["漢字" * 30, "🙂", "it"], layers=2, heads=40),
    }[name]
    text = to_text(report, width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    if width >= 80:
        assert "…" not in text.split("strongest link")[0]


def test_odd_tokens_are_text_and_never_markup_or_control() -> None:
    report = make_report(["[red]", "\x1b[31m", ":smile:", "\ud800", "[/]", "\n"], layers=2, heads=6)
    text = to_text(report, width=120)
    assert "\x1b" not in text and "😄" not in text
    assert '"[red]"' in text and '":smile:"' in text
    text.encode("utf-8")


def test_colour_only_where_asked() -> None:
    report = make_report()
    assert "\x1b[" in to_text(report, color=True)
    assert "\x1b" not in to_text(report)


def test_the_surroundings_change_no_character(monkeypatch: pytest.MonkeyPatch) -> None:
    report = make_report()
    plain, painted = to_text(report, 120), to_text(report, 120, color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted).split() == plain.split()
    for name, value in (("NO_COLOR", "1"), ("FORCE_COLOR", "1"), ("COLUMNS", "20"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
        assert (to_text(report, 120), to_text(report, 120, color=True)) == (plain, painted), name


def test_the_map_gives_every_head_one_character() -> None:
    report = make_report(layers=3, heads=40)
    for width in (200, 80, 46):
        lines = to_text(report, width=width).splitlines()
        start = lines.index("All heads, by label") + 2
        rows = [line.replace(" ", "")[1:] for line in lines[start : start + 3]]
        assert [len(row) for row in rows] == [40, 40, 40], width
        labels = [head["label"] for head in report["layers"][1]["heads"]]
        assert ["·" if label == "unlabelled" else label[0].upper() for label in labels] == list(rows[1])
    assert "the map needs 46 columns" in to_text(report, width=45)


def test_a_report_can_be_printed_on_any_console() -> None:
    console = Console(width=90, record=True, file=io.StringIO(), color_system=None)
    console.print(render_text(make_report()))
    assert "Most telling heads" in console.export_text()


def test_notes_and_smallest_report() -> None:
    report = make_report(["hi"], layers=1, heads=1, notes=["One layer was left out.\x07"], check=None)
    text = to_text(report)
    assert "One layer was left out.\\x07" in text and "Self-test: not run." in text
    assert "–" in text  # one token links to no other
    assert "Most telling heads" not in to_text(report | {"telling": []})


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(HeadwiseError, match="expected a dict with schema"):
        render_text({"schema": "other"})


if __name__ == "__main__":
    GOLDEN.write_text(to_text(make_report()), encoding="utf-8", newline="\n")
