"""What every page has in common: assets read once, and a policy in the page that lets it ask for nothing."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def asset(name: str) -> str:
    """The text of a file beside the pictures: ``report/report.css``."""
    return resources.files("headwise.render").joinpath(name).read_text(encoding="ascii")


def policy(css: str, script: str | None = None) -> str:
    """The content security policy of a page with this style and this script, no other, and no request."""
    rules = [
        "default-src 'none'",
        *([] if script is None else [f"script-src '{_digest(script)}'"]),
        f"style-src '{_digest(css)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its ``{{name}}`` filled, in one pass: what a part holds is not read again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], template)


def to_ascii(text: str) -> str:
    """HTML in which everything beyond ASCII is a character reference."""
    return text.encode("ascii", "xmlcharrefreplace").decode("ascii")


def escaped(text: str) -> str:
    """Text as it stands inside an element or an attribute."""
    return html.escape(str(text))


def to_script_json(data: Any) -> str:
    """JSON that cannot leave its script block: ASCII only, and no ``<``, ``>`` or ``&``."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("ascii")).digest()).decode("ascii")
