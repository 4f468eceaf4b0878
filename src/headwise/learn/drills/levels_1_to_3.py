"""Drills of levels 1 to 3."""

import numpy as np

from headwise.costs import cost
from headwise.errors import HeadwiseError
from headwise.learn.drills.draft import (
    HEADS,
    ROUNDED,
    Draft,
    Maker,
    listed,
    pick,
    shuffled,
    sizes,
    small_rows,
    spot_the_error,
    whole,
)
from headwise.plain.numbers import count, number, vector
from headwise.plain.words import counted
from headwise.trace import explain

# ---------------------------------------------------------------- level 1: recognise


def head_width(rng: np.random.Generator) -> Draft:
    h, _, d_model = sizes(rng)
    d_k = cost(d_model=d_model, heads=h).layers[0].sizes["head_dim"]
    return Draft(
        "width of a head",
        f"d_model = {d_model}, h = {h}. What is d_k?",
        f"d_k = d_model / h = {d_model} / {h} = {d_k}.",
        expected=(float(d_k),),
    )


def output_shape(rng: np.random.Generator) -> Draft:
    h, d_k, d_model = sizes(rng)
    n = whole(rng, 2, 400)
    return Draft(
        "output shape",
        f"{n} tokens of width {d_model} go into self-attention with {counted(h, 'head')}. What shape is the "
        "output (rows, columns)?",
        f"One row per query, and W_O brings the concatenation of {h} \u00b7 {d_k} = {h * d_k} columns to "
        f"d_model: {n} \u00d7 {d_model}.",
        expected=(float(n), float(d_model)),
    )


def grid_size(rng: np.random.Generator) -> Draft:
    h, d_k, _ = sizes(rng)
    n, m = whole(rng, 2, 60), whole(rng, 2, 60)
    return Draft(
        "shape of the scores",
        f"{n} queries, {m} keys, {counted(h, 'head')} of width {d_k}. What shape are the scores of one head?",
        f"Q_i is {n} \u00d7 {d_k}, K_i\u1d40 is {d_k} \u00d7 {m}; the product is {n} \u00d7 {m}.",
        expected=(float(n), float(m)),
    )


def possible_heads(rng: np.random.Generator) -> Draft:
    d_model = pick(rng, (256, 384, 512, 640, 768, 1024))
    h = pick(rng, (3, 5, 6, 7, 9, 10, 12, 14, 16, 20, 24))
    try:
        found = cost(d_model=d_model, heads=h)
        right, why = "yes", f"{d_model} / {h} = {found.layers[0].sizes['head_dim']}."
    except HeadwiseError as refusal:
        right, why = "no", f"headwise says: {refusal}."
    return Draft(
        "does h divide d_model?",
        f"Can a block of width d_model = {d_model} have h = {h} heads of equal width?",
        why,
        choices=("yes", "no"),
        right=right,
    )


# ---------------------------------------------------------------- level 2: apply


def scaled_score(rng: np.random.Generator) -> Draft:
    d_k = pick(rng, (4, 16, 25, 36, 49, 64, 100, 144))
    raw = float(whole(rng, -60, 60))
    query, key = np.ones((1, d_k)), np.full((1, d_k), raw / d_k)
    scaled = float(explain(query=query, key=key, value=np.ones((1, 1)))["scaled"]["Z_i"][0, 0, 0])
    return Draft(
        "scaled score",
        f"d_k = {d_k}, q \u00b7 k = {number(raw)}. What is the scaled score?",
        f"{number(raw)} / \u221a{d_k} = {number(raw)} / {number(np.sqrt(d_k))} = {number(scaled)}.",
        expected=(scaled,),
        tolerance=ROUNDED,
    )


def softmax_by_hand(rng: np.random.Generator) -> Draft:
    scores = rng.integers(-3, 7, size=(1, 3)).astype(np.float64)
    trace = explain(scores=scores, value=np.eye(3), title="Softmax of three scores")
    return Draft(
        "softmax by hand",
        f"The scaled scores of one query are {vector(scores[0])}. What are its three weights?",
        trace=trace,
        expected=tuple(trace["weights"]["A_i"][0, 0].tolist()),
        tolerance=ROUNDED,
    )


def head_shapes(rng: np.random.Generator) -> Draft:
    h, d_k, d_model = sizes(rng)
    n = whole(rng, 2, 100)
    ask, shape = pick(
        rng,
        (
            ("the slice of W_Q that belongs to one head", (d_model, d_k)),
            ("Q_i, the queries of one head", (n, d_k)),
            ("the output of one head", (n, d_k)),
            ("the concatenation of all heads", (n, h * d_k)),
            ("W_O", (h * d_k, d_model)),
        ),
    )
    return Draft(
        "shapes",
        f"d_model = {d_model}, h = {h}, n = {n}, self-attention. What shape is {ask} (rows, columns)?",
        f"d_k = {d_model} / {h} = {d_k}; {ask}: {shape[0]} \u00d7 {shape[1]}.",
        expected=(float(shape[0]), float(shape[1])),
    )


