"""Lessons beyond the worked examples: shapes, scale, causal rows, cost, and where the block lives."""

from collections.abc import Callable
from typing import Any

import numpy as np

from headwise.costs.sweep import EXPONENTIAL, head_sweep
from headwise.learn.book.experiments import block_inputs, encoder_layer, spread_of_products
from headwise.learn.book.lessons_worked import example_trace, given
from headwise.learn.curriculum import Lesson, plain
from headwise.plain.numbers import count, number, vector
from headwise.reference import reference_attention


def lesson_shapes() -> Lesson:
    sizes = example_trace("2.1").sizes
    n, d_k, h, d_model = sizes["n_q"], sizes["d_k"], sizes["h"], sizes["d_in"]
    table = (
        ("slice of W_Q for one head", f"{d_model} \u00d7 {d_k}"),
        ("Q_i", f"{n} \u00d7 {d_k}"),
        ("scores of one head", f"{n} \u00d7 {n}"),
        ("output of one head", f"{n} \u00d7 {sizes['d_v']}"),
        ("concatenated", f"{n} \u00d7 {h * sizes['d_v']}"),
    )
    return Lesson(
        "shapes",
        "Heads are slices of the width",
        "One token per row, one slice of columns per head; scores are token by token, never feature by "
        "feature.",
        (
            f"With d_model = {d_model} and h = {h}, a head works in d_k = {d_k} columns. h has to divide "
            "d_model, or the slices would not add up to the width again.",
        ),
        "d_k = d_model / h",
        table,
        {**sizes, "shapes": dict(table)},
        {
            "kind": "shapes",
            "show": ["shapes"],
            "exponential": EXPONENTIAL,
            "d_model": 512,
            "h": 8,
            "n": 10,
            "m": 10,
        },
        "slices",
    )


def lesson_scale() -> Lesson:
    spread = spread_of_products()
    wide, root = spread[63], np.sqrt(64)
    return Lesson(
        "scale",
        "Why \u221ad_k, and not d_k or nothing",
        "A dot product of d_k random numbers spreads like \u221ad_k; dividing by exactly that keeps scores "
        "near 1.",
        (
            "If the entries of q and k are independent with variance 1, each product has variance 1 and "
            "the sum of d_k products has variance d_k. Measured over random vectors, the spread follows "
            "\u221ad_k.",
            "Divide by \u221ad_k and the spread is 1 at any width. Divide by d_k and it is 1/\u221ad_k: "
            "all weights become nearly equal. Divide by nothing and softmax sees one key only, where "
            "gradients vanish.",
        ),
        "Var(q \u00b7 k) = d_k",
        (
            ("spread at d_k = 64, measured", number(wide)),
            ("\u221a64", number(root)),
            ("divided by \u221ad_k", number(wide / root)),
            ("divided by d_k", number(wide / 64)),
        ),
        {"spread": spread},
        {"kind": "spread", "spread": spread, "d_k": 64},
        "spread",
    )


def lesson_causal() -> Lesson:
    arguments, trace = given("4.2"), example_trace("4.2")
    weights, output = trace["weights"]["A_i"][0, 0], trace.output[0][0]
    query = np.array([(0, 1), (1, 1), (1, -1), *arguments["query"]], np.float64)
    key, value = arguments["key"], arguments["value"]
    _, all_weights, _ = reference_attention(query, key, value, is_causal=True)
    return Lesson(
        "causal",
        "Causal rows and masks",
        "A hidden key gets the score \u2212\u221e, so its weight is exactly 0, and the others share 1 "
        "among them.",
        (
            "In causal attention query i sees keys 0 \u2026 i. The first query sees one key and copies its "
            "value; the last sees all of them.",
            "The mask goes in before softmax. Zeroing weights afterwards would leave rows that no longer "
            "sum to 1. A query that sees no key at all has weights 0 and output 0.",
        ),
        "w_ij = 0 for j > i",
        (
            ("weights of query 0", vector(all_weights[0])),
            ("weights of query 3", vector(weights)),
            ("output of query 3", vector(output)),
        ),
        {"weights": plain(weights), "output": plain(output), "all_weights": plain(all_weights)},
        plain({"kind": "grid", "query": query, "key": key, "value": value, "causal": True}),
    )


