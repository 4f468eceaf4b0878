"""The terminal view of a check: what was found, in words; then every rule in one table."""

from collections.abc import Mapping
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwise.plain.numbers import error
from headwise.plain.stored import plain_data
from headwise.plain.words import counted, visible
from headwise.render.terminal import as_string

Data = Mapping[str, Any]
_MARKS = {
    "passed": ("\u2713", "green"),
    "failed": ("\u2717", "bold red"),
    "note": ("!", "yellow"),
    "follows": ("\u21b3", "red"),
    "not offered": ("\u00b7", "dim"),
}
_LABEL = 10  # cells of the words in front of a finding's lines
_DIGITS = 7  # cells of a number
_GAP = 2  # cells between two columns
_APART = ("values", "special cases", "gradient", "layer")  # groups with an empty line before them


def render_check(report: Data) -> RenderableType:
    """The view of a `CheckReport`, from its dict. Raises `ValueError` for a dict that is none."""
    return _Check(plain_data(report, "headwise.check", 1))


def to_text(report: Data, width: int = 100, color: bool = False) -> str:
    """The view as a string, with ANSI colours only where asked."""
    return as_string(render_check(report), width, color)


class _Check:
    def __init__(self, report: Data) -> None:
        self.report = report
        self.outcomes = report["outcomes"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        report = self.report
        title = Text("headwise check ", style="bold")
        title.append(visible(report["name"]), style="bold cyan")
        how = Text(f"{visible(report['calling'])}; contract {visible(report['contract'])}", style="dim")
        yield Group(title, how, Text(), self._verdict(), Text())
        for status in ("failed", "note"):
            for outcome in self.outcomes:
                if outcome["status"] == status:
                    yield self._finding(outcome)
        yield self._table(options.max_width)

    def _verdict(self) -> Text:
        failed = self._count("failed")
        notes, follows, passed = self._count("note"), self._count("follows"), self._count("passed")
        if self.report["passed"]:
            said = Text("Right", style="bold green")
            said.append(f": {counted(passed, 'rule')} kept", style="not bold")
        else:
            names = dict.fromkeys(
                outcome["fault"] or outcome["rule"]
                for outcome in self.outcomes
                if outcome["status"] == "failed"
            )
            said = Text("Wrong", style="bold red")
            said.append(f": {', '.join(names)}", style="bold")
            said.append(f"  ({counted(failed, 'rule')} failed, {passed} kept", style="not bold")
            said.append(
                f", {follows} more follow from the same mistake)" if follows else ")", style="not bold"
            )
        if notes:
            said.append(f"; {counted(notes, 'note')}", style="yellow")
        return said

    def _count(self, status: str) -> int:
        return sum(outcome["status"] == status for outcome in self.outcomes)

    def _finding(self, outcome: Data) -> RenderableType:
        mark, style = _MARKS[outcome["status"]]
        head = Text(f"{mark} ", style=style)
        head.append(outcome["fault"] or outcome["rule"], style=style)
        if outcome["fault"] and outcome["fault"] != outcome["rule"]:
            head.append(f"   rule: {outcome['rule']}", style="dim")
        lines = Table.grid(padding=(0, 1, 0, 0))
        lines.add_column(width=_LABEL, style="dim", no_wrap=True)
        lines.add_column()
        for label, text in (
            ("does", outcome["diagnosis"]),
            ("instead", outcome["repair"]),
            ("same as", ", ".join(outcome["also"])),
            ("at", outcome["where"]),
            ("shown by", outcome["evidence"]),
            ("error", _measure(outcome)),
            ("met in", ", ".join(outcome["seen"])),
        ):
            if text:
                lines.add_row(label, Text(_shown(text), overflow="fold"))
        return Group(head, Padding(lines, (0, 0, 0, 2)), Text())

    def _table(self, width: int) -> RenderableType:
        rules = max((cell_len(outcome["rule"]) for outcome in self.outcomes), default=4)
        fixed = 1 + _GAP + rules + _GAP + 2 * (_DIGITS + _GAP) + _GAP
        table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim", show_edge=False)
        table.add_column("", min_width=1, no_wrap=True)
        table.add_column("rule", min_width=rules, no_wrap=True)
        table.add_column("error", justify="right", min_width=_DIGITS, no_wrap=True)
        table.add_column("allowed", justify="right", min_width=_DIGITS, no_wrap=True)
        room = max(width - fixed - _GAP, 12)
        table.add_column("found", width=room, no_wrap=True, overflow="ellipsis")
        group = None
        for outcome in self.outcomes:
            if outcome["group"] != group and outcome["group"] in _APART and group is not None:
                table.add_row()
            group = outcome["group"]
            table.add_row(*self._cells(outcome))
        return table

    def _cells(self, outcome: Data) -> list[Text]:
        mark, style = _MARKS[outcome["status"]]
        dim = "dim" if outcome["status"] in ("not offered", "follows") else ""
        said = outcome["diagnosis"] if dim else outcome["fault"] or outcome["diagnosis"]
        said = f"not offered: {said}" if outcome["status"] == "not offered" else said
        cells = [(mark, style), (outcome["rule"], dim), (_short(outcome["error"]), dim)]
        cells += [(_short(outcome["allowed"]), dim), (_shown(said), dim or style)]
        return [Text(text, style=how) for text, how in cells]


def _shown(text: str) -> str:
    return visible(text) if text else ""


def _measure(outcome: Data) -> str:
    if outcome["error"] is None:
        return ""
    return f"{_short(outcome['error'])}, rounding allows {_short(outcome['allowed'])}"


def _short(value: float | None) -> str:
    return "" if value is None else error(value)
