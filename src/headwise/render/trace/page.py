"""The page of a trace: one offline HTML file, no script; it is the same for the same trace."""

from headwise.plain import numbers
from headwise.plain.words import visible
from headwise.render.pages.offline import escaped
from headwise.render.pages.plain import mathematics, page
from headwise.render.trace import words
from headwise.render.trace.words import Check, Fact, Step, StepArray, Trace

_MOST_ROWS, _MOST_COLUMNS = 16, 10


def render_html(trace: Trace) -> str:
    """One self-contained page.

    `trace` is the dict of a `Trace`. Raises `ValueError` for a dict that is no trace.
    """
    trace = words.checked(trace)
    fails = any(not check["holds"] for step in trace["steps"] for check in step["checks"])
    title = visible(trace["title"])
    body = [
        "<header>",
        '<p class="brand">headwise</p>',
        f"<h1>{escaped(title)}</h1>",
        f'<p class="lead">{escaped(visible(trace["about"]))}</p>' if trace["about"] else "",
        f'<p class="quiet math">{mathematics(words.subject(trace), formula=True)}</p>',
        f'<p class="verdict{" fails" if fails else ""}">{escaped(words.verdict(trace))}</p>',
        "</header>",
        '<main class="steps">',
        *(_step(trace, number, step) for number, step in enumerate(trace["steps"], 1)),
        "</main>",
        '<footer class="notes">',
        *(f"<p>{escaped(visible(note))}</p>" for note in (words.compared(trace), *trace["notes"])),
        f"<p>Made by headwise {escaped(trace['headwise'])}. This file is complete in itself and asks for "
        "nothing from the network.</p>",
        "</footer>",
    ]
    return page(f"{title} \u2013 headwise", trace["headwise"], "\n".join(part for part in body if part))


def _step(trace: Trace, number: int, step: Step) -> str:
    parts = [
        f'<section class="step" id="{escaped(step["key"])}">',
        "<div>",
        f'<h2><span class="number">{number}</span>{escaped(step["name"])}</h2>',
        f'<p class="why">{mathematics(step["why"])}</p>',
        f'<p class="formula math">{mathematics(step["formula"], formula=True)}</p>',
        _list("worked math", [mathematics(line) for line in map(visible, step["worked"])]),
        _facts(step["facts"]),
        _checks(step["checks"]),
        "</div>",
        '<div class="arrays">',
        *(_array(array, trace) for array in step["arrays"]),
        "</div>",
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _list(kind: str, items: list[str]) -> str:
    return f'<ul class="{kind}">{"".join(f"<li>{item}</li>" for item in items)}</ul>' if items else ""


def _facts(facts: list[Fact]) -> str:
    rows = [
        f"<div><dt>{mathematics(visible(item['name']))}</dt><dd>{escaped(words.fact(item))}</dd></div>"
        for item in facts
    ]
    return f'<dl class="facts">{"".join(rows)}</dl>' if rows else ""


def _checks(checks: list[Check]) -> str:
    lines = []
    for check in checks:
        error = escaped(words.check_error(check))
        kind = "" if check["holds"] else ' class="fails"'
        lines.append(f'<li{kind}>{mathematics(check["claim"])} <span class="error">{error}</span></li>')
    return f'<ul class="checks">{"".join(lines)}</ul>' if lines else ""


def _array(array: StepArray, trace: Trace) -> str:
    left_out = words.left_out(array)
    caption = (
        f'<b class="math">{mathematics(array["name"], formula=True)}</b> {escaped(array["meaning"])}<br>'
    )
    caption += f'<span class="math">{mathematics(words.shape(array), formula=True)}</span>'
    if left_out:
        caption += f" ({escaped(left_out)})"
    tables = [_table(table) for table in words.tables(array, trace, _MOST_ROWS, _MOST_COLUMNS)]
    heads = f'<div class="heads">{"".join(tables)}</div>' if tables else ""
    return f"<figure><h3>{caption}</h3>{heads}</figure>"


def _table(table: words.Table) -> str:
    columns = "".join(f'<th scope="col">{escaped(name)}</th>' for name in table.columns)
    rows = []
    for i, (name, cells) in enumerate(zip(table.rows, table.cells, strict=True)):
        shades = [0] * len(cells) if table.shades is None else table.shades[i]
        shown = "".join(_cell(text, shade) for text, shade in zip(cells, shades, strict=True))
        rows.append(f'<tr><th scope="row">{escaped(name)}</th>{shown}</tr>')
    head = f'<thead><tr><th scope="col">{escaped(table.caption)}</th>{columns}</tr></thead>'
    return f'<div class="matrix scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _cell(text: str, shade: int) -> str:
    kind = "hidden-key" if text == numbers.MINUS_INFINITY else f"w{shade}" if shade else ""
    return f'<td class="{kind}">{escaped(text)}</td>' if kind else f"<td>{escaped(text)}</td>"
