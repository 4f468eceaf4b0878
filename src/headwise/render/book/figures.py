"""The figures of the book as inline SVG: plain data in, text out. Colours come from the style sheet."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headwise.plain.numbers import number
from headwise.render.pages.offline import escaped
from headwise.render.pages.plain import mathematics

Figure = Mapping[str, Any]
_LETTER = re.compile(r"\b([A-Za-z])_([A-Za-z0-9]+)(.*)")


def draw_figure(figure: Figure) -> str:
    """One figure with its title and caption; `figure["kind"]` says how it is drawn."""
    width, height, body = DRAW[figure["kind"]](figure)
    label = f'role="img" aria-label="{escaped(figure["title"])}"'
    return (
        f'<figure class="figure"><h3>{mathematics(figure["title"])}</h3><div class="scroll">'
        f'<svg viewBox="0 0 {width} {height}" {label}>{body}</svg></div>'
        f"<figcaption>{mathematics(figure['caption'])}</figcaption></figure>"
    )


def at(value: float) -> str:
    """A coordinate: at most two decimals, the same text on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def words(x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> str:
    shown = f' class="{kind}"' if kind else ""
    inner = _LETTER.sub(_index, escaped(text))
    return f'<text x="{at(x)}" y="{at(y)}" text-anchor="{anchor}"{shown}>{inner}</text>'


def _index(found: re.Match[str]) -> str:
    """A letter with its index below; what follows comes back up to the line."""
    rest = f'<tspan dy="-3">{found[3]}</tspan>' if found[3] else ""
    return f'<tspan class="letter">{found[1]}</tspan><tspan dy="3" class="index">{found[2]}</tspan>{rest}'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "grid") -> str:
    return f'<line x1="{at(x1)}" y1="{at(y1)}" x2="{at(x2)}" y2="{at(y2)}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f'<rect x="{at(x)}" y="{at(y)}" width="{at(width)}" height="{at(height)}" rx="1.5" class="{kind}"/>'
    )


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path d="M{" L".join(f"{at(x)} {at(y)}" for x, y in points)}" class="{kind}"/>'


def shade(share: float) -> str:
    """Class of a cell: 0 … 1 in ten steps, as the matrices of the page have them."""
    return f"s{min(10, max(0, math.ceil(share * 10)))}"


def _curve(figure: Figure) -> tuple[int, int, str]:
    left, top, wide, high = 48, 12, 420, 200
    low, most = figure["y_range"]
    first, last = figure["x"][0], figure["x"][-1]

    def place(x: float, y: float) -> tuple[float, float]:
        return left + wide * (x - first) / (last - first), top + high * (1 - (y - low) / (most - low))

    parts = []
    for tick in figure["y_ticks"]:
        y = place(first, tick)[1]
        parts += [line(left, y, left + wide, y), words(left - 8, y + 4, number(tick), "tick", "end")]
    for tick in figure["x_ticks"]:
        x = place(tick, low)[0]
        parts.append(words(x, top + high + 18, number(tick), "tick"))
    parts.append(words(left + wide / 2, top + high + 36, figure["x_name"], "name"))
    parts.append(words(left + 4, top + 14, figure["y_name"], "name", "start"))
    parts.append(path([place(*pair) for pair in zip(figure["x"], figure["y"], strict=True)], "line"))
    if "dashed" in figure:
        pairs = zip(figure["x"], figure["dashed"], strict=True)
        parts.append(path([place(*pair) for pair in pairs], "line dashed"))
    if "mark" in figure:
        x, y = place(figure["x"][figure["mark"]], figure["y"][figure["mark"]])
        parts.append(f'<circle cx="{at(x)}" cy="{at(y)}" r="5" class="mark"/>')
        parts.append(words(x, y + 22, number(figure["y"][figure["mark"]]), "tick marked", "end"))
    return 484, top + high + 44, "".join(parts)


def _cells(
    values: Sequence[Sequence[float]], x: float, y: float, side: float, scale: Callable[[float], float]
) -> str:
    parts = []
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            parts.append(box(x + j * side, y + i * side, side - 1.5, side - 1.5, shade(scale(value))))
    return "".join(parts)


def _slices(figure: Figure) -> tuple[int, int, str]:
    n, h, side = figure["n"], figure["h"], 18
    top, slice_wide = 44, 26
    parts = [words(20 + h * slice_wide / 2, 14, f"Q: {n} \u00d7 {figure['d_model']}", "name")]
    for i in range(h):
        x = 20 + i * slice_wide
        parts.append(words(x + slice_wide / 2, 34, str(i), "tick"))
        for row in range(n):
            parts.append(box(x, top + row * side, slice_wide - 3, side - 1.5, f"head{i % 4}"))
    bottom = top + n * side
    parts.append(
        words(20 + h * slice_wide / 2, bottom + 18, f"{h} heads, {figure['d_k']} columns each", "tick")
    )
    x = 20 + h * slice_wide + 70
    parts.append(words(x - 35, top + n * side / 2 + 5, "\u2192", "arrow"))
    parts.append(words(x + n * side / 2, 14, f"weights of head 0: {n} \u00d7 {n}", "name"))
    most = max(map(max, figure["weights"]))
    parts.append(_cells(figure["weights"], x, top, side, lambda value: value / most))
    parts.append(words(x + n * side / 2, 34, "key", "tick"))
    parts.append(words(x + n * side / 2, bottom + 18, "every row sums to 1", "tick"))
    return round(x + n * side + 14), bottom + 30, "".join(parts)


