"""What a reader knows, in a small JSON file; read and written only where a file was named."""

import json
from pathlib import Path

from headwise.errors import HeadwiseError

SCHEMA = "headwise.progress"
VERSION = 1


def read_progress(path: Path) -> dict[str, bool]:
    """Key -> answered right the last time; empty where there is no file yet.

    Raises:
        HeadwiseError: the file cannot be read, or holds something else. It is not touched then.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise HeadwiseError("--remember", "a progress file, or a new one", f"{path} ({error})") from None
    known = data.get("known") if isinstance(data, dict) else None
    ours = isinstance(data, dict) and data.get("schema") == SCHEMA and data.get("version") == VERSION
    if not ours or not isinstance(known, dict) or not all(isinstance(v, bool) for v in known.values()):
        raise HeadwiseError("--remember", "a progress file, or a new one", f"{path}, which is something else")
    return known


def write_progress(path: Path, known: dict[str, bool]) -> None:
    """Write what ``read_progress`` reads.

    Raises:
        HeadwiseError: the file cannot be written.
    """
    text = json.dumps({"schema": SCHEMA, "version": VERSION, "known": dict(sorted(known.items()))}, indent=1)
    try:
        path.write_text(text + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise HeadwiseError(
            "--remember", "a file that can be written", f"{path} ({error.strerror})"
        ) from None
