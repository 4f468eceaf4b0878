"""The Python that README shows is run as it stands."""

import re
from pathlib import Path

import numpy as np

from headwise import __version__
from headwise.cli.main import OVERVIEW
from headwise.inspect.load.models import packaged_folder

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks() -> list[str]:
    """Python blocks in order; one inside a list is indented with it."""
    found = re.findall(r"^( *)```python\n(.*?)^ *```", README, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def test_the_first_example_gives_the_shapes_it_names():
    code = blocks()[0]
    names: dict[str, object] = {}
    exec(compile(code, "README.md", "exec"), names)
    shapes = re.findall(r"^([\w.]+)\.shape  # \((.*?)\)", code, re.MULTILINE)
    assert len(shapes) == 4
    for expression, shape in shapes:
        value = eval(expression, names)
        assert isinstance(value, np.ndarray)
        assert value.shape == tuple(int(n) for n in shape.split(","))


def test_the_inspector_example_prints_a_report(capsys):
    names: dict[str, object] = {"PATH": packaged_folder("minilm")}
    exec(compile(blocks()[1], "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "Most telling heads" in printed
    assert "6 layers" in printed


def test_the_overview_is_what_bare_headwise_prints():
    assert f"```text\n{OVERVIEW.format(version=__version__)}```" in README


def test_every_placeholder_is_filled():
    assert "@@" not in README
