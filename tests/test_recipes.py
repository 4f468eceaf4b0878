"""The recipes of CONTRIBUTING name files that exist and hold the example that they are written from."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINE = re.compile(
    r"^\* \*\*(?P<kind>[^*]+)\*\* \((?P<count>\d+) files?; like `(?P<example>[^`]+)`\): (?P<files>.+)$"
)
NUMBERED = re.compile(r"`(?P<file>[\w/]+\.(?:py|h|cpp|js|css|html|txt|md))`")


def recipes_of(text):
    """(kind, number of files, example, files) of every recipe; an indented line belongs to the one above."""
    joined = re.sub(r"\n  +", " ", text.partition("## Adding things")[2])
    for line in joined.splitlines():
        if found := LINE.match(line):
            files = [file["file"] for file in NUMBERED.finditer(found["files"])]
            yield found["kind"], int(found["count"]), found["example"], files


RECIPES = list(recipes_of((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")))
KINDS = {
    "a score of a head",
    "a statistic of a row",
    "an option of `attention`",
    "a label",
    "a fault",
    "a rule",
    "a packaged model",
    "a reader of model files",
    "a lesson",
    "a drill",
    "a part of the report",
}


def path_of(file):
    inside = ROOT / "src" / "headwise" / file
    return inside if inside.exists() else ROOT / file


def test_every_kind_has_a_recipe():
    assert {kind for kind, *_ in RECIPES} == KINDS


@pytest.mark.parametrize("kind, count, example, files", RECIPES, ids=[recipe[0] for recipe in RECIPES])
def test_the_files_hold_the_example(kind, count, example, files):
    assert len(files) == count
    for file in files:
        text = path_of(file).read_text(encoding="utf-8")
        assert re.search(rf"\b{re.escape(example)}\b", text), f"{file} holds no {example}"


def test_a_file_that_does_not_hold_it_is_noticed():
    text = "## Adding things\n\n* **a label** (1 file; like `no such label`): `inspect/report/labels.py`\n"
    ((_, _, example, files),) = recipes_of(text)
    assert example not in path_of(files[0]).read_text(encoding="utf-8")
