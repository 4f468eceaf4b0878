"""What the three views of a trace share: the checked dict, shapes in words, tables without their middle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from headwise.plain import numbers
from headwise.plain.stored import plain_data
from headwise.plain.words import visible

# Parts of a trace: plain dicts.
Trace: TypeAlias = Mapping[str, Any]
Step: TypeAlias = Mapping[str, Any]
StepArray: TypeAlias = Mapping[str, Any]
Fact: TypeAlias = Mapping[str, Any]
Check: TypeAlias = Mapping[str, Any]
SCHEMA, VERSION = "headwise.trace", 1
_BY_HAND = 16  # cells
_LONG_NAME = 18  # characters of a token beside a table
GAP = "\u2026"
SHOWN_HEADS = 8
WEIGHTS = "A_i"  # the array whose cells are shaded


@dataclass(frozen=True)
class Table:
    """One matrix as text: caption, names of rows and columns, cells; ``shades`` are 0 to 10, or None."""

    caption: str
    columns: list[str]
    rows: list[str]
    cells: list[list[str]]
    shades: list[list[int]] | None


def checked(trace: Trace) -> Trace:
    """The trace itself, or `ValueError` when it is none that this release can draw."""
    return plain_data(trace, SCHEMA, VERSION)


def subject(trace: Trace) -> str:
    """The sizes in one line: ``h = 2 · n = 4 · d_k = 2 · d_v = 2``."""
    sizes = dict(trace["sizes"])
    if sizes["h"] == sizes["h_kv"]:
        sizes.pop("h_kv")
    if sizes["n_q"] == sizes["n_k"]:
        sizes = {"n": sizes.pop("n_q"), **{name: size for name, size in sizes.items() if name != "n_k"}}
    widths = [name for name in ("d_in", "d_context", "d_out") if name in sizes]
    if len({sizes[name] for name in widths}) == 1:
        sizes = {
            "d_model": sizes[widths[0]],
            **{name: size for name, size in sizes.items() if name not in widths},
        }
    return " · ".join(f"{name} = {size}" for name, size in sizes.items())


def verdict(trace: Trace) -> str:
    """``All 14 checks hold.`` or how many do not."""
    checks = [check for step in trace["steps"] for check in step["checks"]]
    failed = sum(not check["holds"] for check in checks)
    if failed:
        return f"{failed} of {len(checks)} checks do NOT hold."
    return f"All {len(checks)} checks hold." if len(checks) != 1 else "The one check holds."


def compared(trace: Trace) -> str:
    """How the output was computed a second time, and the difference."""
    found = trace["compared"]
    error, allowed = found["max_abs_difference"], found["tolerance"]
    verb = "gives the same output" if error <= allowed else "gives ANOTHER output"
    if _notable(error) and error <= allowed:
        verb = "agrees as far as rounding lets it"
    return f"{found['function']} {verb}: largest difference {_measured(error, allowed, found['why'])}."


def shape(array: StepArray) -> str:
    """``n × d_k = 4 × 2``."""
    return f"{' × '.join(array['letters'])} = {' × '.join(map(str, array['shape']))}"


def fact(item: Fact) -> str:
    """A fact's value as text."""
    value = item["value"]
    if isinstance(value, str):
        return visible(value)
    return numbers.count(value) if isinstance(value, int) else numbers.number(value)


def check_line(check: Check) -> str:
    """The claim and the error that was found."""
    return f"{check['claim']}; {check_error(check)}"


def check_error(check: Check) -> str:
    """``error 1.1e-16``; an error that calls for a word is told with what is allowed, and why so much."""
    return f"error {_measured(check['error'], check['tolerance'], check['why'])}"


def _measured(error: float, allowed: float, why: str) -> str:
    if error <= allowed and not _notable(error):
        return numbers.error(error)
    return f"{numbers.error(error)}, allowed {numbers.error(allowed)}" + (f" ({why})" if why else "")


def _notable(error: float) -> bool:
    return error > 1e-9


def tables(
    array: StepArray, trace: Trace, most_rows: int, most_columns: int, most_heads: int = SHOWN_HEADS
) -> Iterator[Table]:
    """The matrices of an array, one per head; what is too long loses its middle. Nothing for a shape only."""
    values, axes, size = array["values"], list(array["axes"]), list(array["shape"])
    if values is None:
        return
    heads = [("", values)]
    if axes[0] == "head":
        one = size[0] == 1
        heads = [("" if one else f"head {i}", part) for i, part in enumerate(values[:most_heads])]
        axes, size = axes[1:], size[1:]
    if len(size) == 1:
        heads, axes, size = [(caption, [part]) for caption, part in heads], ["", *axes], [1, *size]
    names = [_names(axis, n, trace) for axis, n in zip(axes, size, strict=True)]
    down, across = _kept(size[0], most_rows), _kept(size[1], most_columns)
    every = [part[i][j] for _, part in heads for i in down for j in across if i is not None and j is not None]
    words = iter(_written(every, _digits(len(every))))
    for caption, part in heads:
        cells, shades = [], []
        for i in down:
            shown_row = [GAP if i is None or j is None else next(words) for j in across]
            cells.append(shown_row)
            shades.append([0 if i is None or j is None else _shade(part[i][j]) for j in across])
        yield Table(
            caption,
            [GAP if j is None else names[1][j] for j in across],
            [GAP if i is None else names[0][i] for i in down],
            cells,
            shades if array["name"] == WEIGHTS else None,
        )


def left_out(array: StepArray, most_heads: int = SHOWN_HEADS) -> str:
    """What a view says about an array that it does not show, or not all of."""
    if array["values"] is None:
        return "as given; too large to show"
    if array["axes"][0] == "head" and array["shape"][0] > most_heads:
        return f"heads {most_heads} to {array['shape'][0] - 1} are not shown"
    return ""


def _names(axis: str, n: int, trace: Trace) -> list[str]:
    if axis in ("query", "key"):
        names = map(visible, trace["queries" if axis == "query" else "keys"])
        return [name if len(name) <= _LONG_NAME else name[: _LONG_NAME - 1] + GAP for name in names]
    return [str(i) if axis else "" for i in range(n)]


def _kept(n: int, most: int) -> list[int | None]:
    """Indices to show; None where the middle is left out."""
    if n <= most:
        return list(range(n))
    return [*range(most - 2), None, n - 1]


def _digits(cells: int) -> int:
    """Small arrays are for checking by hand; large ones for looking."""
    return 6 if cells <= _BY_HAND else 4


def _written(values: Sequence[Any], digits: int) -> list[str]:
    if values and isinstance(values[0], bool):
        return ["\u2713" if value else "\u00b7" for value in values]
    return numbers.column(values, digits)


def _shade(value: Any) -> int:
    if value is None or isinstance(value, bool):
        return 0
    return round(10 * min(1.0, max(0.0, value))) or (1 if value > 0 else 0)