def _grid(figure: Figure) -> tuple[int, int, str]:
    values, side = figure["values"], 22
    flat = [value for row in values for value in row]
    low, most = min(flat), max(flat)
    n, m = len(values), len(values[0])
    left, top = 70, 44
    parts = [
        words(left + m * side / 2, 14, figure["column_name"], "name"),
        words(8, top + 16, figure["row_name"], "name", "start"),
    ]
    parts += [words(left + (j + 0.5) * side, 36, str(j), "tick") for j in range(m)]
    parts += [words(left - 8, top + (i + 0.7) * side, str(i), "tick", "end") for i in range(n)]
    parts.append(_cells(values, left, top, side, lambda value: (value - low) / (most - low)))
    x = left + m * side + 30
    for step in range(11):
        parts.append(box(x, top + (10 - step) * 14, 14, 13, f"s{step}"))
    parts.append(words(x + 22, top + 11, f"{most:.2f}".replace("-", "\u2212"), "tick", "start"))
    parts.append(words(x + 22, top + 151, f"{low:.2f}".replace("-", "\u2212"), "tick", "start"))
    return x + 80, top + n * side + 8, "".join(parts)


def _links(figure: Figure) -> tuple[int, int, str]:
    keys, weights, step = figure["keys"], figure["weights"], 34
    high = len(keys) * step
    parts = [words(90, 14, "query", "tick"), words(330, 14, "key", "tick", "start")]
    middle = 24 + high / 2
    for i, weight in enumerate(weights):
        y = 24 + (i + 0.5) * step
        curve = f"M130 {at(middle)} C210 {at(middle)} 240 {at(y)} 320 {at(y)}"
        parts.append(f'<path d="{curve}" class="link" stroke-width="{at(1 + 15 * weight)}"/>')
    for i, (key, weight) in enumerate(zip(keys, weights, strict=True)):
        y = 24 + (i + 0.5) * step + 5
        strong = " strong" if weight == max(weights) else ""
        parts += [
            words(330, y, key, f"word{strong}", "start"),
            words(440, y, f"{weight:.4f}", f"tick{strong}", "end"),
        ]
    parts.append(words(118, middle + 5, figure["query"], "word asks", "end"))
    return 460, 24 + high + 6, "".join(parts)


def _cross(figure: Figure) -> tuple[int, int, str]:
    weights, side, left, top = figure["weights"], 26, 60, 44
    n_q, n_k = len(weights), len(weights[0])
    parts = [
        words(left + n_k * side / 2, 14, f"{n_k} keys", "name"),
        words(8, top + n_q * side / 2 + 5, f"{n_q} queries", "name", "start"),
    ]
    left += 20
    parts[0] = words(left + n_k * side / 2, 14, f"{n_k} keys", "name")
    parts += [words(left + (j + 0.5) * side, 36, str(j), "tick") for j in range(n_k)]
    parts.append(_cells(weights, left, top, side, lambda value: value))
    y = top + n_q * side + 48
    x = 12.0
    for i, (name, (down, across)) in enumerate(figure["shapes"]):
        wide, high = 9 * across, 9 * down
        parts.append(box(x, y, wide, high, f"head{i % 4}"))
        parts.append(words(x, y - 8, name, "tick", "start"))
        parts.append(words(x, y + 9 * max(n_q, n_k) + 16, f"{down} \u00d7 {across}", "tick", "start"))
        x += max(wide, 78) + 22
    return round(x), round(y + 9 * max(n_q, n_k) + 26), "".join(parts)


def _powers(figure: Figure) -> tuple[int, int, str]:
    left, top, wide, high = 48, 30, 420, 200
    flat = [value for _, values in figure["lines"] for value in values]
    low, most = math.floor(math.log10(min(flat))), math.ceil(math.log10(max(flat)))
    last = math.log2(figure["x"][-1])

    def place(x: float, y: float) -> tuple[float, float]:
        share = (math.log10(y) - low) / (most - low)
        return left + wide * math.log2(x) / last, top + high * (1 - share)

    parts = []
    for power in range(low, most + 1):
        y = place(1, 10**power)[1]
        parts += [line(left, y, left + wide, y), words(left - 8, y + 4, _power(power), "tick", "end")]
    parts += [words(place(x, 10**low)[0], top + high + 18, str(x), "tick") for x in figure["x"]]
    parts.append(words(left + wide / 2, top + high + 36, figure["x_name"], "name"))
    for i, (name, values) in enumerate(figure["lines"]):
        points = [place(x, y) for x, y in zip(figure["x"], values, strict=True)]
        kind = "query" if i else ""
        parts.append(path(points, f"line {kind}".rstrip()))
        x, y = points[len(points) // 2]
        parts.append(words(x - 4, y - 9, name, f"name {kind}".rstrip(), "end"))
    return 484, top + high + 44, "".join(parts)


def _power(power: int) -> str:
    return "10" + "".join(
        "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"[int(digit)] for digit in str(power)
    )


def _bars(figure: Figure) -> tuple[int, int, str]:
    step, left, wide = 34, 120, 290
    most = max(value for *_, value in figure["bars"])
    parts = []
    for i, (name, more, value) in enumerate(figure["bars"]):
        y = 6 + i * step
        parts += [
            words(left - 12, y + 13, name, "word", "end"),
            words(left - 12, y + 26, more, "tick", "end"),
        ]
        parts.append(box(left, y + 4, wide * value / most, 18, "bar"))
        parts.append(words(left + wide * value / most + 8, y + 18, number(value), "tick", "start"))
    return 470, len(figure["bars"]) * step + 10, "".join(parts)


DRAW: dict[str, Callable[[Figure], tuple[int, int, str]]] = {
    "curve": _curve, "slices": _slices, "grid": _grid, "links": _links, "cross": _cross, "powers": _powers,
    "bars": _bars,
}  # fmt: skip
