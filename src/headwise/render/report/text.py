"""The terminal view of a report, and the whole card of one of its heads.

`render_text` gives something that rich can print at any width; `to_text` gives the same as a string. Tokens
are laid as plain text, never as markup.
"""

from collections.abc import Sequence

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from headwise.errors import HeadwiseError
from headwise.plain.numbers import rounded
from headwise.plain.words import inner, sentence, visible
from headwise.render.report import words
from headwise.render.report.parts import IN_WORDS, Part, head_parts, parts
from headwise.render.report.schema import read
from headwise.render.report.words import Entry, Head, Label, Report
from headwise.render.terminal import as_string

_COLUMNS = ("layer", "head", "label", "value", "uniform", "strongest link")
_NUMBERS = ("layer", "head", "value", "uniform")
_GAP = 2  # cells between two columns
_LINK_FRAME = 12  # cells of `""`, ` → `, `""` and ` <.01` around the two words of a link
_MIN_WORDS = 7  # cells that the two words keep whatever the width
_GOOD_LINK = _LINK_FRAME + 11  # cells that a link gets before the label says more than its name
_SHORT_LINK = _LINK_FRAME + 5  # cells that it gets before the numbers have their columns


def render_text(report: Report, width: int | None = None) -> RenderableType:
    """The terminal view: a head line, the most telling heads, the map of labels, and how to read them.

    `report` is the dict of a `HeadReport`; `width` the columns to use (None: what the console offers). Raises
    `HeadwiseError` for a dict that is no report.
    """
    return _View(read(report), width)


def render_head(report: Report, layer: int, head: int) -> RenderableType:
    """The whole card of one head: every score beside what uniform attention gives, and what each one is.

    Raises `HeadwiseError` for a dict that is no report, and for a head that it does not have.
    """
    report = read(report)
    table = words.head_table(report)
    if (layer, head) not in table:
        layers, heads = sorted({at for at, _ in table}), sorted({at for _, at in table})
        expected = f"a layer from {layers[0]} to {layers[-1]} and a head from {heads[0]} to {heads[-1]}"
        raise HeadwiseError("head", expected, f"layer {layer}, head {head}", "--head 5.11")
    found = table[layer, head]
    where = next(entry for entry in report["layers"] if entry["layer"] == layer)
    label = next((one for one in report["labels"] if one["key"] == found["label"]), None)
    names = {one["key"]: one["name"] for one in report["scores"]}
    title = Text(f"Layer {layer}, head {head}: ", style="bold")
    title.append(visible(label["name"] if label else found["label"]))
    if label is not None and label["score"] is not None:
        title.append(f" ({visible(words.rule(label, found, names))})", style="not bold")
    kind = "cross-attention" if where["kind"] == "cross" else "self-attention"
    place = Text(visible(f"{where['name']}: {kind}, from {where['queries']} to {where['keys']}"), style="dim")
    more = [line for part in head_parts(report, where, found) for line in (Text(), *_part(part))]
    return Group(title, place, Text(), _card(report, found), *more)


def to_text(report: Report, width: int = 80, color: bool = False) -> str:
    """The terminal view as a string, `width` columns wide, with ANSI colours only where asked."""
    return as_string(render_text(report, width), width, color) + "\n"


