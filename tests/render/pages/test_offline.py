"""What every page has in common: the policy fits what is inside, and templates are filled once."""

import base64
import hashlib
import re

import pytest

from headwise.costs.sweep import head_sweep
from headwise.learn.book.contents import book_html
from headwise.render.pages.offline import asset, escaped, filled, policy, to_ascii, to_script_json
from headwise.render.report.page import render_html
from headwise.trace.examples import example
from tests.render.reports import make_report

PAGES = {
    "report": lambda: render_html(make_report(3, 1, 2)),
    "book": book_html,
    "trace": lambda: example("A").to_html(),
    "sweep": lambda: head_sweep(4, 4).to_html(),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_lets_in_what_the_page_holds_and_nothing_else(name):
    page = PAGES[name]()
    (rules,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.split(" ", 1) for rule in rules.split("; "))
    kinds = {"style-src": re.findall(r"<style>(.*?)</style>", page, re.S)}
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    kinds |= {"script-src": scripts} if scripts else {}
    assert set(rules) == {"default-src", "img-src", "base-uri", "form-action", *kinds}
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    for kind, (text,) in kinds.items():
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[kind] == f"'sha256-{digest}'"
    assert page.isascii() and asset("pages/base.css") in page


def test_a_page_without_script_lets_no_script_in():
    assert "script-src" not in policy("a {}") and "default-src 'none'" in policy("a {}")


def test_what_fills_a_template_is_not_read_again():
    assert filled("<{{a}}{{b}}>", {"a": "{{b}}", "b": "x"}) == "<{{b}}x>"
    with pytest.raises(KeyError):
        filled("{{a}}", {})


def test_text_and_data_cannot_leave_their_place():
    assert escaped('<b a="1">&') == "&lt;b a=&quot;1&quot;&gt;&amp;"
    assert to_ascii("√d") == "&#8730;d"
    assert to_script_json({"a": "</script>&"}) == '{"a":"\\u003c/script\\u003e\\u0026"}'
