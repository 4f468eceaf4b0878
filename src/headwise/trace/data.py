"""What a trace holds: plain frozen data, versioned, JSON both ways; ``headwise.render`` draws it."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.stored import built, is_finite, opened, parsed, refuse
from headwise.plain.types import Array

SCHEMA = "headwise.trace"
VERSION = 1
AXES = ("head", "query", "key", "column")


@dataclass(frozen=True)
class TraceArray:
    """One array of a step.

    Attributes:
        name, latex: its symbol in the formulas.
        meaning: a few words.
        letters: its shape in letters, one per axis (``"n"``, ``"h·d_k"``).
        shape: its shape in numbers.
        axes: what each axis counts: "head", "query", "key" or "column".
        values: nested lists of floats (or booleans); None inside them is minus infinity, the score of a
            hidden key. None instead of them: the array was given, is large, and stands by its shape only.
    """

    name: str
    latex: str
    meaning: str
    letters: list[str]
    shape: list[int]
    axes: list[str]
    values: Any

    def numpy(self) -> Array:
        """The values as float64 (minus infinity at hidden keys) or as booleans.

        Raises:
            HeadwiseError: the array stands by its shape only.
        """
        if self.values is None:
            hint = "the caller has the array that was given"
            raise HeadwiseError(
                "values", "an array whose numbers are kept", f"{self.name}, kept by shape", hint
            )
        array = np.array(self.values, dtype=object).reshape(self.shape)
        if array.size and isinstance(array.flat[0], bool):
            return array.astype(bool)
        return np.array([-np.inf if v is None else v for v in array.flat], np.float64).reshape(self.shape)


@dataclass(frozen=True)
class Fact:
    """One number (or word) worth telling: ``d_k = 64``."""

    key: str
    name: str
    value: Any


@dataclass(frozen=True)
class Check:
    """A claim that has to hold, and the error that was found when it was evaluated.

    ``holds`` is ``error <= tolerance``; a tolerance of 0 is a claim about every bit. An error that is
    infinite or NaN is kept as the largest float64. ``why`` says what makes a tolerance as large as it is,
    where the numbers at hand make it larger than rounding usually is.
    """

    key: str
    claim: str
    error: float
    tolerance: float
    holds: bool
    why: str = ""


@dataclass(frozen=True)
class Step:
    """One step of the forward pass.

    Attributes:
        key: "shapes", "projections", "split", "scores", "scaled", "masked", "weights", "blend",
            "concatenation" or "output".
        name, why: its name, and one line of why.
        formula, latex: what is computed, as plain text and as LaTeX.
        worked: lines in which one entry is computed with its numbers.
        arrays, facts, checks: what came out, what is worth telling, and what holds.
    """

    key: str
    name: str
    why: str
    formula: str
    latex: str
    worked: tuple[str, ...] = ()
    arrays: tuple[TraceArray, ...] = ()
    facts: tuple[Fact, ...] = ()
    checks: tuple[Check, ...] = ()

    def __getitem__(self, name: str) -> Array:
        """The numbers of the array ``name``, see :meth:`TraceArray.numpy`."""
        return _by("name", name, self.arrays, "array").numpy()

    def fact(self, key: str) -> Any:
        return _by("key", key, self.facts, "fact").value

    def check(self, key: str) -> Check:
        return _by("key", key, self.checks, "check")


@dataclass(frozen=True)
class Trace:
    """Every step of one forward pass, with its numbers. Plain data; heads and positions count from 0.

    ``str(trace)`` is the terminal view, ``to_html()`` an offline page, ``to_markdown()`` text with LaTeX,
    ``trace["weights"]["A"]`` the attention weights as a float64 array.

    Attributes:
        headwise: version that made the trace.
        title: a line of the caller's, or one that says the sizes.
        about: a sentence or two of the caller's, or "".
        kind: "block" (projections and W_O), "attention" (query, key, value) or "scores".
        sizes: n_q, n_k, h, h_kv, d_k, d_v, and of a block d_in, d_context, d_out.
        options: is_causal, query_offset, scale, mask ("none", "boolean" or "additive").
        queries, keys: one name per query and per key.
        steps: the steps, in order.
        output: the last array, nested lists.
        compared: function that computed the same output another way, max_abs_difference, tolerance.
        notes: plain sentences.
    """

    headwise: str
    title: str
    about: str
    kind: str
    sizes: dict[str, int]
    options: dict[str, Any]
    queries: list[str]
    keys: list[str]
    steps: tuple[Step, ...]
    output: list[Any]
    compared: dict[str, Any]
    notes: list[str]

    def __getitem__(self, key: str) -> Step:
        return _by("key", key, self.steps, "step")

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of all steps."""
        return tuple(check for step in self.steps for check in step.checks)

    @property
    def holds(self) -> bool:
        """Does every check hold?"""
        return all(check.holds for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """The trace with its schema and version, as JSON would hold it (a copy)."""
        return {"schema": SCHEMA, "version": VERSION, **_listed(asdict(self))}

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The trace that ``to_dict`` gave.

        Raises:
            HeadwiseError: another schema, a newer version, or a field that is missing or unsound.
        """
        trace = built(cls, opened(data, "trace", SCHEMA, VERSION), "trace")
        _check_sound(trace)
        return trace

    def to_json(self) -> str:
        """The trace as JSON text; every number reads back as the same float64."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The trace that ``to_json`` gave.

        Raises:
            HeadwiseError: not JSON, or not a trace.
        """
        return cls.from_dict(parsed(text, "trace"))

    def to_html(self) -> str:
        """One offline HTML page."""
        from headwise.render.trace.page import render_html

        return render_html(self.to_dict())

    def to_markdown(self) -> str:
        """Markdown with LaTeX formulas."""
        from headwise.render.trace.markdown import render_markdown

        return render_markdown(self.to_dict())

    def __str__(self) -> str:
        from headwise.render.trace.text import to_text

        return to_text(self.to_dict())

    def __repr__(self) -> str:
        state = "all checks hold" if self.holds else "a check FAILS"
        return f"<Trace {self.title!r}: {len(self.steps)} steps, {state}; print it to read it>"


def _by(attribute: str, wanted: str, items: tuple[Any, ...], what: str) -> Any:
    for item in items:
        if getattr(item, attribute) == wanted:
            return item
    there = ", ".join(getattr(item, attribute) for item in items) or "none"
    raise KeyError(f"no {what} {wanted!r}; there are: {there}")


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_listed(item) for item in value]
    return value


def _check_sound(trace: Trace) -> None:
    """Check sizes, names, arrays, checks and the comparison against each other.

    Raises:
        HeadwiseError: the first thing that does not fit.
    """
    for size in ("n_q", "n_k", "h", "h_kv"):
        if trace.sizes.get(size, 0) < 1:
            raise refuse("trace", f"sizes.{size}", "a whole number >= 1", trace.sizes.get(size))
    lengths = {"query": trace.sizes["n_q"], "key": trace.sizes["n_k"]}
    for place, names, axis in (("queries", trace.queries, "query"), ("keys", trace.keys, "key")):
        if len(names) != lengths[axis]:
            raise refuse("trace", place, f"{lengths[axis]} names", names)
    for name, option in trace.options.items():
        if not (option is None or isinstance(option, bool | str) or is_finite(option)):
            raise refuse("trace", f"options.{name}", "a word, a number, true, false or null", option)
    for i, step in enumerate(trace.steps):
        for j, array in enumerate(step.arrays):
            _array(array, lengths, f"steps[{i}].arrays[{j}]")
        for j, fact in enumerate(step.facts):
            if not (isinstance(fact.value, str) or is_finite(fact.value)):
                raise refuse("trace", f"steps[{i}].facts[{j}].value", "a word or a number", fact.value)
        for j, check in enumerate(step.checks):
            if check.holds != (check.error <= check.tolerance):
                raise refuse("trace", f"steps[{i}].checks[{j}].holds", "error <= tolerance", check.holds)
    compared = trace.compared
    if set(compared) != {"function", "max_abs_difference", "tolerance", "why"}:
        raise refuse("trace", "compared", "function, max_abs_difference, tolerance and why", compared)
    for name, value in compared.items():
        fits = isinstance(value, str) if name in ("function", "why") else is_finite(value)
        if not fits:
            raise refuse("trace", f"compared.{name}", "a word, or a number of a size or difference", value)
    if not trace.steps or not trace.steps[-1].arrays:
        raise refuse("trace", "steps", "a last step that holds the output", trace.steps[-1:])
    if not all(map(is_finite, _leaves(trace.output, trace.steps[-1].arrays[-1].shape, "output"))):
        raise refuse("trace", "output", "finite numbers", trace.output)


def _array(array: TraceArray, lengths: dict[str, int], place: str) -> None:
    shape, axes = array.shape, array.axes
    if not len(shape) == len(axes) == len(array.letters) or not all(axis in AXES for axis in axes):
        expected = f"one of {', '.join(AXES)} for every size of the shape"
        raise refuse("trace", f"{place}.axes", expected, axes)
    if not 1 <= len(shape) - (axes[:1] == ["head"]) <= 2 or "head" in axes[1:]:
        raise refuse("trace", f"{place}.axes", "one or two axes behind the heads", axes)
    for axis, size in zip(axes, shape, strict=True):
        if size < 1 or size != lengths.get(axis, size):
            raise refuse("trace", f"{place}.shape", f"{lengths.get(axis, '1 or more')} along {axis}", shape)
    if array.values is None:
        return
    leaves = list(_leaves(array.values, shape, f"{place}.values"))
    if not (all(type(leaf) is bool for leaf in leaves) or all(v is None or is_finite(v) for v in leaves)):
        raise refuse("trace", f"{place}.values", "finite numbers and null, or truth values", array.values)


def _leaves(values: Any, shape: list[int], place: str) -> Any:
    """What stands in nested lists of that shape."""
    if not shape:
        yield values
        return
    if not isinstance(values, list) or len(values) != shape[0]:
        raise refuse("trace", place, f"nested lists of shape {shape}", values)
    for part in values:
        yield from _leaves(part, shape[1:], place)
