"""The terminal views of a cost and of a head sweep."""

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from headwise.plain.numbers import count, power
from headwise.plain.words import visible
from headwise.render.costs import words
from headwise.render.costs.words import Data
from headwise.render.terminal import as_string, filled

_NAME = 24  # cells that names of quantities get at the most
_FORMULA = 28  # cells that a formula has beside its number in short
_NARROW = 16  # cells that a formula has beside its number at all
_BAR = 12  # cells of a share of 1
_BETWEEN, _INDENT = 2, "  "
_OF_A_KIND = {
    "parameters.total": "parameters",
    "pairs.visible": "visible pairs",
    "flops.matmul": "FLOPs of products",
    "cache.token": "cache, a token",
    "cache.total": "cache",
}
_SUMS = (
    "parameters.total", "flops.matmul", "flops.forward", "backward.matmul", "backward.total",
    "bytes.streaming", "bytes.eager", "cache.total",
)  # fmt: skip


def render_cost(cost: Data) -> RenderableType:
    """The tables of a cost, every number beside its formula.

    `cost` is the dict of a `Cost`. Raises `ValueError` for a dict that is none.
    """
    return _Cost(words.checked(cost, "headwise.cost"))


def render_sweep(sweep: Data) -> RenderableType:
    """The table of a head sweep; `sweep` is the dict of a `Sweep`."""
    return _Sweep(words.checked(sweep, "headwise.sweep"))


def to_text(data: Data, width: int = 100, color: bool = False) -> str:
    """A cost or a sweep as a string, with ANSI colours only where asked."""
    view = render_sweep(data) if data.get("schema") == "headwise.sweep" else render_cost(data)
    return as_string(view, width, color)


class _Cost:
    def __init__(self, cost: Data) -> None:
        self.cost = cost

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cost, width = self.cost, options.max_width
        yield Text(visible(cost["title"]), style="bold")
        if cost["work"]:
            yield Text(words.lengths(cost["work"]), style="dim")
        yield Text(f"numbers are for {words.stack(cost)}", style="dim")
        if len(cost["layers"]) > 1:
            yield Text()
            yield from _kinds(cost, width)
        found = list(words.groups(cost))
        columns = _Columns([quantity for _, quantities in found for quantity in quantities], width)
        for title, quantities in found:
            yield Text()
            yield Text(title, style="bold")
            for quantity in quantities:
                yield from columns.lines(quantity)
        yield Text()
        for note in cost["notes"]:
            yield Text(visible(note), style="dim")


class _Columns:
    """Name, value, the value in short, and the formula of every quantity, in columns.

    On a narrow terminal the short values go first, then formulas move to lines of their own: a number is
    never cut, and a formula breaks where its sums do.
    """

    def __init__(self, quantities: list[Data], width: int) -> None:
        self.value = max(cell_len(words.value(quantity)) for quantity in quantities)
        self.short = max(cell_len(words.short(quantity)) for quantity in quantities)
        self.name = min(max(cell_len(visible(quantity["name"])) for quantity in quantities), _NAME)
        room = width - len(_INDENT) - self.name - self.value - 2 * _BETWEEN
        self.has_short = room - self.short - _BETWEEN >= _FORMULA
        self.formula = room - self.short - _BETWEEN if self.has_short else room
        self.below = self.formula < _NARROW
        if self.below:
            self.has_short = self.short + _BETWEEN <= room + _BETWEEN
            self.formula = max(width - 3 * len(_INDENT), _NARROW)

    def lines(self, quantity: Data) -> Iterator[Text]:
        bold = "bold" if quantity["key"] in _SUMS else ""
        names = wrapped(visible(quantity["name"]), self.name)
        formulas = broken(quantity["formula"], self.formula)
        for i in range(max(len(names), 1 if self.below else len(formulas))):
            line = Text(_INDENT)
            line.append(filled(names[i] if i < len(names) else "", self.name), style=bold)
            numbers = [(words.value(quantity), self.value, bold)]
            if self.has_short:
                numbers.append((words.short(quantity), self.short, "dim"))
            for text, room, style in numbers:
                line.append(" " * _BETWEEN + filled("" if i else text, room, right=True), style=style)
            if not self.below and i < len(formulas):
                line.append(" " * _BETWEEN + formulas[i], style="cyan")
            line.rstrip()
            yield line
        if self.below:
            yield from (Text(3 * _INDENT + formula, style="cyan") for formula in formulas)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken between words, later lines set in."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if line and cell_len(longer) > width:
            lines.append(line)
            longer = f"{_INDENT}{word}"
        line = longer
    return [*lines, line]


