"""The page as a file: escaped, sealed, the same every time; in a browser it is tried beside this file."""

import base64
import hashlib
import json
from html.parser import HTMLParser

import pytest

from headwise.errors import HeadwiseError
from headwise.plain.words import visible
from headwise.render.pages.offline import to_script_json
from headwise.render.report.page import render_html
from tests.render.made_pages import data_of
from tests.render.reports import HOSTILE, make_report, own


class Reader(HTMLParser):
    """Every tag with its attributes, every comment, and the text of scripts, styles and the title."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": []}
        self.comments: list[str] = []
        self.open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open = tag
        if tag in self.texts:
            self.texts[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, text: str) -> None:
        if self.open in self.texts:
            self.texts[self.open][-1] += text

    def handle_comment(self, text: str) -> None:
        self.comments.append(text)


@pytest.mark.parametrize("token", HOSTILE)
def test_a_token_stays_a_token(token: str) -> None:
    plain = Reader(render_html(make_report(["a", "b"], layers=1, heads=1)))
    report = own(make_report([token, "b"], layers=1, heads=1))
    report["model"]["name"] = token
    report["notes"] = [token]
    report["text"]["source"] = token
    page = render_html(report)
    reader = Reader(page)
    assert [tag for tag, _ in reader.tags] == [tag for tag, _ in plain.tags]
    assert len(reader.texts["script"]) == 2
    assert page.lower().count("</script") == 2 and page.count("<!--") == 0 and reader.comments == []
    assert data_of(page)["tokens"] == [visible(token), "b"]
    assert reader.texts["title"] == [f"{visible(token)} – attention heads"]


def test_data_cannot_leave_its_script_block() -> None:
    text = to_script_json({"a<b>&\u2028": "</script><!--<script>\u2029é\ud800"})
    assert not set(text) & set("<>&\u2028\u2029é")
    assert text.isascii()
    assert json.loads(text) == {"a<b>&\u2028": "</script><!--<script>\u2029é\ud800"}


def test_what_is_not_finite_cannot_slip_in() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_script_json({"a": float("nan")})


def test_the_page_is_ascii_and_starts_as_html() -> None:
    page = render_html(make_report(HOSTILE, layers=1, heads=2))
    assert page.isascii() and page.startswith("<!doctype html>\n")


def test_same_report_same_bytes() -> None:
    report = make_report(60, layers=2, heads=3)
    again, before = json.loads(json.dumps(report)), own(report)
    assert render_html(report) == render_html(again) == render_html(report)
    assert report == before, "the report is not touched"
    assert render_html(make_report(60, layers=2, heads=3, seed=1)) != render_html(report)


def test_the_policy_allows_its_own_script_and_style_and_no_request() -> None:
    reader = Reader(render_html(make_report()))
    meta = next(found for _, found in reader.tags if found.get("http-equiv") == "Content-Security-Policy")
    rules = {rule.split()[0]: rule.partition(" ")[2] for rule in str(meta["content"]).split("; ")}
    assert rules["default-src"] == "'none'"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert rules["img-src"] == "data:" and rules["base-uri"] == rules["form-action"] == "'none'"
    for rule, text in (("script-src", reader.texts["script"][1]), ("style-src", reader.texts["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    names = [tag for tag, _ in reader.tags]
    first_code = min(names.index("style"), names.index("script"), names.index("link"))
    assert names.index("meta") < first_code, "a policy binds what comes after it"


def test_no_tag_points_outside_and_none_carries_code() -> None:
    for tag, attributes in Reader(render_html(make_report())).tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                assert value is not None and value.startswith(("#", "data:image/svg+xml,")), (tag, value)


def test_placeholders_in_a_report_are_only_text() -> None:
    page = render_html(make_report(["{{script}}", "{{policy}}"], layers=1, heads=1))
    assert data_of(page)["tokens"] == ["{{script}}", "{{policy}}"]
    assert "{{title}}" not in page


def test_the_page_carries_what_the_words_need() -> None:
    data = data_of(render_html(make_report(notes=["One thing was refused."])))
    assert data["subject"] == "6 layers × 12 heads, 13 tokens of the built-in example"
    assert "exactly the same" in data["selfTest"] and "Jain and Wallace 2019" in data["caveat"]
    assert data["notes"] == ["One thing was refused."]
    assert all(score["meaning"] and score["range"] and score["null"] for score in data["scores"])
    head = data["heads"][0]
    assert set(head) >= {"layer", "head", "label", "why", "links", "map", "keys", "weights"}


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(HeadwiseError, match="expected a dict with schema"):
        render_html({"schema": "other"})