class _View:
    """Lays the report out once the width is known."""

    def __init__(self, report: Report, width: int | None) -> None:
        self.report, self.width = report, width
        self.texts = words.texts(report)
        self.layers = {layer["layer"]: layer for layer in report["layers"]}
        self.labels = {label["key"]: label for label in report["labels"]}
        self.scores = {one["key"]: one for one in report["scores"]}
        self.letters = words.letters(report["labels"])
        self.heads = words.head_table(report)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(self.width or options.max_width, 1)
        blocks = [*self._opening(), Text()]
        if self.report["telling"]:
            blocks += [Text("Most telling heads", style="bold"), self._telling(width), Text()]
        blocks += [Text("All heads, by label", style="bold"), *self._map(width), self._legend(width), Text()]
        blocks += [line for part in parts(self.report) for line in (*_part(part), Text())]
        blocks += [Text(visible(note)) for note in self.report.get("notes", ())]
        yield Group(*blocks, *self._closing())

    def _opening(self) -> list[RenderableType]:
        title = Text(f"headwise {self.report['headwise']}  ", style="bold")
        title.append(f"{visible(self.report['model']['name'])}: ", style="not bold")
        title.append(words.subject(self.report), style="not bold")
        return [title, Text(words.self_test(self.report.get("check")), style="dim")]

    def _telling(self, width: int) -> RenderableType:
        entries = self.report["telling"]
        links = [self._link(entry) for entry in entries]
        widest = max(map(cell_len, links))
        columns: Sequence[str] = _COLUMNS
        rows = [self._cells(entry, True) for entry in entries]
        if self._room(columns, rows, width) < min(widest, _GOOD_LINK):
            rows = [self._cells(entry, False) for entry in entries]
        if self._room(columns, rows, width) < min(widest, _SHORT_LINK):
            columns = [name for name in columns if name not in ("value", "uniform")]
        room = max(self._room(columns, rows, width), _LINK_FRAME + _MIN_WORDS)
        links = [self._link(entry, room) for entry in entries]
        label = _widest("label", rows)
        spare = self._room(columns, rows, width) - min(max(map(cell_len, links)), room)
        cells = {"label": max(label + min(spare, 0), 1)}  # on the narrowest terminals the label gives way
        table = _table()
        for name in columns:
            if name in _NUMBERS:
                table.add_column(name, justify="right", min_width=_widest(name, rows), no_wrap=True)
            else:
                table.add_column(name, max_width=cells.get(name), no_wrap=True, overflow="ellipsis")
        styles = {"label": "bold", "uniform": "dim"}
        for row, link in zip(rows, links, strict=True):
            table.add_row(*(Text(row[name], style=styles.get(name, "")) for name in columns[:-1]), Text(link))
        return table

    def _room(self, columns: Sequence[str], rows: Sequence[dict[str, str]], width: int) -> int:
        """Cells that the last column has, the link, when the others take what they need."""
        return width - sum(_widest(name, rows) + _GAP for name in columns[:-1])

    def _cells(self, entry: Entry, in_full: bool) -> dict[str, str]:
        """The cells of a row; `in_full`: the label with the score or the rows that it rests on."""
        name = self._label(entry["label"])["name"]
        rests_on = inner(self.scores[entry["score"]]["name"])
        found = self.heads[entry["layer"], entry["head"]]["scores"].get(entry["score"], {})
        more = ["" if rests_on == name else rests_on, words.in_rows(found, self.report["text"]["n_tokens"])]
        return {
            "layer": str(entry["layer"]),
            "head": str(entry["head"]),
            "label": ", ".join([name, *filter(None, more)]) if in_full else name,
            "value": rounded(entry["value"]),
            "uniform": rounded(entry["null"]),
        }

    def _link(self, entry: Entry, room: int | None = None) -> str:
        """The strongest link of the head, in `room` cells where it is cut (None: in full)."""
        head = self.heads[entry["layer"], entry["head"]]
        layer = self.layers[entry["layer"]]
        (queries, special), (keys, _) = (self.texts[layer[side]] for side in ("queries", "keys"))
        found = words.strongest(head, self._label(entry["label"]), special)
        if found is None:
            return "\u2013"
        query, key = queries[found[0]], keys[found[1]]
        if room is not None:
            room -= cell_len(words.link("", "", found[2]))
            query = _fit(query, max(room // 2, room - cell_len(key)))
            key = _fit(key, room - cell_len(query))
        return words.link(query, key, found[2])

    def _label(self, key: str) -> Label:
        return self.labels.get(key, {"key": key, "name": key, "score": None})

    def _map(self, width: int) -> list[RenderableType]:
        layers = sorted({layer for layer, _ in self.heads})
        heads = sorted({head for _, head in self.heads})
        margin = max(len(str(text)) for text in ("layer", *layers)) + 1
        step = next((s for s in (3, 2, 1) if margin + s * len(heads) <= width), 0)
        if not step:
            return [Text(f"(the map needs {margin + len(heads)} columns)")]
        every = 1 if step > len(str(heads[-1])) else 5
        ruler = "".join(str(head).ljust(step * every) for head in heads[::every])
        lines = [Text(f"{'layer':>{margin - 1}} {ruler}"[:width].rstrip(), style="dim", no_wrap=True)]
        for layer in layers:
            line = Text(f"{layer:>{margin - 1}} ", style="dim", no_wrap=True)
            for head in heads:
                key = self.heads.get((layer, head), {"label": None})["label"]
                line.append(self.letters.get(key, " ").ljust(step), self._emphasis(key))
            lines.append(line)
        return list(lines)

    def _emphasis(self, key: str | None) -> str:
        return "dim" if key in (None, words.UNLABELLED) else "not dim bold"

    def _legend(self, width: int) -> RenderableType:
        found = [head["label"] for head in self.heads.values()]
        lines = [""]
        for key, label in self.labels.items():
            if key not in found:
                continue
            entry = f"{self.letters[key]} {label['name']} ({found.count(key)})"
            if lines[-1] and cell_len(f"{lines[-1]}   {entry}") > width:
                lines.append("")
            lines[-1] += f"   {entry}" if lines[-1] else entry
        return Text("\n".join(lines))

    def _closing(self) -> list[RenderableType]:
        reading = "Counting is from 0. Rows are layers, columns heads; uniform is what equal weights give."
        sentences = (
            [reading, words.LINKS_LEAVE_OUT, words.CAVEAT]
            if self.report["telling"]
            else [reading, words.CAVEAT]
        )
        return [Text(sentence, style="dim") for sentence in sentences]


def _part(part: Part) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(part.title, style="bold")]
    lines += [Text(part.measure, style="dim")] if part.measure else []
    lines += [Text(said) for said in part.sentences]
    lines += [Text(f"  {item}") for item in part.items]
    for found in part.tables:
        table = _table(*found.columns)
        for row in found.rows:
            table.add_row(*(_cell(text, i < found.cut) for i, text in enumerate(row)))
        lines.append(table)
    return lines


def _cell(text: str, cut: bool) -> Text:
    return Text(text, overflow="ellipsis", no_wrap=True) if cut else Text(text)


def _card(report: Report, head: Head) -> RenderableType:
    """Every score of one head, with its null, meaning and denominator."""
    table = _table("score", "value", "uniform", "rows", "what it is")
    for one in report["scores"]:
        line = head["scores"].get(one["key"])
        if line is None:
            continue
        unit = f" ({one['unit']})" if one["unit"] else ""
        meaning = sentence(visible(one["meaning"]))
        if line["all_rows"] is not None:
            meaning += f" Over all queries: {rounded(line['all_rows'])}."
        rows = "" if line["rows"] is None else f"{line['rows']:,}"
        cells = (visible(one["name"]) + unit, rounded(line["value"]), rounded(line["null"]), rows)
        table.add_row(*map(Text, cells), Text(meaning, style="dim"))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(
            name, justify="left" if name in (*IN_WORDS, "score", "what it is") else "right", overflow="fold"
        )
    return table


def _widest(name: str, rows: Sequence[dict[str, str]]) -> int:
    return max(cell_len(text) for text in (name, *(row[name] for row in rows)))


def _fit(word: str, cells: int) -> str:
    """At most `cells` cells wide, the last one ``…`` where something was cut."""
    return word if cell_len(word) <= cells else set_cell_size(word, max(cells - 1, 1)).rstrip() + "\u2026"