def broken(formula: str, width: int) -> list[str]:
    """The formula in lines of `width` cells: broken before a plus, else at a space, else after a point."""
    lines, line = [], ""
    for piece in re.findall(r".+?(?= [+\u2212/] |$)", formula):
        if line and cell_len(line + piece) > width:
            lines.append(line)
            line, piece = "", piece.lstrip()
        if cell_len(line + piece) <= width:
            line += piece
            continue
        for part in re.findall(r"[^ \u00b7]*(?:[ \u00b7]|$)", piece):
            if line and cell_len(line + part.rstrip()) > width:
                lines.append(line.rstrip())
                line, part = "", part.lstrip()
            line += part
    return [*lines, line.rstrip()]


def _grid(rows: list[list[str]], names: bool = True) -> list[Text]:
    """Rows in columns of numbers, the first of them of `names`; the first row is grey."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        cells = [
            filled(text, width, right=j > 0 or not names)
            for j, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(Text((" " * _BETWEEN).join(cells), style="" if i else "dim"))
    return lines


def _kinds(cost: Data, width: int) -> Iterator[Text]:
    """What the letters stand for, and the numbers of one layer of each kind, one column per kind."""
    yield from map(Text, words.kind_names(cost))
    keys = {quantity["key"] for kind in cost["layers"] for quantity in kind["quantities"]}
    rows = [["one layer", "layers"]]
    rows[0] += ["new tokens", "keys"] if cost["work"] else []
    rows[0] += [name for key, name in _OF_A_KIND.items() if key in keys]
    for kind in cost["layers"]:
        found = {quantity["key"]: words.value(quantity) for quantity in kind["quantities"]}
        column = [kind["letter"], count(kind["count"])]
        column += [count(kind["work"][name]) for name in ("n_q", "n_k")] if cost["work"] else []
        column += [found.get(key, "\u2013") for key in _OF_A_KIND if key in keys]
        rows.append(column)
    names, columns = rows[0], rows[1:]
    while columns:
        taken = 1
        while taken < len(columns) and _wide([names, *columns[: taken + 1]]) <= width:
            taken += 1
        yield Text()
        yield from _grid([list(row) for row in zip(names, *columns[:taken], strict=True)])
        columns = columns[taken:]


def _wide(columns: list[list[str]]) -> int:
    return sum(max(map(cell_len, column)) for column in columns) + _BETWEEN * (len(columns) - 1)


class _Sweep:
    def __init__(self, sweep: Data) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sweep, names = self.sweep, list(words.SWEEP)
        yield Text(words.sweep_title(sweep), style="bold")
        yield Text(words.sweep_lengths(sweep), style="dim")
        yield Text()
        table = [names, *(words.sweep_cells(row, count) for row in sweep["rows"])]
        if _wide_table(table) + _BETWEEN + _BAR > options.max_width:
            table = [names, *(words.sweep_cells(row, power) for row in sweep["rows"])]
        bar = max(0, min(_BAR, options.max_width - _wide_table(table) - _BETWEEN))
        shares = [0.0, *(row["softmax_share"] for row in sweep["rows"])]
        for line, share in zip(_grid(table, names=False), shares, strict=True):
            line.append(" " * _BETWEEN + "\u2588" * round(bar * share), style="cyan")
            line.rstrip()
            yield line
        yield Text()
        for note in sweep["notes"]:
            yield Text(visible(note), style="dim")


def _wide_table(rows: list[list[str]]) -> int:
    return _wide([list(column) for column in zip(*rows, strict=True)])
