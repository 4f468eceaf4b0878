"""Files in and out of the commands, and the words of a refusal: read, check, write, and say calmly what is
wrong."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

STANDARD = "-"  # standard input or output in place of a file


def read_text(argument: str, path: Path) -> str:
    """The text of a UTF-8 file; "-" reads standard input."""
    try:
        return sys.stdin.read() if str(path) == STANDARD else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise HeadwiseError(argument, "a file that can be read", f"{path} ({error.strerror})") from None
    except UnicodeDecodeError as error:
        received = f"{path} ({error.reason} at byte {error.start})"
        raise HeadwiseError(argument, "a UTF-8 text file", received) from None


def read_json(argument: str, path: Path, text: str | None = None) -> Any:
    """The JSON of a file, or of its ``text`` where that was read already."""
    text = read_text(argument, path) if text is None else text
    try:
        return json.loads(text)
    except RecursionError:
        raise HeadwiseError(argument, "a JSON file", f"{path} (nested too deeply)") from None
    except ValueError as error:  # json's own, or a whole number of too many digits
        raise HeadwiseError(argument, "a JSON file", f"{path} ({error})") from None


def check_writable(option: str, path: Path, endings: tuple[str, ...] = (), hint: str = "") -> None:
    """Refuse an output path that is sure to fail, before anything is computed.

    Args:
        endings: those that a file of this kind may have, or none at all; () takes any. ``hint``: what else
            could be done about another one.
    """
    if str(path) == STANDARD:
        raise HeadwiseError(option, "the name of a file", f"{path}, which stands for no file here", hint)
    try:
        if path.is_dir():
            what = "this folder; so is an empty name" if str(path) == "." else "a folder"
            raise HeadwiseError(option, "a file", f"{path} ({what})")
        target = path if path.exists() else path.parent
        if not target.exists():
            raise HeadwiseError(option, "a file in a folder that exists", f"{path} (no folder {path.parent})")
        if target is not path and not target.is_dir():
            raise HeadwiseError(option, "a file in a folder", f"{path} ({path.parent} is a file)")
    except OSError as error:  # a name that is too long
        raise HeadwiseError(option, "a file that can be written", f"{path} ({error.strerror})") from None
    if endings and path.suffix and path.suffix.lower() not in endings:
        words = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise HeadwiseError(option, f"a name that ends in {words}", str(path), hint)
    if not os.access(target, os.W_OK):
        raise HeadwiseError(option, "a file that can be written", f"{path} (no permission)")


def check_outputs(given: dict[str, Path | None], endings: dict[str, tuple[str, ...]] | None = None) -> None:
    """Refuse output paths that are sure to fail, and two that are the same, before anything is computed."""
    seen: dict[Path, str] = {}
    for option, path in given.items():
        if path is None:
            continue
        check_writable(option, path, (endings or {}).get(option, ()))
        if (other := seen.setdefault(path.resolve(), option)) != option:
            raise HeadwiseError(option, f"another file than {other}", str(path))


def write(option: str, path: Path, text: str) -> None:
    data = text.encode("utf-8", errors="replace")  # before the file is touched; a lone surrogate becomes "?"
    try:
        path.write_bytes(data)
    except OSError as error:
        raise HeadwiseError(option, "a file that can be written", f"{path} ({error.strerror})") from None


@contextmanager
def as_options(*names: str) -> Iterator[None]:
    """Let an error about the arguments ``names`` of a Python function speak of the options that set them."""
    try:
        yield
    except HeadwiseError as error:
        argument = _option(error.argument) if error.argument in names else error.argument
        expected, received, hint = (
            _typed(text, names) for text in (error.expected, error.received, error.hint)
        )
        raise type(error)(argument, re.sub(r"\bNone\b", "nothing", expected), received, hint) from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _typed(text: str, names: tuple[str, ...]) -> str:
    """The text as someone at a prompt would write it.

    ``heads=8`` and ``heads = 8`` become ``--heads 8``, ``ignore=('a', 'b')`` becomes ``--ignore a --ignore
    b``, a name that only Python has becomes its option, and a call of ``cost`` a command.
    """
    if text == "None":
        return "nothing"
    text = re.sub(r"\bcost\(([^()]*)\)", lambda call: f"headwise cost {call[1].replace(', ', ' ')}", text)
    for name in sorted(names, key=len, reverse=True):
        option = _option(name)

        def several(found: re.Match[str], option: str = option) -> str:
            return " ".join(f"{option} {word}" for word in re.findall(r"'([^']*)'", found[1]))

        def one(found: re.Match[str], option: str = option) -> str:
            written = f"{option} {found['value']}"
            return written + found["space"][min(len(found["space"]) - 1, len(written) - len(found["old"])) :]

        start = rf"(?<![\w-]){name}"
        text = re.sub(rf"{start}=\(([^()]*)\)", several, text)
        # What stands in columns stays there: an option is a little longer than its name.
        text = re.sub(rf"(?P<old>{start} ?= ?(?P<value>[\w.]+))(?P<space> {{2,}})", one, text)
        text = re.sub(rf"{start} ?= ?(?=[\w.])", f"{option} ", text)
        if "_" in name:
            text = re.sub(rf"{start}(?!\w)", option, text)
    return text
