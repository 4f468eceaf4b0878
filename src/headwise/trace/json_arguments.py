"""The arguments of ``explain`` as JSON, and a trace that was kept as JSON."""

import inspect
from typing import Any

from headwise.errors import DtypeError, HeadwiseError
from headwise.plain.values import shown
from headwise.trace.data import Trace
from headwise.trace.forward import explain

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
        if name in (*ARRAYS, "attn_mask") and not isinstance(value, list):
            raise DtypeError(name, "nested lists", shown(value), "as in [[1, 0], [0, 1]]")
        arguments[name] = value
    return explain(**arguments)
