"""What the package raises: its texts, word for word, and the places that no case of a test reaches."""

import ast
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import headwise

PACKAGE = Path(headwise.__file__).parent
GOLDEN = Path(__file__).parent / "golden"
PYTHONS_OWN = {"AttributeError", "IndexError", "KeyError", "NotImplementedError", "TypeError", "ValueError"}


def golden(file: str) -> dict[str, str]:
    """Name -> kind and message, from "[name] Kind" followed by the message and an empty line."""
    entries = {}
    for entry in (GOLDEN / file).read_text(encoding="utf-8").split("\n\n"):
        heading, message = entry.strip("\n").split("\n", 1)
        name, kind = heading.removeprefix("[").split("] ")
        assert name not in entries, name
        entries[name] = f"{kind}\n{message}"
    return entries


def caught(case: Callable[[], object]) -> headwise.HeadwiseError:
    """The error that a case raises."""
    with pytest.raises(headwise.HeadwiseError) as error:
        case()
    return error.value


def said(case: Callable[[], object]) -> str:
    """Kind and message of the error that a case raises, as a golden file holds them."""
    error = caught(case)
    return f"{type(error).__name__}\n{error}"


def unreached(modules: Iterable[str], cases: Iterable[Callable[[], object]]) -> list[str]:
    """``file:line`` of every ``raise`` of an error of ours in the modules that no case passes through.

    Args:
        modules: files or folders of the package, as ``"costs"`` or ``"compute/arrays"``.
        cases: functions that raise.
    """
    reached = {place for case in cases for place in _passed(case)}
    return [
        f"{file}:{first}"
        for file, first, last in _places(modules)
        if not any((file, line) in reached for line in range(first, last + 1))
    ]


def _passed(case: Callable[[], object]) -> Iterator[tuple[str, int]]:
    try:
        with warnings.catch_warnings(action="ignore"):  # what only warns is another test's
            case()
    except Exception as error:
        for frame in traceback.extract_tb(error.__traceback__):
            file = Path(frame.filename)
            if file.is_relative_to(PACKAGE) and frame.lineno is not None:
                yield file.relative_to(PACKAGE).as_posix(), frame.lineno
    else:
        raise AssertionError(f"{case} raised nothing")


def _places(modules: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    for module in modules:
        files = sorted((PACKAGE / module).rglob("*.py")) or [PACKAGE / f"{module}.py"]
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and node.exc is not None and not _is_pythons(node.exc):
                    yield file.relative_to(PACKAGE).as_posix(), node.lineno, node.end_lineno or node.lineno


def _is_pythons(raised: ast.expr) -> bool:
    """An error that Python or NumPy expects by its own kind, such as the TypeError for an unknown keyword."""
    named = raised.func if isinstance(raised, ast.Call) else raised
    return getattr(named, "id", "") in PYTHONS_OWN
