"""Reading and grading typed answers: numbers with a tolerance, shapes, choices. No answer crashes it."""

import math
import re
from dataclasses import dataclass

_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?(?:\s*/\s*\d+(?:\.\d+)?)?")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d,])")
_BETWEEN = re.compile(r"[\s,;()\[\]{}x\u00d7*|]+")


@dataclass(frozen=True)
class Grade:
    """Right or not, and a line that says why."""

    right: bool
    message: str


def grade_numbers(text: str, expected: tuple[float, ...], tolerance: float) -> Grade:
    """One number or several, in order; each may be off by ``tolerance`` (absolute).

    ``0.2595, 0.0351``, ``(10, 64)``, ``10 x 64``, ``1,048,576`` and ``1/3`` are read.
    """
    found = read_numbers(text, len(expected))
    wanted = "one number" if len(expected) == 1 else f"{len(expected)} numbers"
    if found is None:
        return Grade(False, f"That cannot be read as {wanted}.")
    if len(found) != len(expected):
        return Grade(False, f"{wanted[0].upper()}{wanted[1:]} expected, {len(found)} read.")
    wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if not abs(a - b) <= tolerance]
    if not wrong:
        return Grade(True, "Right.")
    if len(expected) == 1:
        return Grade(False, "Not right.")
    return Grade(False, f"Not right: number {wrong[0]} (counting from 0) is off.")


def read_numbers(text: str, count: int) -> list[float] | None:
    """The numbers of an answer, or None where something else stands between them.

    A comma splits thousands where exactly one number is asked for, or where nothing else is possible.
    """
    text = text.replace("\u2212", "-").strip()[:1000]
    plain = _THOUSANDS.sub(lambda m: m[0].replace(",", ""), text)
    found = _all_numbers(plain if count == 1 else text)
    if count > 1 and (found is None or len(found) != count):
        joined = _all_numbers(plain)
        found = joined if joined is not None and len(joined) == count else found
    return found


def _all_numbers(text: str) -> list[float] | None:
    parts = [part for part in _BETWEEN.split(re.sub(r"\s*/\s*", "/", text)) if part]
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    values = [_value(part) for part in parts]
    return values if all(map(math.isfinite, values)) else None


def _value(part: str) -> float:
    top, _, bottom = part.replace("_", "").partition("/")
    try:
        return float(top) / float(bottom) if bottom else float(top)
    except (ZeroDivisionError, ValueError):
        return math.nan


def grade_choice(text: str, right: str, choices: dict[str, str]) -> Grade:
    """A letter of ``choices``, or the text of one, in any case; "t" and "f" stand for true and false."""
    given = " ".join(text.split()).casefold().strip(".)( ")[:1000]
    names = {letter.casefold(): letter for letter in choices}
    names |= {" ".join(choice.split()).casefold(): letter for letter, choice in choices.items()}
    if set(choices.values()) == {"true", "false"} or set(choices.values()) == {"yes", "no"}:
        names |= {choice[0]: letter for letter, choice in choices.items() if choice[0] not in names}
    if given not in names:
        return Grade(False, f"One of {', '.join(choices)} expected.")
    return Grade(True, "Right.") if names[given] == right else Grade(False, "Not right.")
