"""Nested lists as the arrays of ``explain``: numbers become float64, truth values a boolean mask."""

from typing import Any

import numpy as np

from headwise.errors import DtypeError, ShapeError
from headwise.plain.types import Array
from headwise.plain.values import is_number, shown

_DEEPEST = 8  # lists in lists; no array of explain has as many axes
_NUMBERS = ("nested lists of numbers", "as in [[1, 0], [0, 1]]")
_MASK = (
    "nested lists of true and false, or of numbers",
    "true lets a query see a key; among numbers null hides it",
)


def array_of(name: str, value: Any) -> Any:
    """A float64 array of nested lists; what is no list comes back as it is.

    Raises:
        ShapeError: rows of different lengths.
        DtypeError: something else than numbers that float64 can hold.
    """
    if not isinstance(value, list | tuple):
        return value
    if not all(map(is_number, _leaves(name, value))):
        raise DtypeError(name, _NUMBERS[0], shown(value), _NUMBERS[1])
    return _filled(name, value, np.float64)


def mask_of(value: Any) -> Any:
    """A boolean mask, or float64 numbers to add, in which None is minus infinity; no list: as it is.

    Raises:
        ShapeError, DtypeError: as ``array_of``; truth values and numbers do not mix.
    """
    if not isinstance(value, list | tuple):
        return value
    leaves = _leaves("attn_mask", value)
    if leaves and all(isinstance(leaf, bool | np.bool_) for leaf in leaves):
        return _filled("attn_mask", value, np.bool_)
    if not all(leaf is None or is_number(leaf) for leaf in leaves):
        raise DtypeError("attn_mask", _MASK[0], shown(value), _MASK[1])
    return _filled("attn_mask", _without_none(value), np.float64)


def _leaves(name: str, value: Any, depth: int = 0) -> list[Any]:
    """What stands in the lists."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return [value]
    if depth == _DEEPEST:
        raise ShapeError(name, "lists of two or three levels", f"more than {_DEEPEST}")
    return [leaf for part in value for leaf in _leaves(name, part, depth + 1)]


def _without_none(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_none(part) for part in value]
    return -np.inf if value is None else value


def _filled(name: str, value: Any, dtype: Any) -> Array:
    try:
        return np.array(value, dtype)
    except ValueError:
        raise ShapeError(name, "rows of one length", shown(value)) from None
    except OverflowError:
        raise DtypeError(name, "numbers that float64 can hold", shown(value)) from None
