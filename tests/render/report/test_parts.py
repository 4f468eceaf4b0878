"""The parts of the terminal view that only some reports have, and the card of one head."""

import re

import pytest
from rich.cells import cell_len

from headwise.errors import HeadwiseError
from headwise.render.report.schema import read
from headwise.render.report.text import render_head, to_text
from headwise.render.terminal import as_string
from tests.render.report.test_schema import current
from tests.render.reports import HOSTILE, make_report, own


def test_every_part_is_drawn_with_what_uniform_attention_gives() -> None:
    text = " ".join(to_text(current(), 100).split())
    for needed in ('"[CLS]" 0 75 % of heads 25 % of heads', "above 0.3",
                   "Random-token probe", "4 sequences of 25 random tokens, 4 times over", "control",
                   "Heads that find the 2 gold pairs, both ways, among 4 candidates", "same distances",
                   "Heads that copy the needle (tokens 2–4 of the text)",
                   "6 tokens written, 4 of them tokens of the needle. 1 of 4 heads copy more than 0.10",
                   "every step counted", "0.67",
                   "Heads that look alike", "2 heads: 0.0, 1.1", "0.69 = no key in common",
                   "Attention rollout through all layers", "0–5", "uniform"):  # fmt: skip
        assert needed in text, needed


def test_reports_without_them_say_nothing_of_them() -> None:
    text = to_text(make_report())
    for absent in ("sinks", "probe", "gold", "needle", "alike", "rollout", "Cross-attention"):
        assert absent not in text


def test_a_needle_that_nobody_copies() -> None:
    report = current()
    report["needle"] |= {"start": 4, "best": [], "above": 0, "possible": 0}
    text = " ".join(to_text(report, 120).split())
    assert "the needle (token 4 of the text)" in text and "0 of 4 heads copy" in text
    assert "every step counted" not in text


def test_no_alike_heads_and_many_groups() -> None:
    report = current()
    report["redundancy"]["clusters"] = []
    assert "None (mean Jensen–Shannon divergence at most 0.05 nats" in to_text(report, 120)
    report["redundancy"]["clusters"] = [[[0, h] for h in range(20)]] + [[[1, 0], [1, 1]]] * 9
    text = to_text(report, 120)
    assert "20 heads: 0.0, 0.1" in text and "and 8 more" in text and "and 4 more groups" in text


def test_the_card_of_a_head() -> None:
    report = current()
    text = as_string(render_head(report, 0, 0), 100)
    head = report["layers"][0]["heads"][0]
    assert re.search(rf"Previous token +{head['scores']['previous']['value']:.2f}", text)
    assert "By offset" in text and "−1" in text and "80 % of queries" in text
    assert re.search(r"2 and more +0.50 +0.70", text) and "By distance" in text
    assert "Tokens that receive most" in text and '"cat"' in text
    assert "self-attention, from text to text" in text
    assert "By offset" not in as_string(render_head(report, 1, 1), 100)
    with pytest.raises(HeadwiseError, match="expected a layer from 0 to 1 and a head from 0 to 1"):
        render_head(report, 5, 0)


def test_both_readings_are_told() -> None:
    report = current()
    report["layers"][0]["heads"][0]["scores"]["previous"]["all_rows"] = 0.123
    assert "Over all queries: 0.12." in as_string(render_head(report, 0, 0), 160)


def two_texts() -> dict:
    """A report whose second layer looks from the text to a source of 5 tokens."""
    report = read(own(make_report(["a", "b", "c"], layers=2, heads=2)))
    report["sequences"].append({"name": "source", "tokens": list("vwxyz"), "special": [4]})
    layer = report["layers"][1]
    layer |= {"kind": "cross", "keys": "source"}
    for head in layer["heads"]:
        head["scores"] |= {
            key: {"value": 0.9, "null": 0.0, "share": None, "rows": 3, "all_rows": None}
            for key in ("alignment", "monotonic")
        }
        head["links"] = [[1, 3, 0.75], [0, 2, 0.5]]
        head["rows"] = {"queries": None, "index": [[3, 4], [3, 0], [1, 2]], "weight": [[0.5, 0.2]] * 3}
        head["pooled"] = {"block": 1, "map": [[0.2] * 5] * 3}
    return report


def test_links_between_two_texts() -> None:
    report = two_texts()
    report["telling"] = [
        {"layer": 1, "head": 0, "label": "unlabelled", "score": "max_weight", "value": 0.7, "null": 0.2}
    ]
    text = to_text(report, 100)
    assert '"b" → "y" .75' in text
    assert "Cross-attention that moves along with the text" in text and "0.90" in text


@pytest.mark.parametrize("width", [20, 40, 80])
def test_no_line_of_the_parts_is_wider_than_asked(width: int) -> None:
    report = current() | {"telling": []}
    hostile = read(own(make_report(HOSTILE, layers=1, heads=1)))
    hostile["layers"][0]["heads"][0]["received"] = {
        "heaviest": [[k, 1.0, 0.5] for k in range(30)],
        "sinks": [],
    }
    views = [to_text(report, width), as_string(render_head(hostile, 0, 0), width)]
    for view in views:
        assert max(cell_len(line) for line in view.splitlines()) <= width
        assert "\x1b" not in view
