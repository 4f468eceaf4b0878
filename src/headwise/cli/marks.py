"""What a user marks in a text, from files to arguments of Python: gold pairs and classes of tokens."""

import json
import re
from pathlib import Path
from typing import Any

from headwise.cli.files import read_json, read_text
from headwise.errors import HeadwiseError

PAIRS = ("pairs", "pair_candidates", "pairs_both_ways")
LINE = "a query and its gold keys, as positions from 0: 8,2"
SPLIT = re.compile(r"[,;\s]+")


def read_pairs(path: Path) -> dict[str, Any]:
    """``pairs`` and what goes with it, as ``inspect_heads`` takes them.

    The file holds one query a line, then its gold keys (``8,2`` or ``8,2,3``; what follows a # is passed
    over); or JSON: a list of such lists, or an object with ``pairs`` and, where wanted, ``pair_candidates``
    and ``pairs_both_ways``.

    Raises:
        HeadwiseError: no such file, or something else in it; the message names the place.
    """
    text = read_text("--pairs", path)
    if text.lstrip()[:1] not in ("[", "{"):
        rows = [
            (f"line {number}", line)
            for number, line in enumerate(text.splitlines(), 1)
            if line.partition("#")[0].strip()
        ]
        return {"pairs": _flat([(place, _numbers(place, line, path)) for place, line in rows], path)}
    given = read_json("--pairs", path, text)
    if isinstance(given, list):
        given = {"pairs": given}
    strangers = [name for name in given if name not in PAIRS]
    if strangers or not isinstance(given.get("pairs"), list):
        expected = f"a list of pairs, or an object with pairs and, where wanted, {' and '.join(PAIRS[1:])}"
        received = f"{strangers[0]!r} in {path}" if strangers else f"{path} without a list of pairs"
        raise HeadwiseError("--pairs", expected, received)
    if not isinstance(given.get("pairs_both_ways", False), bool):
        raise HeadwiseError("--pairs", "pairs_both_ways true or false", f"{given['pairs_both_ways']!r}"[:60])
    return {**given, "pairs": _flat([(f"entry {i}", row) for i, row in enumerate(given["pairs"])], path)}


def read_classes(path: Path) -> dict[str, Any]:
    """``classes``, from a JSON object: the name of a class -> positions, or tokens as the report shows them.

    Raises:
        HeadwiseError: no such file, or something else in it.
    """
    given = read_json("--classes", path)
    expected = "a JSON object with lists of positions or of tokens"
    hint = '{"commas": [","], "opening": [0, 1, 2]}'
    if not isinstance(given, dict) or not given:
        received = f"{path} with {json.dumps(given)[:60]}"
        raise HeadwiseError("--classes", expected, received, hint)
    for name, members in given.items():
        if not isinstance(members, list):
            raise HeadwiseError("--classes", expected, f"{name!r}: {json.dumps(members)[:60]}", hint)
    return given


def _numbers(place: str, line: str, path: Path) -> list[int]:
    words = SPLIT.split(line.partition("#")[0].strip())
    if not all(word.isascii() and word.isdecimal() for word in words):
        raise HeadwiseError("--pairs", LINE, f"{place} of {path}: {line.strip()[:40]!r}")
    return [int(word) for word in words]


def _flat(rows: list[tuple[str, Any]], path: Path) -> list[tuple[int, int]]:
    """One pair for each gold key."""
    if not rows:
        raise HeadwiseError("--pairs", "at least one pair", f"{path} with none in it")
    for place, row in rows:
        good = isinstance(row, list) and len(row) >= 2 and all(type(number) is int for number in row)
        if not good:
            raise HeadwiseError("--pairs", LINE, f"{place} of {path}: {json.dumps(row)[:40]}")
    return [(row[0], key) for _, row in rows for key in row[1:]]
