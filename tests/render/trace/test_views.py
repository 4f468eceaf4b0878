"""A trace as terminal text, as Markdown and as a page: everything is there, nothing breaks out, nothing is
asked for."""

import base64
import hashlib
import json
import re
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest

from headwise.render.trace.markdown import render_markdown
from headwise.render.trace.page import render_html
from headwise.render.trace.text import render_trace, to_text
from headwise.trace import explain
from headwise.trace.examples import EXAMPLES, example
from tests.render.reports import HOSTILE

example = cache(example)
VIEWS = (render_html, render_markdown, to_text)


def grouped(**more):
    rng = np.random.default_rng(0)
    mask = rng.random((4, 3, 5)) < 0.7
    mask[0, 0] = False
    return explain(
        rng.normal(size=(3, 6)),
        rng.normal(size=(5, 7)),
        w_q=rng.normal(size=(6, 8)),
        w_k=rng.normal(size=(7, 4)),
        w_v=rng.normal(size=(7, 6)),
        w_o=rng.normal(size=(12, 5)),
        b_v=rng.normal(size=6),
        num_heads=4,
        num_kv_heads=2,
        attn_mask=mask,
        **more,
    ).to_dict()


class Reader(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.comments, self.text = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.comments.append(data)


@pytest.mark.parametrize("view", VIEWS)
def test_every_step_formula_and_check_is_in_every_view(view):
    trace = grouped()
    shown = view(trace)
    shown = Reader(shown).text if view is render_html else shown
    flat = re.sub(r"[\s$\\{}_]", "", shown)
    for step in trace["steps"]:
        assert re.sub(r"\s", "", step["name"]) in flat
        for check in step["checks"]:
            assert re.sub(r"[\s_]", "", check["claim"]) in flat, check["claim"]
        if view is not render_markdown:
            assert re.sub(r"[\s_]", "", step["formula"]) in flat
        for fact in step["facts"]:
            assert re.sub(r"[\s_]", "", fact["name"]) in flat
    if view is render_markdown:
        assert all(f"$$ {step['latex']} $$" in shown for step in trace["steps"])
    assert re.sub(r"\s", "", trace["notes"][-1]) in flat


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_can_be_drawn(name):
    trace = example(name)
    assert trace.to_html().startswith("<!doctype html>\n") and trace.to_markdown().startswith("# Example ")
    assert max(map(len, to_text(trace.to_dict()).splitlines())) <= 80


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_the_terminal_view_keeps_to_its_width(width):
    for trace in (grouped(), example("F").to_dict(), example("2.1").to_dict()):
        lines = to_text(trace, width).splitlines()
        wide = [line for line in lines if len(line) > max(width, 44)]
        assert not wide, wide[:3]


def test_ascii_codes_only_where_asked():
    assert "\x1b" not in to_text(grouped()) and "\x1b[" in to_text(grouped(), color=True)


@pytest.mark.parametrize("token", HOSTILE)
def test_a_name_stays_a_name(token):
    names = {
        "tokens": [token, "b", "c"],
        "context_tokens": [token, "b", "c", "d", "e"],
        "title": token,
        "about": token,
    }
    hostile, plain = (
        render_html(grouped(**names)),
        render_html(grouped(tokens=list("abc"), context_tokens=list("abcde"))),
    )
    reader = Reader(hostile)
    about = [("p", {"class": "lead"})] if token else []
    assert [tag for tag, _ in reader.tags if tag != "p"] == [
        tag for tag, _ in Reader(plain).tags if tag != "p"
    ]
    assert [tag for tag in reader.tags if tag == ("p", {"class": "lead"})] == about and not reader.comments
    assert "<script" not in hostile.lower() and hostile.isascii()
    for text in (to_text(grouped(**names)), render_markdown(grouped(**names))):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)
    if token.startswith("["):
        assert token in to_text(grouped(**names), 200), "markup is not read"


def test_markdown_escapes_names():
    text = render_markdown(grouped(title="a*b_c <i> [x](y) $z$", tokens=["*", "_", "$"]))
    assert r"# a\*b\_c \<i\> \[x\]\(y\) \$z\$".replace(r"\(", "(").replace(r"\)", ")") in text


