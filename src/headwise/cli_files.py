"""Files in and out of the commands: read JSON, write what was made, say calmly what is wrong."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError

STANDARD_INPUT = "-"


def read_json(argument: str, path: Path) -> Any:
    """The JSON of a file; "-" reads standard input."""
    try:
        text = sys.stdin.read() if str(path) == STANDARD_INPUT else path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise HeadwiseError(argument, "a file that can be read", f"{path} ({error.strerror})") from None
    except UnicodeDecodeError as error:
        received = f"{path} ({error.reason} at byte {error.start})"
        raise HeadwiseError(argument, "a UTF-8 text file", received) from None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise HeadwiseError(argument, "a JSON file", f"{path} ({error})") from None
    except RecursionError:
        raise HeadwiseError(argument, "a JSON file", f"{path} (nested too deeply)") from None


def check_writable(option: str, path: Path) -> None:
    """Refuse an output path that is sure to fail before anything is computed."""
    if path.is_dir():
        raise HeadwiseError(option, "a file", f"{path} (a folder)")
    target = path if path.exists() else path.parent
    if not target.exists():
        raise HeadwiseError(option, "a file in a folder that exists", f"{path} (no folder {path.parent})")
    if not os.access(target, os.W_OK):
        raise HeadwiseError(option, "a file that can be written", f"{path} (no permission)")


def write(option: str, path: Path, text: str) -> None:
    data = text.encode("utf-8", errors="replace")  # before the file is touched; a lone surrogate becomes "?"
    try:
        path.write_bytes(data)
    except OSError as error:
        raise HeadwiseError(option, "a file that can be written", f"{path} ({error.strerror})") from None
