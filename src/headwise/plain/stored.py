"""Results as plain data with a schema and a version: what ``to_dict`` and ``to_json`` gave is read back here.

Data from outside is checked field by field against the types that the frozen dataclasses declare: what
comes back is as sound as what was written, or one message says which field is not.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headwise.errors import HeadwiseError
from headwise.plain.values import shown

Made = TypeVar("Made")

_WORDS = {
    str: "text",
    int: "a whole number",
    float: "a finite number",
    bool: "true or false",
    NoneType: "null",
}


def parsed(text: Any, name: str) -> Any:
    """The data of JSON text.

    Raises:
        HeadwiseError: no text, not JSON (NaN and Infinity are not), or nested too deeply.
    """
    if not isinstance(text, str | bytes | bytearray):
        raise HeadwiseError(name, "JSON text", shown(text))
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError:
        raise HeadwiseError(name, "JSON text", "text that is nested too deeply") from None
    except ValueError as error:  # json's own, bytes that are no UTF-8, a whole number of too many digits
        raise HeadwiseError(name, "JSON text", f"text that is not JSON ({error})") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def opened(data: Any, name: str, schema: str, version: int) -> dict[str, Any]:
    """The fields of ``data``, without its schema and version.

    Raises:
        HeadwiseError: not a dict of that schema, or of a version that this release does not know.
    """
    hint = _hint(name)
    if not isinstance(data, dict) or data.get("schema") != schema:
        found = shown(data.get("schema")) if isinstance(data, dict) else type(data).__name__
        raise HeadwiseError(name, f"a dict with schema {schema!r}", found, hint)
    stated = data.get("version")
    if type(stated) is not int or not 1 <= stated <= version:
        newer = "pip install --upgrade headwise"
        raise HeadwiseError(name, f"version {version} of {schema!r}", f"version {shown(stated)}", newer)
    return {key: value for key, value in data.items() if key not in ("schema", "version")}


def plain_data(data: Any, schema: str, version: int) -> Mapping[str, Any]:
    """The data itself, where a picture can be made of it.

    Raises:
        HeadwiseError: not a dict of that schema and version.
    """
    found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
    if found != schema:
        raise HeadwiseError("data", f"a dict with schema {schema!r}", repr(found), "pass to_dict()")
    if data.get("version") != version:
        stated, hint = repr(data.get("version")), "make it again with this headwise"
        raise HeadwiseError("data", f"version {version} of {schema}", stated, hint)
    return data


def built(kind: type[Made], data: Any, name: str, place: str = "") -> Made:
    """A dataclass from a dict that holds its fields, each of the type that the class declares.

    Raises:
        HeadwiseError: a field that is missing, unknown or of another type; ``name`` is what is read, and the
            message says where in it the field stands.
    """
    made: Made = _dataclass(kind, data, name, place)
    return made


def refuse(name: str, place: str, expected: str, found: Any) -> HeadwiseError:
    """The error about one field: ``trace: expected steps[0].name: text; received 3.``"""
    return HeadwiseError(name, f"{place}: {expected}" if place else expected, shown(found), _hint(name))


def is_finite(value: Any) -> bool:
    """A number, no truth value, that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def _hint(name: str) -> str:
    return f"pass {name.capitalize()}.to_dict()"


def _dataclass(kind: Any, data: Any, name: str, place: str) -> Any:
    if not isinstance(data, dict):
        raise refuse(name, place, "an object of fields", data)
    declared = {field.name: field for field in fields(kind)}
    missing = [
        key
        for key, field in declared.items()
        if key not in data and field.default is MISSING and field.default_factory is MISSING
    ]
    if missing or set(data) - set(declared):
        strange = [key for key in data if key not in declared]
        received = f"one without {missing[0]!r}" if missing else f"one with {shown(strange[0])}"
        where = f" at {place}" if place else ""
        raise HeadwiseError(name, f"every field of a {name}{where}, and no other", received, _hint(name))
    types = get_type_hints(kind)
    values = {key: _value(types[key], value, name, _join(place, key)) for key, value in data.items()}
    return kind(**values)


def _value(kind: Any, data: Any, name: str, place: str) -> Any:
    if kind is Any:
        return data
    if is_dataclass(kind):
        return _dataclass(kind, data, name, place)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _one_of(inner, data, name, place)
    if origin in (list, tuple):
        if not isinstance(data, list | tuple):
            raise refuse(name, place, "a list", data)
        items = [_value(inner[0], item, name, f"{place}[{i}]") for i, item in enumerate(data)]
        return items if origin is list else tuple(items)
    if origin is dict:
        if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
            raise refuse(name, place, "an object of fields", data)
        return {key: _value(inner[1], value, name, _join(place, key)) for key, value in data.items()}
    if not _fits(kind, data):
        raise refuse(name, place, _WORDS[kind], data)
    return data


def _one_of(kinds: tuple[Any, ...], data: Any, name: str, place: str) -> Any:
    plain = [kind for kind in kinds if kind in _WORDS]
    if any(_fits(kind, data) for kind in plain):
        return data
    others = [kind for kind in kinds if kind not in _WORDS]
    if others:
        return _value(others[0], data, name, place)
    raise refuse(name, place, " or ".join(_WORDS[kind] for kind in plain), data)


def _fits(kind: Any, data: Any) -> bool:
    if kind is float:
        return is_finite(data)
    if kind is int:
        return type(data) is int and is_finite(data)
    return type(data) is kind


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
