"""The page of a report: one offline HTML file.

Hand-written HTML, CSS and JavaScript from `assets/`, and the report as JSON in a script block that is never
run. The page is ASCII and asks for nothing; a policy inside forbids any request and any script but its own.
"""

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib import resources
from typing import Any

from headwise.render import pack, words
from headwise.render.words import Report

SCRIPTS = ("report_data.js", "report_head.js", "report.js")  # one script of the page, in this order


def render_html(report: Report, budget: int = 5_000_000) -> str:
    """One self-contained page, at most `budget` bytes, the same bytes for the same report.

    `report` is the dict of a `HeadReport`. A report too long for the budget keeps the strongest rows of every
    head, and the page says what was left out. Raises `HeadwiseError` for a dict that is no report, and for a
    budget too small for the least that makes sense (the message names that size).
    """
    report = words.checked(report)
    return pack.fit(report, budget, lambda data: _page(report, data))


def _page(report: Report, data: dict[str, Any]) -> str:
    css, script = _asset("report.css"), "\n".join(map(_asset, SCRIPTS))
    policy = [
        "default-src 'none'",
        f"script-src '{_digest(script)}'",
        f"style-src '{_digest(css)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    title = f"{words.visible(report['model']['name'])} \u2013 attention heads"
    parts = {
        "policy": "; ".join(policy),
        "title": _escaped(title),
        "version": _escaped(str(report["headwise"])),
        "css": css,
        "script": script,
        "data": to_script_json(data),
    }
    # One pass: what a part holds is never read again for placeholders.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("report.html"))


def to_script_json(data: Any) -> str:
    """JSON that cannot leave its script block: ASCII only, and no ``<``, ``>`` or ``&``."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _escaped(text: str) -> str:
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode("ascii")


@cache
def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="ascii")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("ascii")).digest()).decode("ascii")