def dot_products(rng: np.random.Generator) -> Draft:
    query, key = small_rows(rng, 1, 3), small_rows(rng, 3, 3)
    trace = explain(query=query, key=key, value=np.eye(3), title="One query, three keys")
    return Draft(
        "scores",
        f"q = {vector(query[0])}; keys {listed(key)}. What are the three raw scores q \u00b7 k?",
        trace=trace,
        expected=tuple(trace["scores"]["S_i"][0, 0].tolist()),
        tolerance=0.0,
    )


# ---------------------------------------------------------------- level 3: analyse


def causal_row(rng: np.random.Generator) -> Draft:
    n = whole(rng, 3, 5)
    i = whole(rng, 0, n - 1)
    scores = rng.integers(-2, 5, size=(n, n)).astype(np.float64)
    # The asked row alone, at its position: the solution then works this row and no other.
    title = f"Causal attention: query {i} of {n}, on its own"
    row, value = scores[i : i + 1], np.eye(n)
    trace = explain(scores=row, value=value, is_causal=True, query_offset=i, title=title)
    return Draft(
        "causal row",
        f"Causal self-attention over {n} tokens. Query {i} (counting from 0) has scaled scores "
        f"{vector(scores[i])} before the mask. What are its {n} weights?",
        trace=trace,
        expected=tuple(trace["weights"]["A_i"][0, 0].tolist()),
        tolerance=ROUNDED,
    )


def product_flops(rng: np.random.Generator) -> Draft:
    h, d_k, d_model = sizes(rng)
    n = pick(rng, (16, 32, 64, 100, 128, 256))
    found = cost(d_model=d_model, heads=h, seq=n)
    flops = int(found["flops.scores"] + found["flops.values"])
    return Draft(
        "FLOPs of scores and values",
        f"d_model = {d_model}, h = {h}, n = {n}, nothing masked. How many FLOPs do Q K\u1d40 and the blend "
        "of values take together, over all heads (a multiply-add is 2)?",
        f"2 \u00b7 2\u00b7h\u00b7n\u00b2\u00b7d_k = 4\u00b7{h}\u00b7{n}\u00b2\u00b7{d_k} = {count(flops)}; "
        "h\u00b7d_k = d_model, so h drops out.",
        expected=(float(flops),),
    )


def other_heads(rng: np.random.Generator) -> Draft:
    h, _, d_model = sizes(rng)
    other = pick(rng, [k for k in HEADS if d_model % k == 0 and k != h] or [1])
    n = pick(rng, (128, 512, 1024))
    one, two = (cost(d_model=d_model, heads=k, seq=n) for k in (h, other))
    ask, key = pick(
        rng,
        (
            ("FLOPs of the matrix products", "flops.matmul"),
            ("exponentials", "flops.exponentials"),
            ("parameters", "parameters.total"),
        ),
    )
    right = "the same" if one[key] == two[key] else "fewer" if two[key] < one[key] else "more"
    return Draft(
        "what depends on h",
        f"d_model = {d_model}, n = {n}. Going from h = {h} to h = {other}: how does the number of {ask} "
        "change?",
        f"{count(one[key])} at h = {h}, {count(two[key])} at h = {other}.",
        choices=("fewer", "the same", "more"),
        right=right,
    )


def blend(rng: np.random.Generator) -> Draft:
    scores, value = rng.integers(-1, 4, size=(1, 3)).astype(np.float64), small_rows(rng, 3, 2, 0, 6)
    trace = explain(scores=scores, value=value, title="Scores to output")
    return Draft(
        "output of a row",
        f"Scaled scores {vector(scores[0])}, values {listed(value)}. What is the output (two numbers)?",
        trace=trace,
        expected=tuple(trace.output[0][0]),
        tolerance=5 * ROUNDED,
    )


def error_plain(rng: np.random.Generator) -> Draft:
    return spot_the_error(rng, causal=False)


def who_wins(rng: np.random.Generator) -> Draft:
    names = ("key 0", "key 1", "key 2", "key 3")
    scores = rng.permutation(np.arange(-4, 5))[:4].astype(np.float64)
    trace = explain(scores=scores[None], value=np.eye(4), title="Which key wins?")
    weights = trace["weights"]["A_i"][0, 0]
    order = np.argsort(-weights)
    return Draft(
        "largest weight",
        f"Scaled scores {vector(scores)} over four keys. Which key gets the second largest weight?",
        trace=trace,
        choices=shuffled(rng, names),
        right=names[int(order[1])],
    )


MAKERS: dict[int, tuple[Maker, ...]] = {
    1: (head_width, output_shape, grid_size, possible_heads),
    2: (scaled_score, softmax_by_hand, head_shapes, dot_products),
    3: (causal_row, product_flops, other_heads, blend, error_plain, who_wins),
}
