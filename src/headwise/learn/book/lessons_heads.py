"""Lessons about heads: joining, diversity, positions, narrow heads, and where attention can do nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwise.compute.block import multi_head_attention
from headwise.compute.positions import sinusoidal
from headwise.learn.book.experiments import (
    BLIND,
    attention_row,
    block_inputs,
    favourites_by_width,
    four_ways,
    heads_of,
    redundancy,
)
from headwise.learn.book.lessons_worked import example_trace, given
from headwise.learn.curriculum import Lesson, plain
from headwise.plain.numbers import error, number, vector

WORDS = ("dog", "bites", "man", "today")
SHUFFLED = (2, 0, 3, 1)


def joining() -> dict[str, Any]:
    """Two heads of two tokens, W_O, and the four ways to join them."""
    made = block_inputs(34, 2, 4)
    heads, _ = heads_of(made["x"], made["w_q"], made["w_k"], made["w_v"], 2)
    heads = heads.round(3)
    return {"heads": heads, "w_o": made["w_o"], "ways": four_ways(heads, made["w_o"])}


def lesson_joining() -> Lesson:
    found = joining()
    ways = found["ways"]
    away = {name: float(np.abs(ways[name] - ways["concatenated"]).max()) for name in ways}
    return Lesson(
        "joining",
        "Concatenate, project, add: which are the same?",
        "Concatenating and then W_O equals projecting each head with its own rows of W_O and adding. "
        "Adding the heads first is something else.",
        (
            "A matrix product runs through the concatenation from left to right; cut it at the heads and "
            "it is a sum, one term per head. Each head meets its own d_v rows of W_O. Both ways are the "
            "same numbers, and both let every output column draw on every head.",
            "What loses information is adding the heads before any projection, or giving all of them the "
            "same d_v \u00d7 d_model matrix: then only their sum is left, and which head said what is gone.",
        ),
        "[head_0 | head_1] W_O = head_0 W_O[rows 0 \u2026] + head_1 W_O[rows d_v \u2026]",
        (
            ("own rows, then added: largest difference", error(away["projected"])),
            ("unprojected heads added: largest difference", number(away["summed"])),
            ("one shared W_O: largest difference", number(away["shared"])),
        ),
        plain({"away": away, **ways}),
        plain({"kind": "joining", "heads": found["heads"], "w_o": found["w_o"]}),
    )


def diversity() -> dict[str, Any]:
    """A block whose second head copies the first, its own projections for that head, and what comes out."""
    made = block_inputs(33, 5, 8)
    names = ("w_q", "w_k", "w_v")
    copied: dict[str, Any] = {name: np.tile(made[name][:, :4], 2) for name in names}
    heads, weights = heads_of(made["x"], copied["w_q"], copied["w_k"], copied["w_v"], 2)
    own, own_weights = heads_of(made["x"], made["w_q"], made["w_k"], made["w_v"], 2)
    w_o = made["w_o"]
    block = multi_head_attention(made["x"], **copied, w_o=w_o, num_heads=2)
    return {
        "made": made,
        "difference": float(np.abs(heads[0] - heads[1]).max()),
        "redundancy": redundancy(weights),
        "own": redundancy(own_weights),
        "own_difference": float(np.abs(own[0] - own[1]).max()),
        "one_head": float(np.abs(heads[0] @ (w_o[:4] + w_o[4:]) - block).max()),
    }


def lesson_diversity() -> Lesson:
    found = diversity()
    made = found.pop("made")
    return Lesson(
        "diversity",
        "Identical projections, identical heads",
        "Heads differ because their projections differ. Give two heads the same ones and one of them is "
        "redundant.",
        (
            "All heads read the same tokens with the same formula; what sets them apart is W_Q, W_K and W_V, "
            "which start from different random numbers and are trained from there.",
            "With equal projections the two outputs are equal in every digit. W_O cannot repair that: two "
            "equal heads are one head times the sum of two blocks of W_O. Overlap, below, is the part of "
            "their weights that two heads share: 1 for the same map, 0 for no key in common.",
        ),
        "overlap = 1 \u2212 mean_i \u00bd \u03a3_j |a_ij \u2212 b_ij|",
        (
            ("same projections: difference of the outputs", number(found["difference"])),
            ("same projections: overlap", number(found["redundancy"])),
            ("own projections: overlap", number(found["own"])),
            ("two equal heads less one head with both blocks", error(found["one_head"])),
        ),
        plain(found),
        plain({"kind": "diversity", "heads": 2, **{name: made[name] for name in ("x", "w_q", "w_k", "w_v")}}),
    )


def positions() -> dict[str, Any]:
    """Four tokens in two orders, with and without position encodings, and how far the outputs differ."""
    made = block_inputs(9, 4, 4)
    x = made["x"]
    weights: dict[str, Any] = {name: made[name] for name in ("w_q", "w_k", "w_v", "w_o")}
    order = list(SHUFFLED)
    here = sinusoidal(*x.shape, dtype=np.float64)
    same = multi_head_attention(x, **weights, num_heads=2)[order]
    moved = multi_head_attention(x[order], **weights, num_heads=2)
    same_placed = multi_head_attention(x + here, **weights, num_heads=2)[order]
    moved_placed = multi_head_attention(x[order] + here, **weights, num_heads=2)
    return {
        **made,
        "order": order,
        "encodings": here,
        "without": float(np.abs(moved - same).max()),
        "with": float(np.abs(moved_placed - same_placed).max()),
    }


def lesson_positions() -> Lesson:
    found = positions()
    return Lesson(
        "positions",
        "Attention does not see order",
        "Shuffle the tokens and the outputs are shuffled alike; position encodings, added to the inputs "
        "first, are what tells the orders apart.",
        (
            "A score compares two tokens and knows nothing of where they stand, and a sum over keys has no "
            "order. So every token gets the same output wherever it stands.",
            "Add to each token a vector that depends on its position, before the first projection, and the "
            "same words in another order are other inputs. The input of the first layer is embedding plus "
            "position.",
        ),
        "MultiHead(P x) = P MultiHead(x),   but not with x + positions",
        (
            ("shuffled, no positions: largest difference", error(found["without"])),
            ("shuffled, positions added: largest difference", number(found["with"])),
        ),
        plain({"without": found["without"], "with": found["with"]}),
        plain(
            {
                "kind": "positions",
                "words": WORDS,
                "heads": 2,
                **{name: found[name] for name in ("x", "w_q", "w_k", "w_v", "w_o", "order", "encodings")},
            }
        ),
    )


def lesson_narrow() -> Lesson:
    d_model, n = BLIND
    found = favourites_by_width(d_model, n)
    made = block_inputs(51, n, d_model)
    return Lesson(
        "narrow",
        "From one head to h = d_model: heads go blind",
        "More heads are narrower heads. At h = d_model a query and a key are one number each, and a head can "
        "point to two keys only.",
        (
            "With d_k = 1 every score is a product of two numbers. A positive query ranks all keys by "
            "size, a negative one in reverse: whatever the tokens say, the favourite key is the largest or "
            "the smallest.",
            f"Below, {n} random tokens with d_model = {d_model}: how many different keys are some query's "
            "favourite, on average over the heads. Heads and their width are a trade; widths near 64 are "
            "common in practice. At the other end, h = 1 is plain attention with an output projection.",
        ),
        "d_k = d_model / h \u2192 1:   s_ij = q_i\u00b7k_j",
        tuple((f"h = {h}, d_k = {d_k}", f"{number(mean)} favourites") for h, d_k, mean in found),
        {"favourites": plain(found)},
        plain({"kind": "narrow", "d_model": d_model, **{name: made[name] for name in ("x", "w_q", "w_k")}}),
        "narrow",
    )


def lesson_edges() -> Lesson:
    trace = example_trace("5.2")
    value = given("5.2")["value"]
    away = float(np.abs(np.array(trace.output)[0] - value[0]).max())
    made = block_inputs(1, 3, 4)
    weights: dict[str, Any] = {name: made[name] for name in ("w_q", "w_k", "w_v", "w_o")}
    block = multi_head_attention(made["x"], **weights, num_heads=1)
    head, _ = heads_of(made["x"], made["w_q"], made["w_k"], made["w_v"], 1)
    plain_head = float(np.abs(head[0] @ made["w_o"] - block).max())
    alone = attention_row([7.3], [[5.0]])
    nothing = attention_row([1, 2], [[5.0], [6.0]], seen=[False, False])
    return Lesson(
        "edges",
        "Where attention can do nothing",
        "Equal values, one token, no visible key: the weights do not matter, and the output is known "
        "beforehand.",
        (
            "A weighted mean of equal rows is that row, whatever the weights, because they sum to 1. The "
            "power of attention lies in the variety of the values, and in which of them are picked.",
            "One token can only look at itself. A query that sees no key gets 0, by convention. And one "
            "head is plain attention: concatenating one thing changes nothing.",
        ),
        "\u03a3_j w_ij v = v \u03a3_j w_ij = v",
        (
            ("equal values: farthest output from the value", error(away)),
            (
                "one token, score 7.3: weight, output",
                f"{number(alone.weights[0])}, {number(alone.output[0])}",
            ),
            ("no key seen: weights, output", f"{vector(nothing.weights)}, {number(nothing.output[0])}"),
            ("h = 1 less plain attention times W_O", error(plain_head)),
        ),
        {"away": away, "one_head": plain_head, "alone": alone.output[0], "nothing": nothing.output[0]},
        plain(
            {
                "kind": "row",
                "keys": ["key 0", "key 1", "key 2"],
                "scores": [1.0, -2.0, 3.0],
                "values": [[7.0]] * 3,
                "range": [-12, 12],
            }
        ),
    )


HEADS: tuple[Callable[[], Lesson], ...] = (
    lesson_joining,
    lesson_diversity,
    lesson_positions,
    lesson_narrow,
    lesson_edges,
)
