"""A page without script: one offline HTML file that asks for nothing, with a policy inside that forbids
it."""

import re

from headwise.render.pages.offline import asset, escaped, policy, to_ascii

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 3C8 3 8 12 14 12M2 8C8 8 8 4 14 4' fill='none' stroke='%232f6f9f' stroke-width='2.4' "
    "stroke-linecap='round'/%3E%3C/svg%3E"
)
_LETTER = re.compile(r"(?<![A-Za-z])([A-Za-z\u03a3])_(\([^)]*\)|[A-Za-z0-9]+(?:_[a-z0-9]+)*)")
_ALONE = re.compile(r"(?<![A-Za-z0-9&;/<>#_])([A-Za-z])(?![A-Za-z0-9;<>_])")


def page(title: str, version: str, body: str) -> str:
    """The whole file; `body` is HTML, already escaped, and becomes ASCII here."""
    css = "".join(asset(f"pages/{name}.css") for name in ("base", "worked", "plain"))
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy(css)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f'<meta name="generator" content="headwise {escaped(version)}">',
        f"<title>{escaped(title)}</title>",
        f'<link rel="icon" href="{_ICON}">',
        f"<style>{css}</style>",
        "</head>",
        "<body>",
    ]
    return to_ascii("\n".join([*head, body, "</body>", "</html>", ""]))


def mathematics(text: str, formula: bool = False) -> str:
    """Words with symbols as HTML: ``d_k`` gets its index below; in a formula every single letter leans."""
    found = escaped(text)
    if formula:
        found = _ALONE.sub(r"<i>\1</i>", found)
    return _LETTER.sub(lambda m: f"<i>{m[1]}</i><sub>{m[2].replace('_', ' ')}</sub>", found)
