"""From ``module:function`` or ``path.py:function`` to the function."""

import importlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from headwise.errors import HeadwiseError

_EXAMPLE = "headwise check mymodule:attention, or headwise check attention.py:attention"
_LIKELY = ("attention", "attn", "sdpa")


def load(target: str) -> tuple[Any, str]:
    """The function or layer that the target names, and its name for the report.

    Raises:
        HeadwiseError: no such file, module or name; the module raises when it is imported.
    """
    place, _, name = target.partition(":") if not _drive(target) else (target, "", "")
    if not place:
        raise HeadwiseError("TARGET", "module:function or path.py:function", target or "nothing", _EXAMPLE)
    module = _file(Path(place)) if _is_path(place) else _module(place)
    if not name:
        name = _only(module, place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = ", ".join(_functions(module)) or "none"
            raise HeadwiseError("TARGET", f"a name in {place} (functions: {names})", name)
        found = getattr(found, part)
    if inspect.isclass(found):
        found = _made(found, name)
    if not callable(found):
        raise HeadwiseError("TARGET", "a function or a layer", f"{name}, {type(found).__name__}", _EXAMPLE)
    return found, f"{place}:{name}"


def _drive(target: str) -> bool:
    return target[1:3] in (":\\", ":/")


def _is_path(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or "/" in place


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise HeadwiseError("TARGET", "a Python file that exists", str(path), _EXAMPLE)
    whole = path.resolve()
    if (whole.parent / "__init__.py").is_file() and path.stem.isidentifier():
        return _in_package(whole)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise HeadwiseError("TARGET", "a Python file", str(path), _EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _not_importable(str(path), error) from None
    return module


def _in_package(path: Path) -> ModuleType:
    """A file of a package, imported as such: it may import what stands beside it."""
    names, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    if names[-1] == "__init__":
        names.pop()
    return _module(".".join(names), str(folder))


def _module(name: str, folder: str | None = None) -> ModuleType:
    sys.path.insert(0, os.getcwd() if folder is None else folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _not_importable(name, error) from None


def _not_importable(place: str, error: BaseException) -> HeadwiseError:
    said = " ".join(str(error).split())
    return HeadwiseError(
        "TARGET", "a module that can be imported", f"{place} ({type(error).__name__}: {said})"
    )


def _functions(module: ModuleType) -> list[str]:
    """Public functions that the module itself defines."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    ]


def _only(module: ModuleType, place: str) -> str:
    names = _functions(module)
    likely = [name for name in names if any(word in name.lower() for word in _LIKELY)]
    for found in (likely, names):
        if len(found) == 1:
            return found[0]
    expected = f"the name of one function: {', '.join(likely or names) or 'there is none'}"
    raise HeadwiseError(
        "TARGET", expected, place, f"headwise check {place}:{(likely or names or ['name'])[0]}"
    )


def _made(cls: type, name: str) -> Any:
    try:
        return cls()
    except Exception as error:
        hint = f"name an instance, as layer = {name}(...), and check that"
        raise HeadwiseError("TARGET", "a function, or a class that needs no arguments",
                            f"{name} ({type(error).__name__}: {error})", hint) from None  # fmt: skip
