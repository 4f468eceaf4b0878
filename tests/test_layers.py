"""Imports go down only. Read from the source, so that also an import inside a function counts."""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "headwise"

# From the ground up. A unit may import units of lower lines only: neither its own line nor a higher one.
LAYERS = [
    {"_core"},
    {"errors"},
    {"render"},
    {"arrays", "options", "visibility"},
    {"request", "positions", "stored"},
    {"problem"},
    {"planning"},
    {"statistics", "reference"},
    {"running"},
    {"weights"},
    {"functional"},
    {"trace", "costs", "block"},
    {"torch", "jax"},
    {"inspect", "check"},
    {"learn"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {unit: height for height, units in enumerate(LAYERS) for unit in units}

# render draws plain data, so that a report can draw itself: of ours it takes nothing but what is named here.
TAKES_ONLY: dict[str, set[str]] = {"render": {"errors"}}

FRAMEWORKS = {"torch", "jax", "jaxlib", "transformers", "tokenizers", "safetensors"}
MAY_IMPORT_FRAMEWORKS = ("inspect/", "torch/", "jax.py", "check/frameworks.py")

# The core stands on Python and NumPy.
CORE = {"headwise", "numpy", *sys.stdlib_module_names}
MAY_IMPORT_MORE = ("inspect/", "torch/", "jax.py", "check/", "render/", "learn/", "cli", "__main__.py")


def unit_of(path):
    """The module or sub-package of the package that a file belongs to: "problem", "inspect"."""
    return family_of(path.split("/")[0].removesuffix(".py"))


def family_of(name):
    """A module that was split stands where its first part does: "trace_data" is part of "trace"."""
    return name if name in HEIGHT else name.split("_")[0]


def public_homes():
    """Public name of the package -> unit that it comes from, read from ``__init__``."""
    homes = {}
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        # Type checkers see the lazy names under an `if`.
        for inner in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(inner, ast.ImportFrom) and (inner.module or "").startswith("headwise."):
                homes |= {alias.asname or alias.name: inner.module.split(".")[1] for alias in inner.names}
    return homes


def imports_of(source, path):
    """Every absolute dotted name that ``source``, at ``path`` inside the package, imports, with its line."""
    folder = ["headwise", *path.split("/")[:-1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            for alias in node.names:
                yield ".".join([*base, *([node.module] if node.module else []), alias.name]), node.lineno


def faults_of(source, path):
    """What is wrong with the imports of ``source``, as sentences."""
    own, homes = unit_of(path), public_homes()
    if own not in HEIGHT:
        return [f"{path}: {own} stands on no line of LAYERS"]
    faults = []
    for name, line in imports_of(source, path):
        parts = name.split(".")
        where = f"{path}:{line}: {own} imports {name}"
        if parts[0] in FRAMEWORKS and not path.startswith(MAY_IMPORT_FRAMEWORKS):
            faults.append(f"{where}, a framework")
        elif parts[0] not in {*CORE, *FRAMEWORKS} and not path.startswith(MAY_IMPORT_MORE):
            faults.append(f"{where}: the core stands on Python and NumPy")
        if parts[0] != "headwise":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        if target == "__version__":
            continue
        target = homes.get(target, family_of(target))
        if target == own:
            continue
        if target not in HEIGHT:
            faults.append(f"{where}, which stands on no line")
        elif own in TAKES_ONLY:
            if target not in TAKES_ONLY[own]:
                faults.append(f"{where}, but takes nothing of ours")
        elif HEIGHT[target] >= HEIGHT[own]:
            faults.append(f"{where}, which is not below it")
    return faults


SOURCES = [
    path
    for path in (file.relative_to(PACKAGE).as_posix() for file in sorted(PACKAGE.rglob("*.py")))
    if path != "__init__.py"
]


@pytest.mark.parametrize("path", SOURCES)
def test_imports_go_down(path):
    assert faults_of((PACKAGE / path).read_text(encoding="utf-8"), path) == []


def test_the_package_itself_imports_only_what_stands_on_a_line():
    assert set(public_homes().values()) <= set(HEIGHT)


def test_all_of_the_package_is_looked_at():
    seen = {unit_of(path) for path in SOURCES}
    assert {"arrays", "problem", "functional", "reference", "statistics", "inspect", "render", "cli"} <= seen


@pytest.mark.parametrize(
    "path, line, word",
    [
        ("errors.py", "from headwise.problem import Problem", "not below"),
        ("problem.py", "from headwise.functional import attention", "not below"),
        ("problem.py", "from headwise import attention", "not below"),
        ("problem.py", "from headwise import functional", "not below"),
        ("problem.py", "import headwise.functional", "not below"),
        ("problem.py", "def f():\n    from .functional import attention", "not below"),
        ("statistics.py", "from .reference import reference_attention", "not below"),
        ("render/html.py", "from headwise.statistics import Aux", "nothing of ours"),
        ("render/html.py", "from ..inspect.report import HeadReport", "nothing of ours"),
        ("inspect/report.py", "from headwise.check.rules import RULES", "not below"),
        ("inspect/report.py", "from ..cli import main", "not below"),
        ("functional.py", "import torch", "framework"),
        ("functional.py", "def f():\n    import jax.numpy", "framework"),
        ("cli.py", "from transformers import AutoModel", "framework"),
        ("functional.py", "import scipy.special", "NumPy"),
        ("errors.py", "import rich", "NumPy"),
        ("novel.py", "import math", "no line"),
        ("problem.py", "from headwise.novel import thing", "no line"),
    ],
)
def test_this_test_can_fail(path, line, word):
    faults = faults_of(line, path)
    assert len(faults) == 1
    assert word in faults[0]


@pytest.mark.parametrize(
    "path, line",
    [
        ("problem.py", "from headwise.errors import ShapeError"),
        ("functional.py", "import headwise._core as _core"),
        ("functional.py", "import numpy as np\nimport math"),
        ("inspect/capture.py", "import torch\nfrom headwise.functional import attention"),
        ("inspect/report.py", "from .labels import LABELS\nfrom headwise import __version__"),
        ("cli.py", "import typer\nfrom headwise import inspect_heads"),
        ("render/text.py", "import rich\nfrom headwise.render.words import short"),
        ("render/html.py", "from headwise.errors import HeadwiseError"),
    ],
)
def test_what_is_allowed_passes(path, line):
    assert faults_of(line, path) == []
