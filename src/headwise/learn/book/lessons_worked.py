"""Lessons A to I: the worked examples. Every number is read off the trace of the example, or off ``cost``."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from headwise.costs import cost
from headwise.costs.sweep import EXPONENTIAL
from headwise.learn.book.experiments import attention_row
from headwise.learn.curriculum import Lesson, plain
from headwise.plain.numbers import count, number, vector
from headwise.trace.data import Trace
from headwise.trace.examples import EXAMPLES, example

CLOSE = 2e-3  # how near to 1 a weight gets before the lesson calls it a copy


@cache
def example_trace(name: str) -> Trace:
    """The trace of a named example, made once."""
    return example(name)


def given(name: str) -> dict[str, Any]:
    """The arguments of a named example."""
    return EXAMPLES[name].arguments()


def weights_and_output(name: str) -> tuple[Any, Any]:
    """Weights ``(n_q, n_k)`` and output ``(n_q, d_v)`` of the one head of an example."""
    trace = example_trace(name)
    return trace["weights"]["A_i"][0], np.array(trace.output)[0]


def row_lab(name: str, keys: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A lab for one query whose scores can be moved."""
    arguments = given(name)
    scores = np.array(arguments["scores"])[0]
    keys = keys or [f"key {i}" for i in range(len(scores))]
    return plain({"kind": "row", "keys": keys, "scores": scores, "values": arguments["value"], **more})


def lesson_a() -> Lesson:
    arguments, trace = given("A"), example_trace("A")
    weights, output = weights_and_output("A")
    scores, scaled = trace["scores"]["S_i"][0], trace["scaled"]["Z_i"][0]
    return Lesson(
        "A",
        "One head, step by step",
        "Scores become weights, weights blend the values: this is the whole of attention.",
        (
            "Each query meets each key in a dot product, its score. The scores are divided by \u221ad_k, "
            "softmax turns each query's row into shares of 1, and the shares blend the value rows.",
            "Here every token matches itself only. Its own value gets the larger share, but not all of it: "
            "the output is close to the values and blurred.",
        ),
        "O = softmax(Q K\u1d40 / \u221ad_k) V",
        (
            ("score with itself, with the other", vector(scores[0])),
            ("scaled", vector(scaled[0])),
            ("weights of query 0", vector(weights[0])),
            ("output of query 0", vector(output[0])),
            ("output of query 1", vector(output[1])),
        ),
        {"weights": plain(weights), "output": plain(output), "scores": plain(scores)},
        plain({"kind": "grid", **{name: arguments[name] for name in ("query", "key", "value")}}),
    )


def lesson_b() -> Lesson:
    arguments, trace = given("B"), example_trace("B")
    heads = trace["blend"]["O_i"][:, 0]
    joined = trace["concatenation"]["H"][0]
    return Lesson(
        "B",
        "Split into heads and joined again",
        "Heads work on slices of the width; concatenation puts the slices back side by side, and W_O mixes "
        "them.",
        (
            "One token can only look at itself: softmax over one score is 1. With selecting projections "
            "head 0 holds the first half and head 1 the second, and with W_O = I the token comes back as "
            "it was.",
            "Concatenation alone moves nothing between heads. Change W_O and each output column may draw on "
            "every head.",
        ),
        "MultiHead(x) = [head_0 | \u2026 | head_(h\u22121)] W_O,  where h\u00b7d_v = d_model",
        (
            *((f"head {i}", vector(head)) for i, head in enumerate(heads)),
            ("concatenated", vector(joined)),
            ("after W_O = I", vector(trace.output[0])),
        ),
        {"heads": plain(heads), "output": trace.output[0]},
        plain({"kind": "split", "x": arguments["x"][0]}),
    )


def lesson_c() -> Lesson:
    weights, output = weights_and_output("C")
    entropy = attention_row(given("C")["scores"][0]).entropy
    return Lesson(
        "C",
        "All scores equal",
        "Equal scores give equal weights: the output is the plain mean of the values.",
        (
            "Softmax looks at differences only. If there are none, no key is preferred, and the entropy of "
            "the weights is as large as it can be: ln of the number of keys.",
        ),
        "w_j = e^s / (n e^s) = 1 / n",
        (
            ("weights", vector(weights[0])),
            ("output", number(output[0][0])),
            ("entropy, and ln 3", f"{number(entropy)}, {number(np.log(3))}"),
        ),
        {"weights": plain(weights[0]), "output": plain(output[0]), "entropy": entropy},
        row_lab("C"),
    )


def lesson_d() -> Lesson:
    weights, output = weights_and_output("D")
    return Lesson(
        "D",
        "One score far above the others",
        "A large gap turns the weighted mean into a copy of one value.",
        (
            "The exponential magnifies gaps: each 1 of score is a factor e of weight. Far enough above the "
            "others, one key takes practically all of it. It never takes exactly all of it, which is why the "
            "last digits below matter.",
        ),
        "w = 1 / (1 + 2 e^(\u2212gap))",
        (
            ("weight of the largest score", repr(float(weights[0][2]))),
            ("weight of each other", number(weights[0][0])),
            ("output", repr(float(output[0][0]))),
        ),
        {"weights": plain(weights[0]), "output": plain(output[0])},
        row_lab("D", range=[-10, 30]),
        "collapse",
    )


def lesson_e() -> Lesson:
    weights, output = weights_and_output("E")
    return Lesson(
        "E",
        "A negative score",
        "Scores may have any sign; weights never do.",
        (
            "e^s is positive for every s. A negative score says \u201clook less\u201d, never \u201clook a "
            "negative amount\u201d, so the output stays between the smallest and the largest value.",
        ),
        "w_j = e^(s_j) / \u03a3_t e^(s_t) > 0",
        (("weights", vector(weights[0])), ("output", number(output[0][0]))),
        {"weights": plain(weights[0]), "output": plain(output[0])},
        row_lab("E", range=[-12, 12]),
    )