def test_the_page_forbids_everything():
    page = render_html(grouped())
    reader = Reader(page)
    policy = next(a["content"] for t, a in reader.tags if a.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert (
        set(rules) == {"default-src", "style-src", "img-src", "base-uri", "form-action"}
        and rules["img-src"] == "data:"
    )
    style = re.search(r"<style>(.*?)</style>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert rules["style-src"] == f"'sha256-{digest}'"
    for tag, attributes in reader.tags:
        assert tag not in ("script", "iframe", "img", "object", "form", "a")
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("style", "src"), (tag, name)
            if name == "href":
                assert value.startswith("data:image/svg+xml,")


def test_the_same_trace_gives_the_same_bytes():
    trace = grouped()
    again = json.loads(json.dumps(trace))
    for view in VIEWS:
        assert view(trace) == view(again)
    assert trace == again


def test_a_failing_check_is_seen_in_every_view():
    trace = json.loads(json.dumps(example("A").to_dict()))
    trace["steps"][3]["checks"][0] |= {"holds": False, "error": 0.25, "tolerance": 1e-12}
    assert "✗ every row of weights sums to 1; error 2.5e-01, allowed 1.0e-12" in to_text(trace)
    assert "1 of 8 checks do NOT hold." in to_text(trace)
    page = render_html(trace)
    assert (
        '<p class="verdict fails">1 of 8 checks do NOT hold.</p>' in page
        and page.count('<li class="fails">') == 1
    )
    assert "**FAILS** every row" in render_markdown(trace)


@pytest.mark.parametrize("view", [*VIEWS, render_trace])
def test_what_is_no_trace_is_refused(view):
    with pytest.raises(ValueError, match="expected a dict with schema 'headwise.trace'; received 'other'"):
        view({"schema": "other"})
    with pytest.raises(ValueError, match="received 'list'"):
        view([])
    with pytest.raises(ValueError, match="expected version 1 of headwise.trace; received 7"):
        view({"schema": "headwise.trace", "version": 7})


def test_long_arrays_lose_their_middle():
    text = to_text(example("2.1").to_dict())
    assert (
        "heads 4 to 7 are not shown" in text
        and "W_Q  makes queries, d_model × h·d_k = 512 × 512 (as given; too large" in text
    )
    assert re.search(r"^   9 .*…", text, re.M)
    markdown = render_markdown(example("2.1").to_dict())
    assert r"\cdots" in markdown and r"\begin{bmatrix}" in markdown


def test_latex_of_special_numbers():
    markdown = render_markdown(example("D").to_dict())
    assert r"2.0612 \times 10^{-9} & 2.0612 \times 10^{-9} & 0.99999999588" in markdown
    causal = explain(scores=np.zeros((2, 2)), value=np.eye(2), is_causal=True).to_dict()
    assert r"0 & -\infty \\ 0 & 0" in render_markdown(causal)
    assert r"\checkmark & \cdot \\ \checkmark & \checkmark" in render_markdown(causal)


def test_dollars_come_in_pairs():
    masked = explain(
        scores=np.zeros((2, 3)),
        value=np.eye(3),
        is_causal=True,
        query_offset=-1,
        attn_mask=np.full((2, 3), 0.5),
    )
    assert r"(Z_i + \text{bias})[r, j] & j \le r - 1 \\" in masked.to_markdown()
    for trace in (masked, *map(example, EXAMPLES)):
        for line in trace.to_markdown().splitlines():
            plain = line.replace(r"\$", "")
            assert plain.count("$") % 2 == 0, line
            if plain.startswith("$$"):
                assert (
                    plain.endswith("$$") and "$" not in plain[2:-2] and plain.count("{") == plain.count("}")
                )


def test_shades_follow_the_weights():
    trace = explain(scores=np.log([[0.96, 0.039, 0.001]]), value=np.eye(3)).to_dict()
    page = render_html(trace)
    assert re.findall(r'<td class="(w\d+)">', page) == ["w10", "w1", "w1"]
