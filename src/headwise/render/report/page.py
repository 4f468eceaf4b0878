"""The page of a report: one offline HTML file.

Hand-written HTML, CSS and JavaScript from this folder, and the report as JSON in a script block that is never
run. The page is ASCII and asks for nothing; a policy inside forbids any request and any script but its own.
"""

from headwise.plain.words import visible
from headwise.render.pages.offline import asset, escaped, filled, policy, to_ascii, to_script_json
from headwise.render.report import pack
from headwise.render.report.schema import read
from headwise.render.report.words import Report

# One script of the page, in this order.
SCRIPTS = ("report_data.js", "report_panels.js", "report_head.js", "report.js")


def render_html(report: Report, budget: int = 5_000_000) -> str:
    """One self-contained page, at most `budget` bytes, the same bytes for the same report.

    `report` is the dict of a `HeadReport`. A report too long for the budget keeps the strongest rows of every
    head, and the page says what was left out. Raises `HeadwiseError` for a dict that is no report, and for a
    budget too small for the least that makes sense (the message names that size).
    """
    report = read(report)
    return pack.fit(report, budget, lambda data: _page(report, data))


def _page(report: Report, data: pack.Data) -> str:
    css = asset("pages/base.css") + asset("report/report.css")
    script = "\n".join(asset(f"report/{name}") for name in SCRIPTS)
    title = f"{visible(report['model']['name'])} \u2013 attention heads"
    parts = {
        "policy": policy(css, script),
        "title": to_ascii(escaped(title)),
        "version": to_ascii(escaped(report["headwise"])),
        "css": css,
        "script": script,
        "data": to_script_json(data),
    }
    return filled(asset("report/report.html"), parts)
