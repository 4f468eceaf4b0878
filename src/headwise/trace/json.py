"""The arguments of ``explain`` as JSON: lists become float64 arrays."""

import inspect
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.options import shown
from headwise.trace import explain
from headwise.trace.data import Trace

ARRAYS = (
    "x",
    "context",
    "w_q",
    "w_k",
    "w_v",
    "w_o",
    "b_q",
    "b_k",
    "b_v",
    "b_o",
    "query",
    "key",
    "value",
    "scores",
)


def trace_of(data: Any) -> Trace:
    """The trace of a JSON object.

    Args:
        data: the arguments of :func:`headwise.explain` under their names, arrays as nested lists; in
            ``attn_mask`` ``true`` lets a query see a key, and among numbers ``null`` hides it (minus
            infinity). Or the dict of a :class:`Trace`.

    Raises:
        HeadwiseError: not an object, or an unknown name.
        ShapeError, DtypeError: a list that is no array of numbers; and what ``explain`` raises.

    >>> trace_of({"scores": [[2, 2, 2]], "value": [[10], [20], [30]]}).output
    [[[20.0]]]
    """
    if not isinstance(data, dict):
        raise HeadwiseError("JSON", "an object with the arguments of headwise.explain", type(data).__name__)
    if "schema" in data:
        return Trace.from_dict(data)
    known = list(inspect.signature(explain).parameters)
    unknown = [name for name in data if name not in known]
    if unknown:
        hint = f"known: {', '.join(known)}"
        raise HeadwiseError(
            "JSON", "the arguments of headwise.explain", f"unknown {', '.join(unknown)}", hint
        )
    arguments: dict[str, Any] = {}
    for name, value in data.items():
        if value is None:
            continue
        if name == "attn_mask":
            arguments[name] = _mask(value)
        else:
            arguments[name] = _array(name, value) if name in ARRAYS else value
    return explain(**arguments)


def _array(name: str, value: Any) -> NDArray[Any]:
    array = _nested(name, value)
    if array.dtype.kind not in "iuf":
        raise DtypeError(name, "nested lists of numbers", shown(value), "as in [[1, 0], [0, 1]]")
    return array.astype(np.float64)


def _mask(value: Any) -> NDArray[Any]:
    array = _nested("attn_mask", value)
    if array.dtype == np.bool_:
        return array
    if array.dtype == object:
        flat = [-np.inf if item is None else item for item in array.ravel()]
        if any(isinstance(item, bool) or not isinstance(item, int | float) for item in flat):
            hint = "true lets a query see a key; among numbers null hides it"
            raise DtypeError("attn_mask", "nested lists of true and false, or of numbers", shown(value), hint)
        array = np.array(flat).reshape(array.shape)
    if array.dtype.kind not in "iuf":
        raise DtypeError("attn_mask", "nested lists of true and false, or of numbers", shown(value))
    return array.astype(np.float64)


def _nested(name: str, value: Any) -> NDArray[Any]:
    if not isinstance(value, list):
        raise DtypeError(name, "nested lists", shown(value), "as in [[1, 0], [0, 1]]")
    try:
        return np.array(value)
    except ValueError:
        raise ShapeError(name, "rows of one length", shown(value)) from None
