"""The examples in the docstrings of the core are run."""

import doctest
import importlib

import pytest

MODULES = [
    "functional",
    "planning",
    "block",
    "positions",
    "weights",
    "torch.functional",
    "torch.compat",
    "check.suite",
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_show(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"headwise.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
