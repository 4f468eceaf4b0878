"""Reading and grading typed answers: numbers with a tolerance, shapes, choices. No answer crashes it."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?(?:/\d+(?:\.\d+)?)?%?")
# 1,048,576 and 1 048 576: groups of three, one separator throughout.
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:([,' \u00a0\u202f])\d{3})(?:\1\d{3})*(?![\d,'])")
_DECIMAL_COMMA = re.compile(r"(?<=\d),(?=\d)")
_BETWEEN = re.compile(r"(?:[\s,;()\[\]{}xX\u00d7*|]|(?<![A-Za-z])by(?![A-Za-z]))+")
_ABOUT = re.compile(r"^\s*(?:\u2248|~|=|\u2245|ca\.)\s*")
_LONGEST = 1000  # characters of an answer


@dataclass(frozen=True)
class Grade:
    """Right or not, and a line that says why. ``read``: could it be read as an answer at all?"""

    right: bool
    message: str
    read: bool = True


def grade_numbers(text: str, expected: tuple[float, ...], tolerance: float) -> Grade:
    """One number or several, in order; each may be off by ``tolerance`` (absolute).

    ``0.2595, 0.0351``, ``(10, 64)``, ``10 x 64``, ``10 by 64``, ``1,048,576``, ``2,01`` (a decimal comma),
    ``1/3``, ``25 %`` and ``\u2248 2.01`` are read. Where a text has two readings, such as 2,012, either may
    be the right one.
    """
    readings = list(read_numbers(text, len(expected)))
    wanted = "one number" if len(expected) == 1 else f"{len(expected)} numbers"
    if not readings:
        return Grade(False, f"That cannot be read as {wanted}.", read=False)
    if all(len(found) != len(expected) for found in readings):
        return Grade(False, f"{wanted[0].upper()}{wanted[1:]} expected, {len(readings[0])} read.", read=False)
    wrongs = [
        [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not abs(a - b) <= tolerance]
        for found in readings
        if len(found) == len(expected)
    ]
    if [] in wrongs:
        return Grade(True, "Right.")
    if len(expected) == 1:
        return Grade(False, "Not right.")
    return Grade(False, f"Not right: number {wrongs[0][0]} (counting from 0) is off.")


def read_numbers(text: str, count: int) -> Iterator[list[float]]:
    """The ways to read an answer as numbers, those that give ``count`` of them first; none, if it is none.

    A comma stands between numbers, splits thousands, or is a decimal comma.
    """
    text = _ABOUT.sub("", text.replace("\u2212", "-")[:_LONGEST]).strip()
    text = re.sub(r"\s*/\s*", "/", re.sub(r"\s+%", "%", text))
    thousands = _THOUSANDS.sub(lambda m: re.sub(r"[^\d]", "", m[0]), text)
    decimal = _DECIMAL_COMMA.sub(".", text)
    ways = (thousands, text, decimal) if count == 1 else (text, thousands, decimal)
    found = [numbers for way in dict.fromkeys(ways) for numbers in _all_numbers(way)]
    yield from (numbers for numbers in found if len(numbers) == count)
    yield from (numbers for numbers in found if len(numbers) != count)


def _all_numbers(text: str) -> Iterator[list[float]]:
    """The numbers, if nothing else stands between them; with per cent signs also as shares of 1."""
    parts = [part for part in _BETWEEN.split(text) if part]
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts):
        return
    values = [_value(part.rstrip("%")) for part in parts]
    if not all(map(math.isfinite, values)):
        return
    yield values
    if "%" in text:
        yield [value / 100 if part[-1] == "%" else value for value, part in zip(values, parts, strict=True)]


def _value(part: str) -> float:
    top, _, bottom = part.replace("_", "").partition("/")
    try:
        return float(top) / float(bottom) if bottom else float(top)
    except (ZeroDivisionError, ValueError):
        return math.nan


def grade_choice(text: str, right: str, choices: dict[str, str]) -> Grade:
    """A letter of ``choices``, or the text of one, in any case; "t" and "f" stand for true and false."""
    given = " ".join(text.split()).casefold().strip(".)( ")[:_LONGEST]
    names = {letter.casefold(): letter for letter in choices}
    names |= {" ".join(choice.split()).casefold(): letter for letter, choice in choices.items()}
    if set(choices.values()) == {"true", "false"} or set(choices.values()) == {"yes", "no"}:
        names |= {choice[0]: letter for letter, choice in choices.items() if choice[0] not in names}
    if given not in names:
        return Grade(False, f"One of {', '.join(choices)} expected.", read=False)
    return Grade(True, "Right.") if names[given] == right else Grade(False, "Not right.")
