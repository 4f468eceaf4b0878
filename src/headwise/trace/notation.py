"""Small parts that every step of a trace is made of: letters of shapes, arrays, worked lines."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.plain.numbers import number
from headwise.plain.types import Array
from headwise.trace.data import Fact, TraceArray

LARGE_INPUT = 4096  # numbers; a larger array that was given is kept by its shape only
MINUS = "\u2212"
TERMS = 4  # products that a worked line writes out
GIVEN = ("X", "C", "W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")
_LATEX = {
    "S_i": "S_i",
    "Z_i": "Z_i",
    "M_i": r"\tilde Z_i",
    "A_i": "A_i",
    "O_i": "O_i",
    "seen": r"\text{seen}",
}


@dataclass(frozen=True)
class Letters:
    """The sizes of one forward pass, and the letters that stand for them.

    In self-attention n_q and n_k are one n; where every width of the block is the same it is d_model.
    """

    sizes: dict[str, int]
    same_tokens: bool

    @property
    def n_q(self) -> str:
        return "n" if self.same_tokens else "n_q"

    @property
    def n_k(self) -> str:
        return "n" if self.same_tokens else "n_k"

    @property
    def h_kv(self) -> str:
        return "h" if self.sizes["h"] == self.sizes["h_kv"] else "h_kv"

    @property
    def one_width(self) -> bool:
        widths = {self.sizes[name] for name in ("d_in", "d_context", "d_out") if name in self.sizes}
        return len(widths) == 1

    @property
    def d_in(self) -> str:
        return "d_model" if self.one_width else "d_in"

    @property
    def d_context(self) -> str:
        return (
            "d_context"
            if self.sizes.get("d_context", self.sizes["d_in"]) != self.sizes["d_in"]
            else self.d_in
        )

    @property
    def d_out(self) -> str:
        return "d_out" if self.sizes["d_out"] != self.sizes["d_in"] else self.d_in

    def weights(self) -> dict[str, tuple[str, str]]:
        """The shape of each weight in letters."""
        return {
            "q": (self.d_in, "h·d_k"),
            "k": (self.d_context, f"{self.h_kv}·d_k"),
            "v": (self.d_context, f"{self.h_kv}·d_v"),
            "o": ("h·d_v", self.d_out),
        }

    def facts(self) -> list[Fact]:
        return [Fact(name, _SIZES[name], size) for name, size in self.sizes.items() if name in ("d_k", "d_v")]


_SIZES = {"d_k": "d_k, width of a query and of a key", "d_v": "d_v, width of a value"}


def array(name: str, meaning: str, letters: list[str], values: Array, axes: str) -> TraceArray:
    """The array as a trace keeps it; ``axes`` are words such as "head query key"."""
    keep = name not in GIVEN or values.size <= LARGE_INPUT
    return TraceArray(
        name,
        _LATEX.get(name, name),
        meaning,
        letters,
        list(values.shape),
        axes.split(),
        plain(values) if keep else None,
    )


def plain(values: Array) -> Any:
    """Nested lists; minus infinity becomes None, minus zero 0."""
    if values.dtype == np.bool_:
        return values.tolist()
    whole = (values + 0.0).astype(object)
    whole[np.isneginf(values)] = None
    return whole.tolist()


def dot(left: Array, right: Array, bias: float | None = None) -> str:
    """``1·0.5 + 2·1 = 2.5``; of a long product only the ends."""
    terms = [f"{number(a)}·{_factor(b)}" for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    if len(terms) > TERMS:
        terms = [*terms[: TERMS - 2], f"… ({len(terms)} products)", terms[-1]]
    total = float(left @ right)
    if bias is not None:
        terms.append(number(bias))
        total += bias
    return f"{signed(terms)} = {number(total)}"


def _factor(value: float) -> str:
    text = number(value)
    return f"({text})" if text[0] == MINUS else text


def plus(terms: list[str]) -> str:
    """A sum written out; of a long one only the ends."""
    if len(terms) > TERMS + 2:
        terms = [*terms[:TERMS], f"… ({len(terms)} terms)", terms[-1]]
    return signed(terms)


def signed(terms: list[str]) -> str:
    """Terms joined by + or, where a term begins with a minus, by that."""
    text = terms[0]
    for term in terms[1:]:
        text += f" {MINUS} {term[1:]}" if term[0] == MINUS else f" + {term}"
    return text
