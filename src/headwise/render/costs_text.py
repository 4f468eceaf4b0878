"""The terminal views of a cost and of a head sweep."""

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from headwise.render import trace_words, words
from headwise.render.numbers import count, power, size
from headwise.render.words import visible

Data = Mapping[str, Any]
_FORMULA = 26  # cells that formulas keep where the terminal has them
_BAR = 12  # cells of a share of 1
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
        words.count(work["n_q"], "new token"),
        words.count(work["n_k"], "key"),
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
        cost = self.cost
        blocks: list[RenderableType] = [Text(visible(cost["title"]), style="bold")]
        if cost["work"]:
            blocks.append(Text(lengths(cost["work"]), style="dim"))
        blocks.append(Text(f"numbers are for {stack(cost)}", style="dim"))
        if len(cost["layers"]) > 1:
            blocks += [Text(), _kinds(cost)]
        found = list(groups(cost))
        widths = [
            max(cell_len(text) for _, items in found for text in map(make, items))
            for make in (_name, value, short)
        ]
        for title, quantities in found:
            blocks += [Text(), Text(title, style="bold"), self._table(quantities, widths, options.max_width)]
        blocks += [Text(), *(Text(visible(note), style="dim") for note in cost["notes"])]
        yield Group(*blocks)

    def _table(self, quantities: list[Data], widths: list[int], width: int) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False)
        names = max(18, min(widths[0], width - widths[1] - widths[2] - 6 - _FORMULA))
        room = max(_FORMULA, width - names - widths[1] - widths[2] - 6)
        table.add_column(width=names, overflow="fold")
        table.add_column(width=widths[1], justify="right", no_wrap=True)
        table.add_column(width=widths[2], style="dim", justify="right", no_wrap=True)
        table.add_column(style="cyan", overflow="fold")
        for quantity in quantities:
            bold = "bold" if quantity["key"] in _SUMS else ""
            table.add_row(
                Text(_name(quantity), style=bold),
                Text(value(quantity), style=bold),
                short(quantity),
                _broken(quantity["formula"], room),
            )
        return table


def _broken(formula: str, width: int) -> str:
    """The formula in lines of `width` cells, broken after a space or a product's point."""
    lines, line = [], ""
    for piece in re.findall(r"[^ \u00b7]*(?: |\u00b7|$)", formula):
        if line and cell_len(line) + cell_len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return "\n".join([*lines, line])


def _name(quantity: Data) -> str:
    return f"  {visible(quantity['name'])}"


def kind_names(cost: Data) -> list[str]:
    """``A = full attention``, one line per kind of layer; the letters stand in formulas."""
    return [f"{kind['letter']} = {visible(kind['name'])}" for kind in cost["layers"]]


def _kinds(cost: Data) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
    there = {quantity["key"] for quantity in cost["layers"][0]["quantities"]}
    keys = [key for key in _OF_A_KIND if key in there]
    table.add_column("one layer")
    table.add_column("layers", justify="right")
    if cost["work"]:
        for name in ("n_q", "n_k"):
            table.add_column(name, justify="right")
    for key in keys:
        table.add_column(_OF_A_KIND[key], justify="right")
    for kind in cost["layers"]:
        found = {q["key"]: q for q in kind["quantities"]}
        lengths = [count(kind["work"][name]) for name in ("n_q", "n_k")] if cost["work"] else []
        table.add_row(kind["letter"], str(kind["count"]), *lengths, *(value(found[key]) for key in keys))
    return Group(*map(Text, kind_names(cost)), Text(), table)


class _Sweep:
    def __init__(self, sweep: Data) -> None:
        self.sweep = sweep

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sweep = self.sweep
        yield Text(
            f"Heads from 1 to d_model = {sweep['d_model']}, {count(sweep['seq'])} tokens", style="bold"
        )
        table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, show_edge=False, header_style="dim")
        for name in ("h", "d_k", "FLOPs of matrix products", "exponentials h·pairs", "softmax share"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("")
        for row in sweep["rows"]:
            share = row["softmax_share"]
            cells = [count(row[name]) for name in ("heads", "head_dim", "matmul", "exponentials")]
            table.add_row(*cells, f"{share:.1%}", Text("\u2588" * round(_BAR * share), style="cyan"))
        yield table
        yield Text()
        for note in sweep["notes"]:
            yield Text(visible(note), style="dim")
