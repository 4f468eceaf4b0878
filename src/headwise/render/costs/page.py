"""The pages of a cost and of a head sweep: one offline HTML file each, no script."""

import math
from collections.abc import Sequence

from headwise.plain.numbers import count
from headwise.plain.words import visible
from headwise.render.costs import words
from headwise.render.costs.words import Data
from headwise.render.pages.offline import escaped
from headwise.render.pages.plain import mathematics, page

_WIDTH, _HEIGHT = 720, 340
_MOST_TICKS = 12
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 24, 64


def render_cost(cost: Data) -> str:
    """Every number of a cost beside its formula; `cost` is the dict of a `Cost`."""
    cost = words.checked(cost, "headwise.cost")
    lengths = words.lengths(cost["work"]) if cost["work"] else ""
    body = [
        *_header(cost["title"], lengths, f"The numbers are for {words.stack(cost)}."),
        _list_of_kinds(cost),
        '<main class="costs">',
        *(_group(title, quantities) for title, quantities in words.groups(cost)),
        "</main>",
        _notes(cost["notes"], cost["headwise"]),
    ]
    return page(f"{visible(cost['title'])} \u2013 headwise", cost["headwise"], "\n".join(body))


def render_sweep(sweep: Data) -> str:
    """The plot and the table of a head sweep; `sweep` is the dict of a `Sweep`."""
    sweep = words.checked(sweep, "headwise.sweep")
    title = "What the number of heads costs"
    body = [
        *_header(title, f"{words.sweep_title(sweep)} \u00b7 {words.sweep_lengths(sweep)}", ""),
        "<main>",
        f'<figure class="plot scroll">{_plot(sweep)}</figure>',
        _sweep_table(sweep["rows"]),
        "</main>",
        _notes(sweep["notes"], sweep["headwise"]),
    ]
    return page(f"{title} \u2013 headwise", sweep["headwise"], "\n".join(body))


def _header(title: str, sizes: str, lead: str) -> list[str]:
    return [
        "<header>",
        '<p class="brand">headwise</p>',
        f"<h1>{escaped(visible(title))}</h1>",
        f'<p class="lead">{escaped(lead)}</p>' if lead else "",
        f'<p class="quiet">{mathematics(sizes)}</p>' if sizes else "",
        "</header>",
    ]


def _notes(notes: Sequence[str], version: str) -> str:
    lines = "".join(f"<p>{mathematics(visible(note))}</p>" for note in notes)
    made = (
        f"Made by headwise {escaped(version)}. This file is complete in itself and asks for nothing from the "
    )
    made += "network."
    return f'<footer class="notes">{lines}<p>{made}</p></footer>'


def _list_of_kinds(cost: Data) -> str:
    if len(cost["layers"]) == 1:
        return ""
    lines = [
        f"{name}, {count(kind['count'])} layers"
        for name, kind in zip(words.kind_names(cost), cost["layers"], strict=True)
    ]
    return f'<p class="quiet">{"<br>".join(map(escaped, lines))}</p>'


def _group(title: str, quantities: Sequence[Data]) -> str:
    rows = []
    for quantity in quantities:
        cells = [
            f'<th scope="row">{mathematics(visible(quantity["name"]))}</th>',
            f'<td class="value">{escaped(words.value(quantity))}</td>',
            f'<td class="short">{escaped(words.short(quantity))}</td>',
            f'<td class="math">{mathematics(quantity["formula"], formula=True)}'
            f'<span class="numbers">{escaped(_shortened(quantity["numbers"]))}</span></td>',
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    table = f'<div class="scroll"><table class="quantities"><tbody>{"".join(rows)}</tbody></table></div>'
    return f"<section><h2>{escaped(title)}</h2>{table}</section>"


def _shortened(numbers: str) -> str:
    return numbers if len(numbers) <= 90 else numbers[:88] + " \u2026"


def _sweep_table(rows: Sequence[Data]) -> str:
    head = "".join(f'<th scope="col">{mathematics(name, formula=len(name) < 4)}</th>' for name in words.SWEEP)
    lines = [
        f"<tr>{''.join(f'<td>{escaped(cell)}</td>' for cell in words.sweep_cells(row, count))}</tr>"
        for row in rows
    ]
    table = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return f'<div class="scroll"><table class="sweep">{table}</table></div>'


def _plot(sweep: Data) -> str:
    """Both axes logarithmic: products flat, exponentials rising; the number of heads across, d_k below it."""
    rows, cost = sweep["rows"], sweep["exponential"]
    series = [
        ("products", "matrix products of scores and values", [row["scores"] / 2 for row in rows]),
        ("softmax", f"exponentials, {cost:g} each", [cost * row["exponentials"] for row in rows]),
    ]
    values = [value for _, _, line in series for value in line]
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    across = [math.log2(row["heads"]) for row in rows]

    def x(i: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (across[i] / across[-1] if across[-1] else 0.5)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - math.log10(value)) / (high - low)

    parts = []
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(_LEFT - 10, at + 4, "end", f'10<tspan class="power" dy="-5">{power}</tspan>'))
    heads_at, widths_at = _HEIGHT - _BOTTOM + 22, _HEIGHT - _BOTTOM + 40
    for i in range(0, len(rows), max(1, math.ceil(len(rows) / _MOST_TICKS))):
        parts.append(_text(x(i), heads_at, "middle", str(rows[i]["heads"])))
        parts.append(_text(x(i), widths_at, "middle", str(rows[i]["head_dim"])))
    parts.append(_text(_LEFT - 40, heads_at, "start", '<tspan class="letter">h</tspan>'))
    below = '<tspan class="letter">d</tspan><tspan class="power" dy="3">k</tspan>'
    parts.append(_text(_LEFT - 40, widths_at, "start", below))
    for kind, _, line in series:
        points = [(x(i), y(value)) for i, value in enumerate(line)]
        joined = " ".join(f"{left:.1f},{top:.1f}" for left, top in points)
        parts.append(f'<polyline class="line {kind}" points="{joined}"/>')
        parts += [f'<circle class="{kind}" cx="{left:.1f}" cy="{top:.1f}" r="3"/>' for left, top in points]
    legend = "".join(f'<li class="{kind}">{escaped(name)}</li>' for kind, name, _ in series)
    label = "Multiply-adds of one layer against the number of heads: products stay flat, exponentials rise"
    return (
        '<figcaption class="quiet">Multiply-adds of attention in one layer, by number of heads</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
        f'<ul class="legend">{legend}</ul>'
    )


def _text(left: float, top: float, anchor: str, words: str) -> str:
    return f'<text class="tick" x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}">{words}</text>'
