"""Query and key from a NumPy .npz file."""

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.inspect.qk import inspect_qk
from headwise.inspect.report.report import HeadReport

ARRAYS = ("query", "key", "value")
SHORT = {"q": "query", "k": "key", "v": "value"}
TEXTS = ("tokens", "key_tokens")
NUMBERS = ("ids", "key_ids", "special", "key_special", "pairs", "pair_candidates", "segment_ids")
OPTIONS = ("attn_mask", "attn_bias", "sinks")
FLAGS = ("is_causal", "pairs_both_ways")
SINGLE = ("scale", "softcap", "query_offset", "causal_alignment", "window_size")
KNOWN = (*ARRAYS, *TEXTS, *NUMBERS, *OPTIONS, *FLAGS, *SINGLE)
HINT = "np.savez('qk.npz', query=q, key=k, is_causal=True)"


def inspect_npz(path: str | Path, **wishes: Any) -> HeadReport:
    """``inspect_qk`` on the arrays of an .npz file, called as its arguments (q, k and v will do too).

    Args:
        wishes: further arguments of ``inspect_qk``; they go before what the file says.

    Raises:
        HeadwiseError: no such file, no query or key in it, a name that is not known, or Python objects, which
            are never unpickled; and whatever ``inspect_qk`` refuses.
    """
    given = _read(Path(path))
    arguments: dict[str, Any] = {}
    for name, array in given.items():
        argument = SHORT.get(name, name)
        if argument in arguments:
            raise HeadwiseError("npz", "one of q and query, k and key, v and value", f"both, in {path}")
        if argument not in KNOWN:
            expected = f"arrays called {', '.join(KNOWN)}"
            raise HeadwiseError("npz", expected, f"{name!r} in {path}", HINT)
        arguments[argument] = _argument(argument, array)
    missing = [name for name in ("query", "key") if name not in arguments]
    if missing:
        received = f"{path} with {', '.join(given) or 'nothing'} in it"
        raise HeadwiseError("npz", "query and key", received, HINT)
    path = Path(path)
    return inspect_qk(**{"name": path.stem, "source": str(path), **arguments, **wishes})


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise HeadwiseError("npz", "an .npz file with query and key", f"{path}, which is none", HINT)
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        strangers = [name for name, array in found.items() if not isinstance(array, np.ndarray)]
        if strangers:
            raise ValueError(f"{strangers[0]} is no array")
        return found
    except OSError as error:
        raise HeadwiseError("npz", "a file that can be read", f"{path} ({error.strerror or error})") from None
    except HeadwiseError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, NotImplementedError, zlib.error) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "Python objects in a file are never loaded" if "pickle" in why else HINT
        raise HeadwiseError("npz", "an .npz file of plain arrays", f"{path} ({why})", hint) from None


def _argument(name: str, array: Any) -> Any:
    """The argument that an array of the file stands for."""
    if name in TEXTS:
        if array.ndim != 1 or array.dtype.kind not in "US":
            raise HeadwiseError(name, "a vector of strings", f"{array.dtype} of shape {array.shape}")
        return [
            item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
            for item in array.tolist()
        ]
    if name in FLAGS:
        if array.ndim or array.dtype != np.bool_:
            raise HeadwiseError(
                name, "True or False", f"{array.dtype} of shape {array.shape}", f"{name}=True"
            )
        return bool(array)
    if name == "window_size":
        if array.shape != (2,) or array.dtype.kind not in "iu":
            received = f"{array.dtype} of shape {array.shape}"
            raise HeadwiseError(name, "two whole numbers, -1 = open", received, "window_size=(128, 0)")
        return tuple(None if side == -1 else int(side) for side in array)
    if name in SINGLE:
        if array.ndim:
            raise HeadwiseError(name, "a single value", f"{array.dtype} of shape {array.shape}")
        return array.item()
    return array
