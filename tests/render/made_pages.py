"""Reading a page back: what its data block holds, decoded without the code that wrote it."""

import base64
import json
import re
import struct
from functools import cache
from typing import Any

from headwise.render.report.page import render_html
from tests.render.reports import make_report


@cache
def long_page(tokens: int, layers: int, heads: int, budget: int = 5_000_000) -> str:
    """The page of a made-up report; several tests look at the same long ones."""
    return render_html(make_report(tokens, layers, heads), budget)


def data_of(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)
    return json.loads(text)


def integers(text: str, size: int = 2) -> list[int]:
    raw = base64.b64decode(text)
    return list(struct.unpack(f"<{len(raw) // size}{'H' if size == 2 else 'I'}", raw))


def weights(text: str, data: dict[str, Any]) -> list[float | None]:
    one, missing = data["encoding"]["one"], data["encoding"]["missing"]
    return [None if code == missing else code / one for code in integers(text)]


def rows(head: dict[str, Any], data: dict[str, Any]) -> dict[int, list[tuple[int, float]]]:
    """query -> its (key, weight) pairs, best first, as the page would show them."""
    size, wide = data["encoding"]["indexBytes"], head["perRow"]
    keys, values = integers(head["keys"], size), weights(head["weights"], data)
    queries = integers(head["queries"], size) if "queries" in head else range(len(keys) // wide)
    found: dict[int, list[tuple[int, float]]] = {}
    for at, query in enumerate(queries):
        here = slice(at * wide, (at + 1) * wide)
        found[query] = [(k, w) for k, w in zip(keys[here], values[here], strict=True) if w is not None]
    return found
