"""Pages without script in a real browser: they draw, keep inside the window, and log and ask for nothing
(conftest)."""

from typing import Any

import numpy as np
import pytest

from headwise.costs import cost
from headwise.costs.sweep import head_sweep
from headwise.render.pages.plain import mathematics
from headwise.trace import explain
from headwise.trace.examples import example

PAGES = {
    "A": lambda: example("A").to_html(),
    "H": lambda: example("H").to_html(),
    "causal": lambda: explain(
        scores=np.arange(12.0).reshape(1, 3, 4) / 7,
        value=np.eye(4)[None],
        is_causal=True,
        query_offset=1,
        tokens=["</td>", "<b>cat", "\u202e."],
        context_tokens=list("abcd"),
    ).to_html(),
    "cost": lambda: cost(d_model=768, heads=12, layers=12, seq=4096, bias=True).to_html(),
    "sweep": lambda: head_sweep(512, 1024).to_html(),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_it_opens_and_keeps_inside_the_window(show: Any, name: str, scheme: str) -> None:
    page = show(PAGES[name](), color_scheme=scheme)
    assert page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    brightness = page.evaluate(
        "getComputedStyle(document.documentElement).backgroundColor.match(/[0-9.]+/g).slice(0, "
        "3).reduce((a, b) => a + +b, 0)"
    )
    assert (brightness > 600) == (scheme == "light")


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_a_phone(show: Any, name: str) -> None:
    page = show(PAGES[name](), width=390)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_what_is_read_is_what_was_computed(show: Any) -> None:
    page = show(PAGES["A"]())
    assert page.inner_text("#weights tbody") == "0\t0.669762\t0.330238\n1\t0.330238\t0.669762"
    assert page.inner_text("#blend tbody") == "0\t1.339523\t1.320954\n1\t0.660477\t2.679046"
    assert page.inner_text(".verdict") == "All 8 checks hold."
    assert page.locator(".checks li").count() == 8 and page.locator(".checks .fails").count() == 0


def test_names_are_shown_as_they_are(show: Any) -> None:
    page = show(PAGES["causal"]())
    assert page.locator("#weights tbody th").all_inner_texts() == ["</td>", "<b>cat", "\\u202e."]
    assert page.locator("#masked td.hidden-key").count() == 3


def test_heavier_weights_are_darker(show: Any) -> None:
    page = show(explain(scores=np.log([[0.7, 0.2, 0.1]]), value=np.eye(3)).to_html())
    sums = page.locator("#weights td").evaluate_all(
        "cells => cells.map(c => getComputedStyle(c).backgroundColor.match(/[0-9.]+/g).slice(0, "
        "3).reduce((a, b) => a + +b, 0))"
    )
    assert sums == sorted(sums) and len(set(sums)) == 3


def test_every_text_has_contrast(show: Any) -> None:
    """Shaded cells keep at least 4.5 : 1 between number and ground, in both schemes."""
    page_html = explain(scores=np.log(np.linspace(0.01, 1, 24)[None]), value=np.eye(24)).to_html()
    rows = np.array([[w, 1 - w] for w in np.linspace(0.0, 1.0, 11) if 0 < w < 1])
    page_html = explain(scores=np.log(rows), value=np.eye(2)).to_html()
    for scheme in ("light", "dark"):
        page = show(page_html, color_scheme=scheme)
        worst = page.locator("#weights td").evaluate_all(
            """cells => {
              const light = colour => {
                const [r, g, b] = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(
                  v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
                return .2126 * r + .7152 * g + .0722 * b;
              };
              return Math.min(...cells.map(cell => {
                const style = getComputedStyle(cell), [a, b] = [light(style.color),
                light(style.backgroundColor)]; return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
              }));
            }"""
        )
        assert worst >= 4.5, (scheme, worst)


@pytest.mark.parametrize(
    ("text", "formula", "html"),
    [
        ("W_Q to the latent", False, "<i>W</i><sub>Q</sub> to the latent"),
        ("w_q_down + w_o", True, "<i>w</i><sub>q down</sub> + <i>w</i><sub>o</sub>"),
        ("d_context_v", True, "<i>d</i><sub>context v</sub>"),
        ("n\u00b7d_k < b", True, "<i>n</i>\u00b7<i>d</i><sub>k</sub> &lt; <i>b</i>"),
        ("O_(h-1)", True, "<i>O</i><sub>(<i>h</i>-1)</sub>"),
    ],
)
def test_symbols_become_mathematics(text: str, formula: bool, html: str) -> None:
    assert mathematics(text, formula=formula) == html
