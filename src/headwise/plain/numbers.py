"""How numbers are written for people: enough digits to see the difference, no more.

A number that only rounding would turn into a whole one keeps the digits that set it apart (0.999999996 is
not 1); what float64 rounding itself leaves behind is not shown (2.9999999999999996 is 3).
"""

import math
from collections.abc import Iterable

DIGITS = 6  # after the point
MINUS_INFINITY = "\u2212\u221e"
_NOISE = 4e-15  # relative; a few roundings of float64
_SMALLEST, _LARGEST = 1e-4, 1e7  # outside, powers of ten are written


def number(value: float | None) -> str:
    """0.669762, 20, 2.0612e-09; None (a hidden key's score) is minus infinity."""
    return _written(value, None)


def rounded(value: float | None) -> str:
    """A number with the digits that matter: 0.83, 12.4, 0.004, <0.001; a missing one is a dash."""
    if value is None or not math.isfinite(value):
        return "\u2013"
    size = abs(value)
    if size >= 0.00995 or size == 0:
        return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"
    return f"{value:.3f}" if size >= 0.0005 else "<0.001"


def weight(value: float) -> str:
    """A weight as it stands beside a line: .41; 1 and <.01 at the ends."""
    if value >= 0.995:
        return "1"
    return f"{value:.2f}"[1:] if value >= 0.005 else "<.01"


def column(values: Iterable[float | None], most: int = DIGITS) -> list[str]:
    """The numbers of one table, all with as many decimals as the one that needs most, at most `most`.

    A 0 without decimals is exactly 0.
    """
    values = list(values)
    plain = [value for value in values if value is not None and _is_plain(value)]
    places = min(max((_places(value) for value in plain), default=0), most)
    return ["0" if value == 0 else _written(value, places) for value in values]


def vector(values: Iterable[float | None], shown: int = 6) -> str:
    """``(1.339523, 1.320954)``; the middle of a long row is left out; one number stands alone."""
    values = list(values)
    if len(values) == 1:
        return number(values[0])
    texts = column(values)
    if len(texts) > shown:
        texts = [*texts[: shown - 2], "\u2026", texts[-1]]
    return f"({', '.join(texts)})"


def count(value: float) -> str:
    """1,048,576; a number that is not whole keeps two decimals."""
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.2f}"


def size(value: float) -> str:
    """Bytes in words: 131,072 -> 128 KiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024 or unit == "PiB":
            return f"{value:.4g} {unit}" if value < 999.95 else f"{value:.0f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")


def power(value: float) -> str:
    """A large count in words: 3.22e9 -> 3.22 G."""
    for step, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:.3g} {unit}"
    return f"{value:.3g}"


def error(value: float) -> str:
    """The error of a check: 0, or its size in two digits."""
    return "0" if value == 0 else f"{value:.1e}"


def _written(value: float | None, places: int | None) -> str:
    if value is None or value == -math.inf:
        return MINUS_INFINITY
    value = float(value)  # a NumPy scalar would write its type beside it
    if not math.isfinite(value):
        return "\u221e" if value > 0 else "NaN"
    if not _is_plain(value):
        return _minus(_told_apart(value))
    return _minus(f"{_denoised(value):.{_places(value) if places is None else places}f}")


def _denoised(value: float) -> float:
    whole = round(value)
    near = abs(value - whole) <= _NOISE * max(1.0, abs(value)) if whole else value == 0
    return float(whole) if near else value


def _is_plain(value: float) -> bool:
    """Can fixed decimals say what the number is?"""
    value = _denoised(value)
    if value.is_integer():
        return abs(value) < 1e15
    return _SMALLEST <= abs(value) < _LARGEST and not float(f"{value:.{DIGITS}f}").is_integer()


def _told_apart(value: float) -> str:
    """More digits for a number beside a whole one, a power of ten for a tiny or a huge one."""
    if _SMALLEST <= abs(value) < _LARGEST:
        for digits in range(DIGITS + 2, 18):
            if not float(f"{value:.{digits}g}").is_integer():
                return f"{value:.{min(digits + 2, 17)}g}" if digits < 14 else repr(value)
    return f"{value:.5g}"


def _places(value: float) -> int:
    text = f"{_denoised(value):.{DIGITS}f}".rstrip("0")
    return len(text) - text.index(".") - 1


def _minus(text: str) -> str:
    return "0" if text in ("-0", "-0.") else text.replace("-", "\u2212", 1) if text[0] == "-" else text


def binary(size: int) -> str:
    """A number of bytes for people: 128 B, 512.0 MiB."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
