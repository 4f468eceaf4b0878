"""The figures of the book as plain data, computed here and drawn by ``headwise.render.book.figures``."""

from typing import Any

import numpy as np

from headwise.learn.book.experiments import (
    BLIND,
    SAMPLES,
    WIDEST,
    attention_row,
    favourites_by_width,
    spread_of_products,
)
from headwise.learn.book.lessons_worked import example_trace
from headwise.learn.curriculum import plain


def collapse() -> dict[str, Any]:
    """Weight of the dominant key of three against its lead over the others, 0 … 20."""
    gaps = np.linspace(0, 20, 161)
    weights = [attention_row([0, 0, gap]).weights[2] for gap in gaps]
    return {
        "kind": "curve",
        "title": "The collapse of softmax",
        "caption":
        "Three keys, two of them with score 0. The farther the third leads, the more of the weight it "
        "takes; the dot is example D.",
        "x": gaps, "y": weights, "mark": len(gaps) - 1, "x_name": "lead of the largest score",
        "y_name":
        "its weight",
        "x_ticks": [0, 5, 10, 15, 20],
        "y_ticks": [0, 0.25, 0.5, 0.75, 1],
        "y_range": [0, 1],
    }  # fmt: skip


def slices() -> dict[str, Any]:
    """Q's columns sliced into h blocks of d_k beside the n x n grid of one head."""
    trace = example_trace("2.1")
    sizes = trace.sizes
    return {
        "kind": "slices",
        "title": "Rows are tokens, slices are heads",
        "caption": f"Left, Q: {sizes['n_q']} rows, {sizes['d_in']} columns in {sizes['h']} slices of "
        f"{sizes['d_k']}. Right, the weights of head 0: a row looks, a column is looked at.",
        "h": sizes["h"], "n": sizes["n_q"], "d_k": sizes["d_k"], "d_model": sizes["d_in"],
        "weights": trace["weights"]["A_i"][0],
    }  # fmt: skip


def spread() -> dict[str, Any]:
    """Spread of q . k over random vectors against sqrt(d_k)."""
    measured = spread_of_products()
    widths = np.arange(1, len(measured) + 1)
    return {
        "kind": "curve",
        "title": "The spread of q \u00b7 k follows \u221ad_k",
        "caption":
        f"Standard deviation of the dot product of two random vectors, measured over {SAMPLES:,} pairs for "
        f"every d_k from 1 to {WIDEST} (line), and \u221ad_k (dashes).",
        "x": widths,
        "y": measured,
        "dashed": np.sqrt(widths),
        "x_name":
        "d_k",
        "y_name":
        "spread of q \u00b7 k",
        "x_ticks": [1, 32, 64, 96, 128], "y_ticks": [0, 3, 6, 9, 12], "y_range": [0, 12],
    }  # fmt: skip


def links() -> dict[str, Any]:
    """Lines from "it" to the six tokens, as thick as the weights."""
    trace = example_trace("G")
    return {
        "kind": "links",
        "title": "Where \u201cit\u201d looks",
        "caption": "One line per key, as thick as its weight.",
        "query": trace.queries[0], "keys": trace.keys, "weights": trace["weights"]["A_i"][0, 0],
    }  # fmt: skip


def grid() -> dict[str, Any]:
    """The 10 x 10 grid of exercise 2.1."""
    trace = example_trace("2.1")
    return {
        "kind": "grid",
        "title": "One score for every pair of tokens",
        "caption":
        "The scores of head 0, scaled, for 10 random tokens: the row's token looks at the column's.",
        "values": trace["scaled"]["Z_i"][0],
        "row_name": "query", "column_name": "key",
    }  # fmt: skip


def cross() -> dict[str, Any]:
    """The n_q x n_k grid of exercise 5.3, and the shapes through W_O."""
    trace = example_trace("5.3")
    sizes = trace.sizes
    n_q, n_k, h, d_v = sizes["n_q"], sizes["n_k"], sizes["h"], sizes["d_v"]
    return {
        "kind": "cross",
        "title": "Two lengths, one output per query",
        "caption":
        f"{n_q} queries over {n_k} keys, {h} heads. The length of the keys is summed away; the width is "
        "put back together and goes through W_O.",
        "weights": trace["weights"]["A_i"][0],
        "shapes": [["weights", [n_q, n_k]], ["values", [n_k, d_v]], ["head", [n_q, d_v]],
                   ["concatenated", [n_q, h * d_v]], ["after W_O", [n_q, sizes["d_out"]]]],
    }  # fmt: skip


def costs() -> dict[str, Any]:
    """Work against h: the matrix products of scores and values stay, the exponentials rise."""
    from headwise.costs.sweep import head_sweep

    rows = head_sweep(512, 1024).rows
    return {
        "kind": "powers",
        "title": "Flat products, rising softmax",
        "caption": "d_model = 512, n = 1024, h = 1 \u2026 512. Multiply-adds of scores and values, and "
        "exponentials, counted apart; each step up is a factor 10.",
        "x": [row.heads for row in rows],
        "lines": [["multiply-adds of scores and values", [row.scores // 2 for row in rows]],
                  ["exponentials", [row.exponentials for row in rows]]],
        "x_name": "h",
    }  # fmt: skip


def narrow() -> dict[str, Any]:
    """Mean number of favourites per head against h."""
    found = favourites_by_width()
    return {
        "kind": "bars",
        "title": "The narrower the head, the fewer keys it can point to",
        "caption": f"{BLIND[1]} random tokens, d_model = {BLIND[0]}: mean number of keys that are some "
        "query's favourite.",
        "bars": [[f"h = {h}", f"d_k = {d_k}", mean] for h, d_k, mean in found],
    }


FIGURES = {
    "collapse": collapse, "slices": slices, "spread": spread, "links": links, "grid": grid, "cross": cross,
    "cost": costs, "narrow": narrow,
}  # fmt: skip


def figures() -> dict[str, dict[str, Any]]:
    """Every figure by its key, as plain data."""
    return {key: plain(make()) for key, make in FIGURES.items()}
