"""docs/mission.md: every row names a place in the book, a function and a test, and all of them exist."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from headwise.learn.book.contents import book_html

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in (ROOT / "docs" / "mission.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| id")
]
# What has to be served: the ids of the founding documents.
IDS = [
    *"ABCDEFGHI",
    *("1.1", "1.2", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "4.1", "4.2", "5.1", "5.2", "5.3"),
    *(f"Q{i}" for i in range(1, 26)),
    *("D-fig", "split", "spread", "lines", "s01", "s02"),
    *(f"S{i}" for i in range(1, 15)),
]


def names(cell):
    found = re.findall(r"`([^`]+)`", cell)
    assert found, f"an empty cell: {cell!r}"
    return found


@cache
def named_tests(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def places():
    return set(re.findall(r' id="([^"]+)"', book_html()))


def test_every_row_is_there():
    assert [row[0] for row in ROWS] == IDS
    assert all(len(row) == 5 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_every_name_exists(row):
    _, _, lesson, function, test = row
    for place in names(lesson):
        assert place.startswith("#") and place[1:] in places(), place
    for name in names(function):
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name
    for name in names(test):
        path, _, function_name = name.partition("::")
        assert function_name in named_tests(path), name
