"""The steps of a trace that only a whole block has: shapes and projections before the heads, W_O after."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from headwise.plain.numbers import count, vector
from headwise.plain.types import Array
from headwise.trace import claims
from headwise.trace.arithmetic import join, projected_heads, split
from headwise.trace.data import Check, Fact, Step
from headwise.trace.notation import Letters, array, dot

PROJECTIONS = (("q", "queries", "X"), ("k", "keys", "C"), ("v", "values", "C"))


@dataclass(frozen=True)
class Block:
    """A block in float64: its inputs, weights and biases, and the sizes that they have."""

    x: Array
    context: Array | None
    w: dict[str, Array]
    b: dict[str, Array | None]
    heads: int
    kv_heads: int
    letters: Letters

    def source(self, letter: str) -> Array:
        return self.x if letter == "q" or self.context is None else self.context

    def source_name(self, letter: str) -> str:
        return "X" if letter == "q" or self.context is None else "C"

    def project(self, letter: str) -> Array:
        return self.projected[letter]

    @cached_property
    def projected(self) -> dict[str, Array]:
        return {letter: self._project(letter) for letter in "qkv"}

    def _project(self, letter: str) -> Array:
        bias = self.b[letter]
        projected = self.source(letter) @ self.w[letter]
        return projected if bias is None else projected + bias

    def heads_of(self, letter: str) -> int:
        return self.heads if letter == "q" else self.kv_heads


def shapes(block: Block) -> Step:
    """What goes in, how wide everything is, and how many parameters there are."""
    letters, w = block.letters, block.w
    arrays = [array("X", "input, one row per token", [letters.n_q, letters.d_in], block.x, "query column")]
    if block.context is not None:
        shape = [letters.n_k, letters.d_context]
        arrays.append(array("C", "context, one row per token", shape, block.context, "key column"))
    for letter, (rows, columns) in letters.weights().items():
        name = f"W_{letter.upper()}"
        arrays.append(array(name, _weight_meaning(letter), [rows, columns], w[letter], "column column"))
    for letter, bias in block.b.items():
        if bias is not None:
            columns = letters.weights()[letter][1]
            arrays.append(
                array(f"b_{letter.upper()}", f"bias of W_{letter.upper()}", [columns], bias, "column")
            )
    h, h_kv, d_k, d_v = block.heads, block.kv_heads, letters.sizes["d_k"], letters.sizes["d_v"]
    dimensions = [
        ("w_q_columns", f"h·d_k = {h}·{d_k} columns in W_Q", h * d_k, w["q"].shape[1]),
        ("w_k_columns", f"{letters.h_kv}·d_k = {h_kv}·{d_k} columns in W_K", h_kv * d_k, w["k"].shape[1]),
        ("w_v_columns", f"{letters.h_kv}·d_v = {h_kv}·{d_v} columns in W_V", h_kv * d_v, w["v"].shape[1]),
        ("w_o_rows", f"h·d_v = {h}·{d_v} rows in W_O", h * d_v, w["o"].shape[0]),
    ]
    return Step(
        "shapes",
        "Shapes",
        "Every head works in a narrow space of its own: the heads share out the columns of W_Q.",
        f"d_k = columns of W_Q / h = {w['q'].shape[1]} / {h} = {d_k}",
        rf"d_k = \frac{{\text{{columns of }} W_Q}}{{h}} = \frac{{{w['q'].shape[1]}}}{{{h}}} = {d_k}",
        arrays=tuple(arrays),
        facts=(*_parameters(block), *letters.facts()),
        checks=tuple(claims.dimensions(*dimension) for dimension in dimensions),
    )


def _weight_meaning(letter: str) -> str:
    return (
        "output projection" if letter == "o" else f"makes {dict(q='queries', k='keys', v='values')[letter]}"
    )


def _parameters(block: Block) -> list[Fact]:
    """The parameter count, one head first."""
    d_in, d_k = block.w["q"].shape[0], block.letters.sizes["d_k"]
    projections = sum(block.w[letter].size for letter in "qkv")
    weights = projections + block.w["o"].size
    biases = sum(bias.size for bias in block.b.values() if bias is not None)
    return [
        Fact("parameters_head_query", f"parameters of one head's part of W_Q, {d_in}·{d_k}", d_in * d_k),
        Fact("parameters_projections", "parameters of W_Q, W_K and W_V", projections),
        Fact("parameters_output", "parameters of W_O", block.w["o"].size),
        Fact("parameters_weights", "parameters without biases", weights),
        *(
            [Fact("parameters", f"parameters with {count(biases)} biases", weights + biases)]
            if biases
            else []
        ),
    ]


def projections(block: Block) -> Step:
    """Q, K and V of all heads at once."""
    letters, arrays, formula, latex, worked = block.letters, [], [], [], []
    for letter, meaning, _ in PROJECTIONS:
        name, source = letter.upper(), block.source_name(letter)
        bias = block.b[letter] is not None
        formula.append(f"{name} = {source} W_{name}" + (f" + b_{name}" if bias else ""))
        latex.append(f"{name} = {source} W_{name}" + (f" + b_{name}" if bias else ""))
        shape = [letters.n_q if letter == "q" else letters.n_k, letters.weights()[letter][1]]
        axes = f"{'query' if letter == 'q' else 'key'} column"
        arrays.append(
            array(name, f"{meaning} of all heads, side by side", shape, block.project(letter), axes)
        )
    entry = dot(block.x[0], block.w["q"][:, 0], None if block.b["q"] is None else block.b["q"][0])
    worked.append(f"Q[0, 0] = x_0 · first column of W_Q = {entry}")
    where = "the context" if block.context is not None else "the same input"
    return Step(
        "projections",
        "Projections",
        f"Queries ask, keys answer, values are what is passed on; the latter two come from {where}.",
        ", ".join(formula),
        r",\quad ".join(latex),
        worked=tuple(worked),
        arrays=tuple(arrays),
    )


def split_step(block: Block) -> Step:
    """Slices of Q, K and V, one per head."""
    letters, arrays, held = block.letters, [], []
    grouped = block.kv_heads != block.heads
    for letter, meaning, _ in PROJECTIONS:
        name, heads = letter.upper(), block.heads_of(letter)
        projected = block.project(letter)
        parts = split(projected, heads)
        index = "i" if letter == "q" or not grouped else "g"
        tokens, width = (letters.n_q if letter == "q" else letters.n_k), "d_v" if letter == "v" else "d_k"
        shape = ["h" if letter == "q" else letters.h_kv, tokens, width]
        axes = f"head {'query' if letter == 'q' else 'key'} column"
        arrays.append(array(f"{name}_{index}", f"{meaning} of each head", shape, parts, axes))
        held.append(_slices(block, letter, parts))
        claim = f"side by side again the slices are {name}"
        held.append(claims.equal(f"{letter}_rejoined", claim, join(parts), projected, exact=True))
    group = block.heads // block.kv_heads
    formula, latex = (
        "Q_i = columns i·d_k … (i+1)·d_k \u2212 1 of Q; K_i and V_i likewise",
        (r"Q_i = Q_{[:,\; i d_k \,:\, (i+1) d_k]}"),
    )
    why = "Every head reads its own slice of the columns; nothing is computed, only cut."
    facts: list[Fact] = []
    if grouped:
        facts = [Fact(f"group_{i}", f"key/value head of head {i}", i // group) for i in range(block.heads)]
        formula += f"; head i uses K_g and V_g with g = \u230ai / {group}\u230b"
        latex += rf",\quad g(i) = \lfloor i / {group} \rfloor"
        why = f"Every head reads its own slice of Q; {group} query heads share one slice of K and one of V."
    return Step(
        "split",
        "Split into heads",
        why,
        formula,
        latex,
        arrays=tuple(arrays),
        facts=tuple(facts),
        checks=tuple(held),
    )


def _slices(block: Block, letter: str, parts: Array) -> Check:
    """One wide projection is the same as one narrow projection per head."""
    width, bias = parts.shape[-1], block.b[letter]
    narrow = []
    for head in range(parts.shape[0]):
        columns = slice(head * width, (head + 1) * width)
        projected = block.source(letter) @ block.w[letter][:, columns]
        narrow.append(projected if bias is None else projected + bias[columns])
    name = letter.upper()
    claim = f"each head's own columns of W_{name} give the same slices"
    return claims.equal(f"{letter}_per_head", claim, np.stack(narrow), parts)


def concatenation(block: Block, blend: Array) -> Step:
    joined, letters = join(blend), block.letters
    h, d_v = blend.shape[0], blend.shape[2]
    claim = f"h·d_v = {h}·{d_v} = {h * d_v} columns, as many as W_O has rows"
    return Step(
        "concatenation",
        "Concatenation",
        "The heads stand side by side; no head has seen another yet.",
        "H = [O_0 | O_1 | … | O_(h\u22121)]" if h > 1 else "H = O_0",
        r"H = \left[\, O_0 \mid O_1 \mid \dots \mid O_{h-1} \,\right]" if h > 1 else "H = O_0",
        worked=(
            f"H[0] = ({' | '.join(vector(head[0], 4)[1:-1] for head in blend[:4])}{' | …' if h > 4 else ''})",
        ),
        arrays=(array("H", "all heads side by side", [letters.n_q, "h·d_v"], joined, "query column"),),
        checks=(claims.dimensions("concatenated_width", claim, joined.shape[1], block.w["o"].shape[0]),),
    )


def output(block: Block, blend: Array, result: Array, compared: Check) -> Step:
    letters, w_o, bias = block.letters, block.w["o"], block.b["o"]
    joined = join(blend)
    summed = projected_heads(blend, w_o).sum(0)
    claim = "concatenating, then W_O = each head times its rows of W_O, summed"
    entry = dot(joined[0], w_o[:, 0], None if bias is None else bias[0])
    plus = "" if bias is None else " + b_O"
    return Step(
        "output",
        "Output projection",
        "W_O mixes the heads: every output number can draw on all of them.",
        f"Y = H W_O{plus}",
        f"Y = H W_O{plus}",
        worked=(f"Y[0, 0] = H[0] · first column of W_O = {entry}",),
        arrays=(array("Y", "output of the block", [letters.n_q, letters.d_out], result, "query column"),),
        checks=(
            claims.equal("sum_of_projected_heads", claim, summed if bias is None else summed + bias, result),
            compared,
        ),
    )


def result_of(block: Block, blend: Array) -> Array:
    projected: Any = join(blend) @ block.w["o"]
    return projected if block.b["o"] is None else projected + block.b["o"]
