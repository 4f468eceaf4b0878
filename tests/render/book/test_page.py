"""The book as text: sealed, escaped, complete without script, the same bytes every time."""

import base64
import copy
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from headwise.errors import HeadwiseError
from headwise.learn.book.contents import book_html, make_book
from headwise.render.book.figures import draw_figure
from headwise.render.book.page import prose, render_book

BOOK = make_book()
PAGE = book_html()
VOID = {"meta", "link", "input", "br", "hr", "img"}
CLOSES_ITSELF = {"path", "rect", "line", "circle"}


class Reader(HTMLParser):
    """Checks that elements close in order, and collects ids, links and attributes."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.attributes = [], [], [], set()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)

    def handle_startendtag(self, tag, attrs):
        assert tag in CLOSES_ITSELF, tag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag


def read(page):
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def test_elements_close_and_links_lead_somewhere():
    reader = read(PAGE)
    assert len(set(reader.ids)) == len(reader.ids)
    inner = [link for link in reader.links if link.startswith("#")]
    assert len(inner) > 80 and {link[1:] for link in inner} <= set(reader.ids)
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert not {name for name in reader.attributes if name == "style" or name.startswith("on")}


def test_the_same_bytes_every_time():
    assert render_book(make_book()) == PAGE
    assert PAGE.isascii() and len(PAGE) < 400_000


def test_the_seal_names_what_is_inside():
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', PAGE)[1]
    assert policy.startswith("default-src 'none'; ")
    for kind, tag in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        (inner,) = re.findall(tag, PAGE, re.S)
        digest = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?:(?!//www\.w3\.org)", PAGE)


def test_it_reads_without_script():
    text = re.sub(r"<script.*?</script>|<style.*?</style>", "", PAGE, flags=re.S)
    for said in ("0.9999999958776928", "29.999999938165395", "1,048,576", "0.696304", "198.201379"):
        assert said in text
    for kind in ("lessons", "exercises", "questions"):
        assert len(BOOK[kind]) == text.count(
            {"lessons": 'class="lesson"', "exercises": 'id="exercise-', "questions": 'id="q-'}[kind]
        )
    assert text.count("<details") == len(BOOK["exercises"]) + len(BOOK["questions"]) + 1
    assert text.count('<details id="contents" open') == 1 and '<details class="qa" open' not in text


def test_whatever_a_book_holds_stays_text():
    book = copy.deepcopy(BOOK)
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e{{script}}"
    for lesson in book["lessons"]:
        lesson["title"] = lesson["claim"] = bad
        lesson["lab"] = {"kind": bad}
        lesson["table"] = [[bad, bad]]
    for question in book["questions"]:
        question["text"] = question["reason"] = question["evidence"] = bad
    for figure in book["figures"].values():
        figure["title"] = figure["caption"] = bad
    page = render_book(book)
    read(page)
    assert page.count("<script") == 2 and "<img" not in page and "\\u202e" in page
    (data,) = re.findall(r'<script type="application/json" id="book">(.*?)</script>', page, re.S)
    assert json.loads(data)["labs"]["A"]["kind"] == bad


@pytest.mark.parametrize("thing", [None, [], {}, {"schema": "headwise.report"}, "book"])
def test_what_is_no_book_is_refused(thing):
    with pytest.raises(HeadwiseError, match="book: expected the dict of make_book"):
        render_book(thing)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("d_k < h", "<i>d</i><sub>k</sub> &lt; h"),
        ("e^s", "e<sup>s</sup>"),
        ("e^(\u2212gap)", "e<sup>\u2212gap</sup>"),
        ("head_0", "head<sub>0</sub>"),
        ("head_(h\u22121) W_O", "head<sub>h\u22121</sub> <i>W</i><sub>O</sub>"),
    ],
)
def test_symbols(text, html):
    assert prose(text) == html


@pytest.mark.parametrize("key", BOOK["figures"])
def test_figures_are_drawn_inside_their_frame(key):
    svg = draw_figure(BOOK["figures"][key])
    read(svg)
    width, height = map(float, re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    for name, limit in (
        ("x", width),
        ("y", height),
        ("x1", width),
        ("x2", width),
        ("cx", width),
        ("cy", height),
    ):
        assert all(0 <= float(value) <= limit for value in re.findall(rf' {name}="([^"]+)"', svg)), name
    assert "nan" not in svg and "inf" not in svg


def test_the_collapse_ends_on_its_number():
    assert "0.99999999588" in draw_figure(BOOK["figures"]["collapse"])


def test_lines_are_as_thick_as_the_weights():
    figure = BOOK["figures"]["links"]
    widths = [float(width) for width in re.findall(r'stroke-width="([^"]+)"', draw_figure(figure))]
    assert [round((width - 1) / 15, 2) for width in widths] == [
        round(weight, 2) for weight in figure["weights"]
    ]
