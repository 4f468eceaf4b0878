"""Readers of model files that transformers does not read quickly, or not at all.

Each writes a folder that ``from_pretrained`` takes, once; the folder is kept in headwise's cache.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from headwise.errors import HeadwiseError

READERS = ("gguf", "ctranslate2", "smiles")
VARIABLE = "HEADWISE_CACHE"


def cache_root() -> Path:
    """Where converted models are kept: $HEADWISE_CACHE, or the user's cache folder."""
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "headwise"


def converted(reader: str, source: Path, name: str) -> Path:
    """The folder that a reader made of ``source``, under ``name`` in the cache; made now if it is not there.

    Args:
        reader: one of READERS.
        source: the file or folder to read.
        name: a name that belongs to these weights only.

    Raises:
        HeadwiseError: the cache cannot be written; what the reader refuses.
    """
    read: Callable[[Path, Path], None] = import_module(f"headwise.inspect.load.readers.{reader}").read
    folder = cache_root() / name
    if (folder / "config.json").is_file():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    except OSError as error:
        received = f"{folder.parent} ({error.strerror})"
        raise HeadwiseError(
            VARIABLE, "a folder that can be written", received, f"export {VARIABLE}=…"
        ) from error
    try:
        read(source, made)
        if not folder.exists():  # somebody else may have been quicker
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder
