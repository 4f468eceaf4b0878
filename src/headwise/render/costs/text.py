"""The terminal views of a cost and of a head sweep."""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from headwise.plain.numbers import count, power, size
from headwise.plain.words import counted, visible
from headwise.render.trace import words as trace_words

Data = Mapping[str, Any]
_NAME = 24  # cells that names of quantities get at the most
_FORMULA = 28  # cells that a formula has beside its number in short
_NARROW = 16  # cells that a formula has beside its number at all
_BAR = 12  # cells of a share of 1
_BETWEEN, _INDENT = 2, "  "
SWEEP = ("h", "d_k", "matrix products", "scores, values", "exponentials", "softmax")
GROUPS = {
    "parameters": "Parameters",
    "pairs": "Query-key pairs of one head",
    "flops": "Forward pass",
    "backward": "Backward pass",
    "bytes": "Bytes read and written, forward",
    "intensity": "Arithmetic intensity",
    "cache": "Key/value cache",
    "activations": "Activations of attention",
}
_UNLESS_ZERO = ("flops.biases", "backward.biases")
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
    return _Cost(checked(cost, "headwise.cost"))


def render_sweep(sweep: Data) -> RenderableType:
    """The table of a head sweep; `sweep` is the dict of a `Sweep`."""
    return _Sweep(checked(sweep, "headwise.sweep"))


def to_text(data: Data, width: int = 100, color: bool = False) -> str:
    """A cost or a sweep as a string, with ANSI colours only where asked."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(render_sweep(data) if data.get("schema") == "headwise.sweep" else render_cost(data))
    return "\n".join(line.rstrip() for line in out.getvalue().split("\n")).rstrip("\n")


def checked(data: Data, schema: str) -> Data:
    """The data itself, or `ValueError` when it is not of that schema in a version that can be drawn."""
    return trace_words.plain_data(data, schema, 1)


def lengths(work: Data) -> str:
    """``batch 1 · 4,096 new tokens · 4,096 keys · 2 bytes a number``."""
    parts = [
        f"batch {count(work['batch'])}",
        counted(work["n_q"], "new token"),
        counted(work["n_k"], "key"),
    ]
    if work["cached"]:
        parts[-1] += f", {count(work['cached'])} of them cached"
    parts.append(f"{work['dtype_bytes']:g} bytes a number")
    if work["cache_bytes"] != work["dtype_bytes"]:
        parts.append(f"{work['cache_bytes']:g} in the cache")
    return " · ".join(parts)


def stack(cost: Data) -> str:
    """What the numbers are for: ``one layer`` or ``12 layers``."""
    layers = sum(kind["count"] for kind in cost["layers"])
    return "one layer" if layers == 1 else f"all {layers} layers (L = {layers})"


def groups(cost: Data) -> Iterator[tuple[str, list[Data]]]:
    """Title and quantities of every group; quantities without a sum are those of the first kind of layer."""
    totals = {quantity["key"]: quantity for quantity in cost["totals"]}
    order = [quantity["key"] for quantity in cost["layers"][0]["quantities"]]
    order += [key for key in totals if key not in order]
    single = {quantity["key"]: quantity for quantity in cost["layers"][0]["quantities"]}
    one_kind = len(cost["layers"]) == 1
    for prefix, title in GROUPS.items():
        keys = [key for key in order if key.partition(".")[0] == prefix]
        found = [totals[key] if key in totals else single[key] for key in keys if key in totals or one_kind]
        found = [quantity for quantity in found if quantity["value"] or quantity["key"] not in _UNLESS_ZERO]
        if found:
            yield title, found


def value(quantity: Data) -> str:
    """The number, with thousands apart."""
    return count(quantity["value"])


def short(quantity: Data) -> str:
    """A large number in words, "" for a small one."""
    if quantity["unit"] == "bytes":
        return size(quantity["value"]) if quantity["value"] >= 1024 else ""
    return power(quantity["value"]) if quantity["value"] >= 1e6 else ""


class _Cost:
    def __init__(self, cost: Data) -> None:
        self.cost = cost

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cost, width = self.cost, options.max_width
        yield Text(visible(cost["title"]), style="bold")
        if cost["work"]:
            yield Text(lengths(cost["work"]), style="dim")
        yield Text(f"numbers are for {stack(cost)}", style="dim")
        if len(cost["layers"]) > 1:
            yield Text()
            yield from _kinds(cost, width)
        found = list(groups(cost))
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
        self.value = max(cell_len(value(quantity)) for quantity in quantities)
        self.short = max(cell_len(short(quantity)) for quantity in quantities)
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
            line.append(_filled(names[i] if i < len(names) else "", self.name), style=bold)
            numbers = [(value(quantity), self.value, bold)]
            if self.has_short:
                numbers.append((short(quantity), self.short, "dim"))
            for text, room, style in numbers:
                line.append(" " * _BETWEEN + _filled("" if i else text, room, right=True), style=style)
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


def _filled(text: str, width: int, right: bool = False) -> str:
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces


def _grid(rows: list[list[str]], names: bool = True) -> list[Text]:
    """Rows in columns of numbers, the first of them of `names`; the first row is grey."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for i, row in enumerate(rows):
        cells = [
            _filled(text, width, right=j > 0 or not names)
            for j, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(Text((" " * _BETWEEN).join(cells), style="" if i else "dim"))
    return lines


def kind_names(cost: Data) -> list[str]:
    """``k1 = full attention``, one line per kind of layer; the letters stand in formulas."""
    return [f"{kind['letter']} = {visible(kind['name'])}" for kind in cost["layers"]]


def _kinds(cost: Data, width: int) -> Iterator[Text]:
    """What the letters stand for, and the numbers of one layer of each kind, one column per kind."""
    yield from map(Text, kind_names(cost))
    keys = {quantity["key"] for kind in cost["layers"] for quantity in kind["quantities"]}
    rows = [["one layer", "layers"]]
    rows[0] += ["new tokens", "keys"] if cost["work"] else []
    rows[0] += [name for key, name in _OF_A_KIND.items() if key in keys]
    for kind in cost["layers"]:
        found = {quantity["key"]: value(quantity) for quantity in kind["quantities"]}
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
        sweep, names = self.sweep, list(SWEEP)
        yield Text(sweep_title(sweep), style="bold")
        yield Text(sweep_lengths(sweep), style="dim")
        yield Text()
        table = [names, *(sweep_cells(row, count) for row in sweep["rows"])]
        if _wide_table(table) + _BETWEEN + _BAR > options.max_width:
            table = [names, *(sweep_cells(row, power) for row in sweep["rows"])]
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


def sweep_title(sweep: Data) -> str:
    return f"Heads from 1 to d_model = {count(sweep['d_model'])}"


def sweep_lengths(sweep: Data) -> str:
    """``batch 1 \u00b7 1,024 tokens \u00b7 causal``."""
    parts = [f"batch {count(sweep['batch'])}", counted(sweep["seq"], "token")]
    return " \u00b7 ".join(parts + (["causal"] if sweep["causal"] else []))


def sweep_cells(row: Data, written: Callable[[float], str]) -> list[str]:
    """The cells of one row, under the names of `SWEEP`."""
    large = [written(row[name]) for name in ("matmul", "scores", "exponentials")]
    return [count(row["heads"]), count(row["head_dim"]), *large, f"{row['softmax_share']:.1%}"]
