"""Results as plain data with a schema and a version: what ``to_dict`` and ``to_json`` gave is read back here.

Data from outside is checked field by field against the types that are declared: those of a frozen dataclass,
which is built (every field, and no other), or of a TypedDict, which describes data that stay dicts (fields
that are not known are left alone). What comes back is as sound as what was written, or one message says
which field is not. What a type cannot say is a short list of rules beside the data.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from headwise.errors import HeadwiseError
from headwise.plain.values import shown

Made = TypeVar("Made")
Reader = Callable[[Any, str], Any]  # takes data and their place; gives what they are, or raises

MOST_NUMBERS = 2**22  # in one list: more than any result holds, less than would hurt
_TYPES: dict[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (int, float),
    bool: (bool,),
    NoneType: (NoneType,),
}


class Source:
    """What is read, and how a message speaks of it: ``trace: expected steps[0].name: text; received 3.``

    Attributes:
        name: of what is read.
        hint: where to get a sound one.
        words: what a type is called; one that is not listed is called by its parts.
        finite: must numbers be finite?
    """

    words: Mapping[Any, str] = {
        str: "text",
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
        NoneType: "null",
        list: "a list",
        dict: "an object of fields",
    }
    finite = True

    def __init__(self, name: str, hint: str | None = None) -> None:
        self.name, self.hint = name, hint or f"pass {name.capitalize()}.to_dict()"

    def refusal(self, place: str, expected: str, found: Any) -> HeadwiseError:
        """The error about one field."""
        return HeadwiseError(
            self.name, f"{place}: {expected}" if place else expected, shown(found), self.hint
        )

    def without(self, place: str, field: str) -> HeadwiseError:
        """The error about a field that is missing."""
        return self.other_fields(place, f"one without {field!r}")

    def other_fields(self, place: str, received: str) -> HeadwiseError:
        """The error about fields that are not those of a dataclass."""
        where = f" at {place}" if place else ""
        expected = f"every field of a {self.name}{where}, and no other"
        return HeadwiseError(self.name, expected, received, self.hint)


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
    hint = _source(name).hint
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
    read: Callable[[Any, str], Made] = reader(kind, _source(name))  # type: ignore[arg-type]
    return read(data, place)


def refuse(name: str, place: str, expected: str, found: Any) -> HeadwiseError:
    """The error about one field: ``trace: expected steps[0].name: text; received 3.``"""
    return _source(name).refusal(place, expected, found)


def is_finite(value: Any) -> bool:
    """A number, no truth value, that float64 can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


@cache
def _source(name: str) -> Source:
    return Source(name)


@cache
def reader(kind: Any, source: Source) -> Reader:
    """What reads data of a type: a dataclass is built of its fields, anything else comes back as it is."""
    if kind is Any:
        return lambda data, place: data
    if is_dataclass(kind):
        return _built_of_fields(kind, source)
    if is_typeddict(kind):
        return _known_fields(kind, source)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        others = [each for each in inner if each not in _TYPES]
        return _either(kind, reader(others[0], source), source) if others else _one(kind, source)
    if origin is dict:
        return _named(reader(inner[1], source), source)
    if origin is tuple and inner[-1] is not Ellipsis:
        return _row([reader(each, source) for each in inner], source)
    if origin in (list, tuple):
        return _items(kind, inner[0], source)
    return _one(kind, source)


def _plain_types(kind: Any) -> tuple[type, ...]:
    """The Python types of a plain value, or of the plain ones of a union."""
    kinds = get_args(kind) or (kind,)
    return tuple(type_ for each in kinds for type_ in _TYPES.get(each, ()))


def _fitting(kind: Any, source: Source) -> Callable[[Any], bool]:
    types, finite = _plain_types(kind), source.finite
    sure = frozenset(types) - (frozenset((int, float)) if finite else frozenset())

    def fits(data: Any) -> bool:
        if type(data) in sure:
            return True
        if isinstance(data, bool) or not isinstance(data, types):
            return False
        return not finite or not isinstance(data, int | float) or is_finite(data)

    return fits


def _one(kind: Any, source: Source) -> Reader:
    fits = _fitting(kind, source)
    words = source.words.get(kind) or " or ".join(source.words[each] for each in get_args(kind))

    def read(data: Any, place: str) -> Any:
        if not fits(data):
            raise source.refusal(place, words, data)
        return data

    return read


def _either(kind: Any, other: Reader, source: Source) -> Reader:
    fits = _fitting(kind, source)
    return lambda data, place: data if fits(data) else other(data, place)


def _items(kind: Any, item: Any, source: Source) -> Reader:
    """A list; of a long one of numbers or words only the types are looked at, as most of a result is such."""
    made, read_item = get_origin(kind), reader(item, source)
    types = frozenset(_plain_types(item))
    quick = types if not source.finite or types.isdisjoint((int, float)) else frozenset()
    words = source.words.get(kind)

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, list | tuple):
            raise source.refusal(place, source.words[list], data)
        if quick and len(data) <= MOST_NUMBERS and quick.issuperset(map(type, data)):
            return made(data)
        if words:
            raise source.refusal(place, words, next((one for one in data if type(one) not in types), data))
        return made([read_item(one, f"{place}[{i}]") for i, one in enumerate(data)])

    return read


def _row(items: list[Reader], source: Source) -> Reader:
    """A list of so many items, each of its own type."""

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, list | tuple):
            raise source.refusal(place, source.words[list], data)
        if len(data) != len(items):
            raise source.refusal(place, f"{len(items)} items", data)
        return tuple(
            item(one, f"{place}[{i}]") for i, (item, one) in enumerate(zip(items, data, strict=True))
        )

    return read


def _named(item: Reader, source: Source) -> Reader:
    """An object of any names."""

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
            raise source.refusal(place, source.words[dict], data)
        inside = f"{place}." if place else ""
        return {key: item(value, inside + key) for key, value in data.items()}

    return read


def _built_of_fields(kind: Any, source: Source) -> Reader:
    types = get_type_hints(kind)
    readers = {field.name: reader(types[field.name], source) for field in fields(kind)}
    needed = [
        field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING
    ]

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, dict):
            raise source.refusal(place, source.words[dict], data)
        for key in needed:
            if key not in data:
                raise source.without(place, key)
        for key in data:
            if key not in readers:
                raise source.other_fields(place, f"one with {shown(key)}")
        inside = f"{place}." if place else ""
        return kind(**{key: readers[key](value, inside + key) for key, value in data.items()})

    return read


def _known_fields(kind: Any, source: Source) -> Reader:
    types = get_type_hints(kind)
    readers = [(key, reader(types[key], source), key in kind.__required_keys__) for key in types]

    def read(data: Any, place: str) -> Any:
        if not isinstance(data, Mapping):
            raise source.refusal(place, source.words[dict], data)
        inside = f"{place}." if place else ""
        for key, read_field, is_needed in readers:
            if key in data:
                read_field(data[key], inside + key)
            elif is_needed:
                raise source.without(place, key)
        return data

    return read
