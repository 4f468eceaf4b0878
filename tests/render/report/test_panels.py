"""The panels of the page in a real browser: they say what the terminal says, in the words of the terminal."""

from typing import Any

import pytest

from headwise.plain.words import visible
from headwise.render.report.page import render_html
from headwise.render.report.schema import read
from tests.render.report.test_parts import two_texts
from tests.render.report.test_schema import current
from tests.render.reports import HOSTILE, make_report, own


def hostile_report() -> dict[str, Any]:
    """Odd tokens, all of them in a panel of the first head too."""
    report = read(own(make_report(HOSTILE, layers=2, heads=2)))
    heaviest = [[key, 1.0, 0.5] for key in range(len(HOSTILE))]
    report["layers"][0]["heads"][0]["received"] = {"heaviest": heaviest, "sinks": []}
    return report


DEMO_PAGE = render_html(make_report())  # without any panel
FULL_PAGE = render_html(current())  # with every panel, those of a head beside layer 0, head 0
HOSTILE_PAGE = render_html(hostile_report())


def cell(layer: int, head: int) -> str:
    return f'#grid [data-layer="{layer}"][data-head="{head}"]'


# Title of a panel of all heads -> what it says and the cells of its rows; see `current`.
TOGETHER = {
    "Attention sinks": [
        "Gu et al. 2024: a sink above 0.3", ['"[CLS]"', "0", "75 % of heads", "25 % of heads"]],
    "Random-token probe": ["4 sequences of 25 random tokens, 4 times over.",
                           ["0", "1", "0.25", "0.25", "0.25"], ["0", "1", "0.25", "0.25"]],
    "Heads that find the 2 gold pairs, both ways, among 4 candidates": [
        "", ["0", "1", "0.50", "0.10", "0.30", "–"]],
    "Heads that copy the needle (tokens 2–4 of the text)": [
        "1 of 4 heads copy more than 0.10 of it.", ["0", "1", "0.67", "0.05", "1.00"]],
    "Heads that look alike": ["2 heads: 0.0, 1.1"],
    "Attention rollout through all layers": ["", ["0–5", "0.50", "–"], ["6–12", "0.50", "–"]],
}  # fmt: skip
OF_HEAD = {
    "By offset": ["", ["−1", "0.50", "20 % of queries"], ["0", "–", "80 % of queries"], ["+1", "0.10", ""]],
    "By distance": ["", ["0", "0.20", "0.10"], ["1", "0.30", "0.20"], ["2 and more", "0.50", "0.70"]],
    "Tokens that receive most": ["", ['"cat"', "2", "3.00", "0.40"]],
}  # fmt: skip


def panel_of(page: Any, place: str, title: str) -> Any:
    return page.locator(f"{place} .panel").filter(has=page.get_by_role("heading", name=title, exact=True))


@pytest.mark.parametrize(
    ("place", "title"),
    [*(("#panels", title) for title in TOGETHER), *(("#head-panels", title) for title in OF_HEAD)],
)
def test_a_panel_says_what_the_terminal_says(show: Any, place: str, title: str) -> None:
    page = show(FULL_PAGE, "#layer=0&head=0")
    said, *rows = {**TOGETHER, **OF_HEAD}[title]
    panel = panel_of(page, place, title)
    assert panel.count() == 1 and said in panel.inner_text()
    lines = panel.locator("tbody tr").all()
    assert [line.locator("td").all_inner_texts() for line in lines] == rows
    assert panel.get_by_role("table", name=title).count() == panel.locator("thead").count()


def test_panels_stand_where_there_is_something_to_say(show: Any) -> None:
    page = show(FULL_PAGE, "#layer=0&head=0")
    assert page.locator("#panels h3").all_inner_texts() == list(TOGETHER)
    assert page.locator("#head-panels h3").all_inner_texts() == list(OF_HEAD)
    page.click(cell(1, 1))
    assert page.locator("#head-panels .panel").count() == 0
    plain = show(DEMO_PAGE)
    assert plain.locator("#together").is_hidden() and plain.locator(".panel").count() == 0


def test_cross_attention_has_its_panel(show: Any) -> None:
    page = show(render_html(two_texts()), "#layer=1&head=0")
    panel = panel_of(page, "#panels", "Cross-attention that moves along with the text")
    assert panel.locator("tbody td").all_inner_texts() == ["1", "0", "0.90", "0.90", "1", "1", "0.90", "0.90"]


def test_a_head_is_chosen_from_a_panel(show: Any) -> None:
    page = show(FULL_PAGE, "#layer=1&head=1", reduced_motion="reduce")
    button = (
        panel_of(page, "#panels", "Random-token probe").get_by_role("button", name="layer 0, head 1").first
    )
    button.focus()
    page.keyboard.press("Enter")
    assert page.inner_text("#head-title") == "Layer 0, head 1"
    assert page.evaluate("document.activeElement.id") == "head-panel"
    assert abs(page.evaluate("document.activeElement.getBoundingClientRect().top")) < 200


def test_a_head_that_the_page_does_not_have_is_no_button(show: Any) -> None:
    report = current()
    report["pairs"]["best"][0]["head"] = 7
    panel = panel_of(show(render_html(report)), "#panels", next(t for t in TOGETHER if "gold" in t))
    assert panel.get_by_role("button").count() == 0 and panel.locator("td").nth(1).inner_text() == "7"


def test_odd_tokens_in_a_panel_are_only_text(show: Any) -> None:
    page = show(HOSTILE_PAGE, "#layer=0&head=0")
    cells = page.locator("#head-panels td:first-child").evaluate_all("all => all.map(one => one.textContent)")
    assert cells == [f'"{visible(token)}"' for token in HOSTILE]
    assert page.locator(".panel img, .panel b, .panel script").count() == 0
