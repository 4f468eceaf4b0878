"""Imports go down only: between wings, between the rooms of a wing, between files. There is no circle.

Read from the source, so that an import inside a function or for the type checker counts too. A name that a
package only hands on counts as taken from the file that it comes from.
"""

import ast
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "headwise"

# The wings from the ground up. A wing imports from lower lines only: neither its own line nor a higher one.
LAYERS = [
    {"_core", "errors"},
    {"plain"},
    {"reference", "render"},
    {"compute"},
    {"positions", "trace", "costs"},
    {"torch", "jax"},
    {"inspect", "check"},
    {"learn"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {wing: height for height, wings in enumerate(LAYERS) for wing in wings}

# Wings that take nothing of ours but what is named here. The judge stands alone; the checker judges by it, so
# never by our own kernel; pictures are drawn from plain data.
TAKES_ONLY = {
    "reference": set(),
    "render": {"errors", "plain"},
    "check": {"errors", "plain", "reference", "render"},
}

FRAMEWORKS = {"torch", "jax", "jaxlib", "transformers", "tokenizers", "safetensors"}
MAY_IMPORT_FRAMEWORKS = (
    "inspect/",
    "torch/",
    "jax/",
    "check/subjects/kinds.py",
    "costs/torch_model.py",
    "costs/torch_forms.py",
)
# The core stands on Python and NumPy.
CORE = {"headwise", "numpy", *sys.stdlib_module_names}
MAY_IMPORT_MORE = (
    "inspect/",
    "torch/",
    "jax/",
    "check/",
    "render/",
    "learn/",
    "cli/",
    "costs/torch_model.py",
    "__main__.py",
)

MOST_AT_THE_DOOR, MOST_SIDE_BY_SIDE = 16, 16


def wing_of(path):
    return path.split("/")[0].removesuffix(".py")


def room_of(path):
    """A folder of a wing, or a file at its door: "inspect/listen", "inspect/run.py"."""
    return "/".join(path.split("/")[:2])


@cache
def tree_of(path):
    return ast.parse((PACKAGE / path).read_text(encoding="utf-8"))


def imports_of(tree, path):
    """Every absolute dotted name that a file imports, with its line."""
    folder = ["headwise", *path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = folder[: len(folder) - node.level + 1] if node.level else []
            for alias in node.names:
                yield ".".join([*base, *([node.module] if node.module else []), alias.name]), node.lineno


@cache
def handed_on(package):
    """Name -> dotted name that it stands for, of the ``__init__.py`` of a package (also under an ``if``)."""
    found = {}
    for node in ast.walk(tree_of(f"{package}/__init__.py" if package else "__init__.py")):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def file_of(name):
    """The file of the package that a dotted name is taken from; None where there is none."""
    parts = name.split(".")[1:]
    folder = ""
    for at, part in enumerate(parts):
        inside = f"{folder}/{part}" if folder else part
        if part == "_core" and not folder:
            return "_core"
        if (PACKAGE / f"{inside}.py").exists():
            return f"{inside}.py"
        if (PACKAGE / inside / "__init__.py").exists():
            folder = inside
            continue
        if part in handed_on(folder) and (at == len(parts) - 1):
            return file_of(handed_on(folder)[part])
        return f"{folder}/__init__.py" if folder else None
    return f"{folder}/__init__.py" if folder else "__init__.py"


def arrows_of(tree, path):
    """(file that is imported from, line) of all imports of ours."""
    for name, line in imports_of(tree, path):
        if name.split(".")[0] == "headwise":
            yield file_of(name), name, line


def faults_of(tree, path):
    """What is wrong with the imports of a file, as sentences."""
    own = wing_of(path)
    if own not in HEIGHT:
        return [f"{path}: {own} stands on no line of LAYERS"]
    faults = []
    for name, line in imports_of(tree, path):
        first, where = name.split(".")[0], f"{path}:{line}: {own} imports {name}"
        if first in FRAMEWORKS and not path.startswith(MAY_IMPORT_FRAMEWORKS):
            faults.append(f"{where}, a framework")
        elif first not in {*CORE, *FRAMEWORKS} and not path.startswith(MAY_IMPORT_MORE):
            faults.append(f"{where}: the core stands on Python and NumPy")
    for target, name, line in arrows_of(tree, path):
        where = f"{path}:{line}: {own} imports {name}"
        if target is None:
            faults.append(f"{where}, which is nowhere")
            continue
        wing = wing_of(target)
        if wing == own:
            continue
        if wing not in HEIGHT:
            faults.append(f"{where}, which stands on no line")
        elif own in TAKES_ONLY and wing not in TAKES_ONLY[own]:
            faults.append(f"{where}, but may not take that")
        elif HEIGHT[wing] >= HEIGHT[own]:
            faults.append(f"{where}, which is not below it")
    return faults


SOURCES = sorted(file.relative_to(PACKAGE).as_posix() for file in PACKAGE.rglob("*.py"))
ROOMS = [path for path in SOURCES if path != "__init__.py"]


def graph(of=lambda path: path):
    """Who imports from whom: file -> files, or room -> rooms. A package's own face is no room."""
    found = {}
    for path in ROOMS:
        for target, _, _ in arrows_of(tree_of(path), path):
            if target not in (None, "_core") and of(target) != of(path):
                found.setdefault(of(path), set()).add(of(target))
    return found


def circle_of(arrows):
    """A circle among the arrows, as a list; [] where there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as found:
        return found.args[1]
    return []


@pytest.mark.parametrize("path", ROOMS)
def test_imports_go_down(path):
    assert faults_of(tree_of(path), path) == []


def test_no_files_import_each_other_in_a_circle():
    assert circle_of(graph()) == []


def test_no_rooms_import_each_other_in_a_circle():
    """The rooms of a wing: its folders, and the files at its door. Its own ``__init__`` stands above them."""
    assert circle_of(graph(room_of)) == []


def test_the_package_itself_hands_on_what_stands_on_a_line():
    homes = {wing_of(file_of(name)) for name in handed_on("").values() if name.startswith("headwise.")}
    assert homes <= set(HEIGHT)


def test_the_ground_floor_is_small():
    entries = [
        entry.name
        for entry in PACKAGE.iterdir()
        if entry.name not in ("__pycache__", "py.typed") and not entry.name.startswith("_core")
    ]
    assert len(entries) <= MOST_AT_THE_DOOR, sorted(entries)


def test_no_folder_is_crowded():
    folders = {}
    for file in PACKAGE.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith("_core"):
            folders.setdefault(file.parent, []).append(file.name)
    crowded = {str(folder): len(files) for folder, files in folders.items() if len(files) > MOST_SIDE_BY_SIDE}
    assert crowded == {}


def test_no_module_has_the_name_of_a_public_function():
    import headwise

    functions = {name for name in headwise.__all__ if name.islower()}
    assert [path for path in SOURCES if path.split("/")[-1].removesuffix(".py") in functions] == []


@pytest.mark.parametrize(
    "path, line, word",
    [
        ("errors.py", "from headwise.compute.problem import Problem", "not below"),
        ("plain/words.py", "from headwise.compute.functional import attention", "not below"),
        ("compute/functional.py", "from headwise import explain", "not below"),
        ("compute/functional.py", "from headwise import inspect", "not below"),
        ("compute/functional.py", "import headwise.trace.forward", "not below"),
        ("compute/functional.py", "def f():\n    from ..costs.sources import cost", "not below"),
        ("inspect/run.py", "from headwise.check.suite import RULES", "not below"),
        ("inspect/run.py", "from ..cli.main import main", "not below"),
        ("reference/statistics.py", "from headwise.compute.request import Aux", "may not"),
        ("reference/statistics.py", "from headwise.errors import ShapeError", "may not"),
        ("check/suite.py", "from headwise.compute.functional import attention", "may not"),
        ("check/verdict/judge.py", "from headwise import attention", "may not"),
        ("check/cases/steps.py", "def f():\n    import headwise.torch.functional", "may not"),
        ("check/rules/values.py", "import headwise._core", "may not"),
        ("render/report/page.py", "from headwise.compute.request import Aux", "may not"),
        ("render/report/page.py", "from ...inspect.report.report import HeadReport", "may not"),
        ("compute/functional.py", "import torch", "framework"),
        ("compute/functional.py", "def f():\n    import jax.numpy", "framework"),
        ("cli/main.py", "from transformers import AutoModel", "framework"),
        ("costs/sources.py", "import torch", "framework"),
        ("compute/functional.py", "import scipy.special", "NumPy"),
        ("errors.py", "import rich", "NumPy"),
        ("novel.py", "import math", "no line"),
        ("compute/problem/problem.py", "from headwise.novel import thing", "nowhere"),
    ],
)
def test_this_test_can_fail(path, line, word):
    faults = faults_of(ast.parse(line), path)
    assert len(faults) == 1
    assert word in faults[0]


@pytest.mark.parametrize(
    "path, line",
    [
        ("compute/problem/problem.py", "from headwise.errors import ShapeError"),
        ("compute/running.py", "import headwise._core as _core"),
        ("compute/functional.py", "import numpy as np\nimport math"),
        ("inspect/listen/capture.py", "import torch\nfrom headwise.compute.functional import attention"),
        ("cli/main.py", "import typer\nfrom headwise import inspect_heads, __version__"),
        ("render/report/text.py", "import rich\nfrom headwise.plain.words import visible"),
        ("check/verdict/judge.py", "from headwise.reference import reference_attention"),
    ],
)
def test_what_is_allowed_passes(path, line):
    assert faults_of(ast.parse(line), path) == []


def test_a_circle_is_seen():
    assert circle_of({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != []
    assert circle_of({"a": {"b"}, "b": {"c"}}) == []


def test_a_name_that_is_handed_on_counts_where_it_comes_from():
    assert file_of("headwise.compute.problem.build_problem") == "compute/problem/problem.py"
    assert file_of("headwise.attention") == "compute/functional.py"
    assert file_of("headwise.check.check_layer") == "check/torch_layer.py"
