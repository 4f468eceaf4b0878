"""What a trace holds: plain frozen data, versioned, JSON both ways; ``headwise.render`` draws it."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from headwise.errors import HeadwiseError
from headwise.plain.stored import built, opened, parsed
from headwise.trace.sound import sound

SCHEMA = "headwise.trace"
VERSION = 1


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

    def numpy(self) -> NDArray[Any]:
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

    def __getitem__(self, name: str) -> NDArray[Any]:
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
        sound(trace)
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