def lesson_f() -> Lesson:
    trace = example_trace("F")
    raw, scaled = trace["scores"]["S_i"][0, 0], trace["scaled"]["Z_i"][0, 0]
    unscaled, weights = attention_row(raw).weights, trace["weights"]["A_i"][0, 0]
    return Lesson(
        "F",
        "What the scale saves",
        "Without the division by \u221ad_k wide heads see one key and nothing else, and stop learning.",
        (
            f"In a head {trace.sizes['d_k']} wide raw scores of {number(raw[0])} and {number(raw[1])} are "
            f"nothing unusual. Unscaled, the second key keeps a weight of {number(unscaled[1])}: no "
            f"gradient reaches it. Scaled, the scores are {number(scaled[0])} and {number(scaled[1])}, and "
            f"it keeps {number(weights[1])}.",
        ),
        "z_j = q \u00b7 k_j / \u221ad_k",
        (
            ("unscaled: 1 \u2212 weight of the first", number(float(1 - unscaled[0]))),
            ("unscaled: weight of the second", number(unscaled[1])),
            ("scaled weights", vector(weights)),
        ),
        {"unscaled": plain(unscaled), "scaled": plain(scaled), "weights": plain(weights)},
        plain(
            {
                "kind": "row",
                "keys": ["raw 40", "raw 8"],
                "scores": raw,
                "values": None,
                "range": [-60, 60],
                "d_k": trace.sizes["d_k"],
            }
        ),
    )


def lesson_g() -> Lesson:
    trace = example_trace("G")
    weights = trace["weights"]["A_i"][0, 0]
    best = int(weights.argmax())
    return Lesson(
        "G",
        "What does \u201cit\u201d point to?",
        "A head that has learned co-reference sends the weight of a pronoun to the word it stands for.",
        (
            f"Six tokens, one query: \u201cit\u201d. The largest weight, {number(weights[best])}, lies on "
            f"\u201c{trace.keys[best]}\u201d; on itself the query puts only {number(weights[-1])}. A head "
            "need not look at its own token. Weights like these are what headwise inspect draws for a real "
            "model.",
        ),
        "w_cat = e^(s_cat) / \u03a3_t e^(s_t)",
        tuple((name, number(weight)) for name, weight in zip(trace.keys, weights, strict=True)),
        {"weights": plain(weights), "argmax": trace.keys[best]},
        row_lab("G", trace.keys, values=None),
        "links",
    )


def lesson_h() -> Lesson:
    trace = example_trace("H")
    sizes = trace.sizes

    def shape(step: str, name: str) -> str:
        # An array of a trace has the heads in front.
        array = next(array for array in trace[step].arrays if array.name == name)
        return " \u00d7 ".join(map(str, array.shape[1:] if len(array.shape) == 3 else array.shape))

    table = (
        ("Q_i", shape("split", "Q_i")),
        ("K_i, V_i", shape("split", "K_i")),
        ("scores of a head", shape("scores", "S_i")),
        ("output of a head", shape("blend", "O_i")),
        ("concatenated", shape("concatenation", "H")),
    )
    return Lesson(
        "H",
        "Cross-attention: two lengths",
        "Queries of one sequence look at keys and values of another; the output is as long as the queries.",
        (
            f"{sizes['n_q']} queries meet {sizes['n_k']} keys: the grid of scores need not be square. "
            "Softmax runs over the keys of each query. Heads split the width, which has nothing to do with "
            "either length, so nothing else changes.",
        ),
        "(n \u00d7 m) (m \u00d7 d_v) = n \u00d7 d_v",
        table,
        {"shapes": dict(table), **sizes},
        {
            "kind": "shapes",
            "show": ["shapes"],
            "exponential": EXPONENTIAL,
            "d_model": 512,
            "h": 8,
            "n": 3,
            "m": 5,
        },
        "cross",
    )


def lesson_i() -> Lesson:
    found = cost(d_model=512, heads=8)
    parts = {
        name: int(found.layers[0][f"parameters.{name}"]) for name in ("head_q", "w_q", "w_k", "w_v", "w_o")
    }
    return Lesson(
        "I",
        "Counting parameters",
        "Four square matrices, however many heads: 4\u00b7d_model\u00b2.",
        (
            "Each head has its own d_model \u00d7 d_k slice of W_Q, W_K and W_V. More heads make the slices "
            "narrower, not more: h\u00b7d_k stays d_model.",
        ),
        "3\u00b7h\u00b7(d_model\u00b7d_k) + d_model\u00b7d_model = 4\u00b7d_model\u00b2",
        (
            ("W_Q of one head", count(parts["head_q"])),
            ("W_Q, W_K and W_V of all heads", count(parts["w_q"] + parts["w_k"] + parts["w_v"])),
            ("W_O", count(parts["w_o"])),
            ("together", count(found.parameters)),
        ),
        {**parts, "projections": parts["w_q"] + parts["w_k"] + parts["w_v"], "total": found.parameters},
        {
            "kind": "shapes",
            "show": ["parameters"],
            "exponential": EXPONENTIAL,
            "d_model": 512,
            "h": 8,
            "n": 10,
            "m": 10,
        },
    )


WORKED: tuple[Callable[[], Lesson], ...] = (
    lesson_a, lesson_b, lesson_c, lesson_d, lesson_e, lesson_f, lesson_g, lesson_h, lesson_i,
)  # fmt: skip