def lesson_cost() -> Lesson:
    sweep = head_sweep(512, 1024)
    one, eight, most = sweep.rows[0], next(r for r in sweep.rows if r.heads == 8), sweep.rows[-1]
    return Lesson(
        "cost",
        "What heads cost",
        "Matrix products cost the same for every h; the softmax grows as h\u00b7n\u00b2.",
        (
            "h heads of width d_model / h: the h and the 1/h cancel, in the scores and again in the blend of "
            "values. So 8 heads are not 8 times slower.",
            "Exponentials are another matter: one per head and pair of tokens. If one exponential costs as "
            f"much as {sweep.exponential:g} multiply-adds, softmax is {sweep.rows[0].softmax_share:.1%} of "
            f"the work between Q and the head outputs at h = 1, {eight.softmax_share:.1%} at h = 8 and "
            f"{most.softmax_share:.0%} at h = {most.heads}.",
        ),
        "h \u00b7 n\u00b2 \u00b7 d_k = n\u00b2 \u00b7 d_model",
        (
            ("FLOPs of matrix products, h = 1", count(one.matmul)),
            ("FLOPs of matrix products, h = 512", count(most.matmul)),
            ("exponentials, h = 1", count(one.exponentials)),
            ("exponentials, h = 512", count(most.exponentials)),
        ),
        {
            "matmul": [r.matmul for r in sweep.rows],
            "exponentials": [r.exponentials for r in sweep.rows],
            "heads": [r.heads for r in sweep.rows],
            "share": [r.softmax_share for r in sweep.rows],
        },
        {
            "kind": "shapes",
            "show": ["cost"],
            "exponential": EXPONENTIAL,
            "d_model": 512,
            "h": 8,
            "n": 1024,
            "m": 1024,
        },
        "cost",
    )


def lesson_home() -> Lesson:
    n, d_model, d_ff = 6, 8, 32
    made = block_inputs(6, n, d_model)
    rng = np.random.default_rng(7)
    w_1, w_2 = rng.normal(size=(d_model, d_ff)), rng.normal(size=(d_ff, d_model))
    weights: dict[str, Any] = {name: made[name] for name in ("w_q", "w_k", "w_v", "w_o")}
    once = encoder_layer(made["x"], weights, w_1, w_2, 2)
    twice = encoder_layer(once, weights, w_1, w_2, 2)
    attention = sum(w.size for w in weights.values())
    forward = w_1.size + w_2.size
    return Lesson(
        "home",
        "The home of the block: an encoder layer",
        "Width in equals width out, so layers stack: attention moves information between tokens, the "
        "feed-forward part works on each token alone.",
        (
            "y = x + MultiHead(norm(x)), then y + FeedForward(norm(y)). Both parts are added to what was "
            "there, which is why W_O has to bring the heads back to d_model.",
            f"With a feed-forward part four times as wide as the layer, attention holds {count(attention)} "
            f"of {count(attention + forward)} weights, {attention / (attention + forward):.0%}.",
        ),
        "(n \u00d7 d_model) \u2192 (n \u00d7 d_model)",
        (
            ("in", " \u00d7 ".join(map(str, made["x"].shape))),
            ("after one layer", " \u00d7 ".join(map(str, once.shape))),
            ("after two", " \u00d7 ".join(map(str, twice.shape))),
            ("weights of attention, of feed-forward", f"{count(attention)}, {count(forward)}"),
        ),
        {
            "shapes": [list(made["x"].shape), list(once.shape), list(twice.shape)],
            "attention": attention,
            "forward": forward,
        },
    )


SIZES: tuple[Callable[[], Lesson], ...] = (lesson_shapes, lesson_scale, lesson_causal)
AROUND: tuple[Callable[[], Lesson], ...] = (lesson_cost, lesson_home)
