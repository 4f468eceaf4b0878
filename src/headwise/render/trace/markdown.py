"""A trace as Markdown with LaTeX formulas (``$$ ... $$``), for notebooks, wikis and lecture notes."""

import re

from headwise.plain import numbers
from headwise.plain.words import visible
from headwise.render.trace import words
from headwise.render.trace.words import Step, StepArray, Trace

_MOST_ROWS, _MOST_COLUMNS = 10, 8
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|$~&])")
_LETTER = re.compile(r"(?<![A-Za-z])([A-Za-z])_(\([^)]*\)|[A-Za-z0-9]+)")


def render_markdown(trace: Trace) -> str:
    """The trace as Markdown text.

    `trace` is the dict of a `Trace`. Raises `ValueError` for a dict that is no trace.
    """
    trace = words.checked(trace)
    lines = [f"# {text(trace['title'])}", ""]
    if trace["about"]:
        lines += [text(trace["about"]), ""]
    lines += [f"{letters(words.subject(trace))}. **{words.verdict(trace)}**", ""]
    for number, step in enumerate(trace["steps"], 1):
        lines += _step(trace, number, step)
    lines += [f"* {text(note)}" for note in (words.compared(trace), *trace["notes"])]
    return "\n".join(lines) + "\n"


def _step(trace: Trace, number: int, step: Step) -> list[str]:
    lines = [f"## {number}. {text(step['name'])}", "", letters(step["why"]), "", f"$$ {step['latex']} $$", ""]
    if step["worked"]:
        lines += [*(f"* {letters(visible(line))}" for line in step["worked"]), ""]
    for array in step["arrays"]:
        lines += [*_array(array, trace), ""]
    if step["facts"]:
        facts = [f"* {letters(item['name'])}: **{text(words.fact(item))}**" for item in step["facts"]]
        lines += [*facts, ""]
    if step["checks"]:
        marks = ["\u2713" if check["holds"] else "**FAILS**" for check in step["checks"]]
        claims = [letters(words.check_line(check)) for check in step["checks"]]
        marks = [f"* {mark} {claim}" for mark, claim in zip(marks, claims, strict=True)]
        lines += [*marks, ""]
    return lines


def _array(array: StepArray, trace: Trace) -> list[str]:
    left_out = words.left_out(array)
    caption = f"{text(array['meaning'])}, {letters(words.shape(array))}" + (
        f" ({left_out})" if left_out else ""
    )
    matrices = []
    for table in words.tables(array, trace, _MOST_ROWS, _MOST_COLUMNS):
        rows = r" \\ ".join(" & ".join(map(_cell, row)) for row in _with_dots(table))
        index = table.caption.removeprefix("head ") if table.caption else "0"
        name = re.sub(r"_[ig]$", f"_{index}", array["latex"])
        matrices.append(rf"{name} = \begin{{bmatrix}} {rows} \end{{bmatrix}}")
    if not matrices:
        return [f"${array['latex']}$: {caption}"]
    joined = r",\quad ".join(matrices)
    return [f"${array['latex']}$: {caption}", "", f"$$ {joined} $$"]


def _with_dots(table: words.Table) -> list[list[str]]:
    return [
        [r"\vdots"] * len(row) if name == words.GAP and len(set(row)) == 1 else row
        for name, row in zip(table.rows, table.cells, strict=True)
    ]


def _cell(value: str) -> str:
    """A number as LaTeX."""
    known = {
        words.GAP: r"\cdots",
        numbers.MINUS_INFINITY: r"-\infty",
        "\u2713": r"\checkmark",
        "\u00b7": r"\cdot",
    }
    if value in known:
        return known[value]
    mantissa, e, exponent = value.partition("e")
    mantissa = mantissa.replace("\u2212", "-")
    return rf"{mantissa} \times 10^{{{int(exponent)}}}" if e else mantissa


def text(value: str) -> str:
    """Words that Markdown shows as they are."""
    return _SPECIAL.sub(r"\\\1", visible(value))


def letters(value: str) -> str:
    """Text in which symbols such as ``d_k`` become formulas."""
    parts, last = [], 0
    for found in _LETTER.finditer(value):
        parts += [
            text(value[last : found.start()]) if found.start() > last else "",
            f"${found[1]}_{{{found[2]}}}$",
        ]
        last = found.end()
    rest = value[last:]
    return "".join([*parts, text(rest) if rest else ""])
