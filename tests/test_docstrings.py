"""Every example in a docstring is run."""

import doctest
import importlib
from pathlib import Path

import pytest

import headwise

PACKAGE = Path(headwise.__file__).parent
MODULES = [
    ".".join(("headwise", *file.relative_to(PACKAGE).with_suffix("").parts))
    for file in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


def test_the_examples_are_found() -> None:
    assert len(MODULES) >= 20
