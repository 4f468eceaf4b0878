"""The terminal view of a trace."""

from collections.abc import Iterator

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from headwise.plain.words import visible
from headwise.render.terminal import as_string, filled
from headwise.render.trace import words
from headwise.render.trace.words import Fact, Step, StepArray, Trace

_MOST_ROWS, _MOST_COLUMNS, _MOST_HEADS = 10, 12, 4
_INDENT = 3
_BETWEEN, _APART = 2, 4  # cells between columns, and between matrices
_HEAVY = 5  # tenths from which a weight is bold


def render_trace(trace: Trace, width: int | None = None) -> RenderableType:
    """The terminal view: every step with its formula, worked lines, matrices, facts and checks.

    `trace` is the dict of a `Trace`; `width` the columns to use (None: what the console offers). Raises
    `ValueError` for a dict that is no trace.
    """
    return _View(words.checked(trace), width)


def to_text(trace: Trace, width: int = 80, color: bool = False) -> str:
    """The terminal view as a string, with ANSI colours only where asked."""
    return as_string(render_trace(trace, width), width, color)


class _View:
    def __init__(self, trace: Trace, width: int | None) -> None:
        self.trace, self.width = trace, width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(self.width or options.max_width, 20)
        trace = self.trace
        yield Text(visible(trace["title"]), style="bold")
        if trace["about"]:
            yield Text(visible(trace["about"]))
        yield Text(words.subject(trace), style="dim")
        for number, step in enumerate(trace["steps"], 1):
            yield Text()
            heading = Text(f"{number}  ", style="dim")
            heading.append(step["name"], style="not dim bold")
            yield heading
            yield Padding(Group(*self._step(step, width - _INDENT)), (0, 0, 0, _INDENT))
        yield Text()
        failed = any(not check["holds"] for step in trace["steps"] for check in step["checks"])
        yield Text(words.verdict(trace), style="bold red" if failed else "bold green")
        for note in (words.compared(trace), *trace["notes"]):
            yield Text(visible(note), style="dim")

    def _step(self, step: Step, width: int) -> list[RenderableType]:
        parts: list[RenderableType] = [Text(step["why"]), Text(step["formula"], style="cyan")]
        parts += [Text(visible(line), style="dim") for line in step["worked"]]
        for array in step["arrays"]:
            parts += self._array(array, width)
        parts += [self._fact(fact) for fact in step["facts"]]
        for check in step["checks"]:
            mark, style = ("\u2713 ", "green") if check["holds"] else ("\u2717 ", "bold red")
            line = Text(mark, style=style)
            line.append(words.check_line(check), style="dim" if check["holds"] else "bold red")
            parts.append(line)
        return parts

    def _fact(self, fact: Fact) -> Text:
        line = Text(f"{visible(fact['name'])}: ")
        line.append(words.fact(fact), style="bold")
        return line

    def _array(self, array: StepArray, width: int) -> list[RenderableType]:
        caption = Text(array["name"], style="bold")
        caption.append(f"  {array['meaning']}, {words.shape(array)}", style="not bold")
        left_out = words.left_out(array, _MOST_HEADS)
        if left_out:
            caption.append(f" ({left_out})", style="not bold dim")
        return [caption, *_flow([_grid(table) for table in self._fitting(array, width)], width)]

    def _fitting(self, array: StepArray, width: int) -> list[words.Table]:
        """As many columns as the terminal has room for."""
        most = _MOST_COLUMNS
        while True:
            tables = list(words.tables(array, self.trace, _MOST_ROWS, most, _MOST_HEADS))
            if most <= 3 or all(_cells(table) <= width for table in tables):
                return tables
            widest = max(_cells(table) for table in tables)
            most = max(3, min(most - 1, most * width // widest))


def _cells(table: words.Table) -> int:
    """Columns that the table takes on a terminal."""
    return sum(_widths(table)) + _BETWEEN * len(table.columns)


def _widths(table: words.Table) -> list[int]:
    """Cells of the names of the rows, and of every column."""
    names = max(map(cell_len, (table.caption, *table.rows)))
    columns = zip(table.columns, *table.cells, strict=True)
    return [names, *(max(map(cell_len, column)) for column in columns)]


def _grid(table: words.Table) -> list[Text]:
    """The lines of one matrix, all equally wide: names grey, heavy weights bold."""
    names, *columns = _widths(table)
    first = Text(filled(table.caption, names), style="dim")
    for name, width in zip(table.columns, columns, strict=True):
        first.append(filled(name, width + _BETWEEN, right=True))
    lines = [first]
    for i, (name, row) in enumerate(zip(table.rows, table.cells, strict=True)):
        line = Text()
        line.append(filled(name, names), style="dim")
        for j, (cell, width) in enumerate(zip(row, columns, strict=True)):
            heavy = table.shades is not None and table.shades[i][j] >= _HEAVY
            line.append(filled(cell, width + _BETWEEN, right=True), style="bold" if heavy else "")
        lines.append(line)
    return lines


def _flow(grids: list[list[Text]], width: int) -> Iterator[Text]:
    """The matrices side by side, as many in a row as fit."""
    while grids:
        taken, used = 0, 0
        for grid in grids:
            used += cell_len(grid[0].plain) + (_APART if taken else 0)
            if taken and used > width:
                break
            taken += 1
        for parts in zip(*grids[:taken], strict=True):
            yield Text(" " * _APART).join(parts)
        grids = grids[taken:]
