"""Drills of levels 4 and 5."""

import numpy as np

from headwise.costs import cost
from headwise.costs.sweep import head_sweep
from headwise.learn.book.experiments import attention_row
from headwise.learn.drills.draft import (
    ROUNDED,
    Draft,
    Maker,
    listed,
    pick,
    sizes,
    small_rows,
    spot_the_error,
    whole,
)
from headwise.plain.numbers import count, number, vector
from headwise.plain.words import counted
from headwise.trace import explain

# ---------------------------------------------------------------- level 4: put together


def parameter_count(rng: np.random.Generator) -> Draft:
    h, _, d_model = sizes(rng)
    bias = bool(rng.integers(2))
    found = cost(d_model=d_model, heads=h, bias=bias)
    return Draft(
        "parameters",
        f"d_model = {d_model}, h = {h}, {'with' if bias else 'without'} biases in all four projections. "
        "How many parameters has the block?",
        f"4\u00b7{d_model}\u00b2 = {count(found['parameters.without_biases'])}"
        + (f", and 4\u00b7{d_model} = {count(found['parameters.biases'])} biases" if bias else "")
        + f"; together {count(found.parameters)}.",
        expected=(float(found.parameters),),
    )


def grouped_parameters(rng: np.random.Generator) -> Draft:
    d_k, group, kv = pick(rng, (32, 64, 128)), pick(rng, (2, 4, 8)), pick(rng, (1, 2, 4))
    h = group * kv
    found = cost(d_model=h * d_k, heads=h, kv_heads=kv)
    parts = [count(found[f"parameters.w_{letter}"]) for letter in "qkvo"]
    return Draft(
        "parameters of grouped heads",
        f"d_model = {h * d_k}, {h} query heads, {counted(kv, 'key/value head')}, d_k = {d_k}, no biases. "
        "How many parameters?",
        f"W_Q {parts[0]}, W_K {parts[1]}, W_V {parts[2]}, W_O {parts[3]}: {count(found.parameters)}.",
        expected=(float(found.parameters),),
    )


def one_causal_query(rng: np.random.Generator) -> Draft:
    n = whole(rng, 3, 4)
    i = whole(rng, 1, n - 1)
    query, key, value = (
        small_rows(rng, n, 2, -1, 2),
        small_rows(rng, n, 2, -1, 2),
        small_rows(rng, n, 2, 0, 4),
    )
    trace = explain(query=query, key=key, value=value, is_causal=True, title="A causal pass")
    return Draft(
        "a causal query, all the way",
        f"Causal, one head, d_k = 2. Query {i} (counting from 0) is {vector(query[i])}; keys "
        f"{listed(key)}; values {listed(value)}. What is its output (two numbers)?",
        trace=trace,
        expected=tuple(trace.output[0][i]),
        tolerance=5 * ROUNDED,
    )


def value_width(rng: np.random.Generator) -> Draft:
    h, d_k, d_model = sizes(rng)
    d_v = pick(rng, [w for w in (16, 24, 32, 48, 64, 128) if w != d_k])
    found = cost(d_model=d_model, heads=h, v_head_dim=d_v)
    rows = int(found["parameters.w_o"]) // d_model
    return Draft(
        "W_O when d_v is not d_k",
        f"d_model = {d_model}, h = {h}, d_k = {d_k}, d_v = {d_v}. What shape is W_O (rows, columns)?",
        f"The concatenation is h\u00b7d_v = {h}\u00b7{d_v} = {rows} wide: W_O is {rows} \u00d7 {d_model}.",
        expected=(float(rows), float(d_model)),
    )


def causal_pairs(rng: np.random.Generator) -> Draft:
    h, _, d_model = sizes(rng)
    n = whole(rng, 4, 60)
    found = cost(d_model=d_model, heads=h, seq=n, causal=True)
    return Draft(
        "exponentials under a causal mask",
        f"Causal self-attention over n = {n} tokens, h = {h}. How many exponentials does the softmax take, "
        "hidden keys left out?",
        f"n(n+1)/2 = {count(found.layers[0]['pairs.visible'])} visible pairs, times {counted(h, 'head')}: "
        f"{count(found['flops.exponentials'])}.",
        expected=(float(found["flops.exponentials"]),),
    )


def error_causal(rng: np.random.Generator) -> Draft:
    return spot_the_error(rng, causal=True)


# ---------------------------------------------------------------- level 5: judge


def cache_bytes(rng: np.random.Generator) -> Draft:
    d_k, group, kv = pick(rng, (64, 80, 128)), pick(rng, (1, 2, 4, 8)), pick(rng, (1, 2, 4, 8))
    layers, dtype_bytes = whole(rng, 2, 48), pick(rng, (1, 2, 4))
    h = group * kv
    found = cost(d_model=h * d_k, heads=h, kv_heads=kv, layers=layers, dtype_bytes=dtype_bytes)
    return Draft(
        "key/value cache",
        f"{layers} layers, {counted(h, 'query head')}, {counted(kv, 'key/value head')} of width {d_k}, "
        f"{counted(dtype_bytes, 'byte')} a number. How many bytes does one more token add to the key/value "
        "cache?",
        f"2 (keys and values) \u00b7 {layers} \u00b7 {kv} \u00b7 {d_k} \u00b7 {dtype_bytes} = "
        f"{count(found.kv_bytes_per_token)}. Query heads do not matter.",
        expected=(float(found.kv_bytes_per_token),),
    )


def gap_from_ratio(rng: np.random.Generator) -> Draft:
    ratio = whole(rng, 2, 40)
    gap = float(np.log(ratio))
    weights = attention_row([gap, 0.0]).weights
    return Draft(
        "from weights back to scores",
        f"Of two keys one has {ratio} times the weight of the other. How far apart are their scaled scores?",
        f"w_1 / w_2 = e^(s_1 \u2212 s_2), so the gap is ln {ratio} = {number(gap)}. Check: scores "
        f"{vector([gap, 0.0])} give weights {vector(weights)}, a ratio of "
        f"{number(weights[0] / weights[1])}.",
        expected=(gap,),
        tolerance=ROUNDED,
    )


def softmax_share(rng: np.random.Generator) -> Draft:
    d_model, n = pick(rng, (256, 512, 1024)), pick(rng, (128, 256, 512))
    rows = head_sweep(d_model, n).rows
    found = pick(rng, rows)
    share = 100 * found.softmax_share
    return Draft(
        "share of the softmax",
        f"d_model = {d_model}, h = {found.heads}. Count an exponential as 10 multiply-adds. What per cent "
        "of the work of scores, softmax and values is softmax?",
        "10\u00b7h\u00b7n\u00b2 against 2\u00b7n\u00b2\u00b7d_model multiply-adds; n\u00b2 cancels: "
        f"10\u00b7{found.heads} / (10\u00b7{found.heads} + 2\u00b7{d_model}) = {number(share)} %.",
        expected=(share,),
        tolerance=0.1,
    )


def equal_values(rng: np.random.Generator) -> Draft:
    value = small_rows(rng, 1, 2, -5, 5)
    n = whole(rng, 2, 4)
    query, key = small_rows(rng, 1, 2), small_rows(rng, n, 2)
    trace = explain(query=query, key=key, value=np.tile(value, (n, 1)), title="Equal values")
    return Draft(
        "equal values",
        f"q = {vector(query[0])}; keys {listed(key)}; every value is {vector(value[0])}. What is "
        "the output (two numbers)?",
        "A weighted mean of equal rows is that row.",
        trace,
        expected=tuple(trace.output[0][0]),
        tolerance=ROUNDED,
    )


def log_sum_exp(rng: np.random.Generator) -> Draft:
    scores = rng.integers(-2, 5, size=3).astype(np.float64)
    found = attention_row(scores)
    ask, right = pick(rng, (("log-sum-exp", found.lse), ("entropy of the weights, in nats", found.entropy)))
    return Draft(
        "statistics of a row",
        f"Scaled scores {vector(scores)}. What is the {ask}?",
        f"Weights {vector(found.weights)}; log-sum-exp ln \u03a3 e^s = {number(found.lse)}; entropy "
        f"\u2212\u03a3 w ln w = {number(found.entropy)}.",
        expected=(right,),
        tolerance=ROUNDED,
    )


def two_halves(rng: np.random.Generator) -> Draft:
    """Attention over two sets of keys, merged by their log-sum-exp."""
    scores, value = rng.integers(-1, 4, size=4).astype(np.float64), small_rows(rng, 4, 1, 0, 9)
    left, right = attention_row(scores[:2], value[:2]), attention_row(scores[2:], value[2:])
    merged = attention_row(scores, value)
    a, b = np.exp([left.lse, right.lse])
    return Draft(
        "merging two halves",
        f"A query was run over two halves of its keys. First half: output {number(left.output[0])}, "
        f"log-sum-exp {number(left.lse)}. Second: output {number(right.output[0])}, log-sum-exp "
        f"{number(right.lse)}. What is the output over all keys?",
        f"Weigh each half by e^lse: ({number(a)} \u00b7 {number(left.output[0])} + {number(b)} \u00b7 "
        f"{number(right.output[0])}) / ({number(a)} + {number(b)}) = {number(merged.output[0])}.",
        expected=(float(merged.output[0]),),
        tolerance=0.01,
    )


def error_any(rng: np.random.Generator) -> Draft:
    return spot_the_error(rng, causal=bool(rng.integers(2)))


MAKERS: dict[int, tuple[Maker, ...]] = {
    4: (parameter_count, grouped_parameters, one_causal_query, value_width, causal_pairs, error_causal),
    5: (cache_bytes, gap_from_ratio, softmax_share, equal_values, log_sum_exp, two_halves, error_any),
}
