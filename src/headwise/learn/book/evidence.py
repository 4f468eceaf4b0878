"""Numbers behind the answers of the question bank: each computed when asked for, and said in one line."""

from collections.abc import Callable

import numpy as np

from headwise.costs import cost
from headwise.costs.sweep import head_sweep
from headwise.errors import HeadwiseError
from headwise.learn.book.experiments import (
    BLIND,
    attention_row,
    block_inputs,
    favourites_by_width,
    heads_of,
    spread_of_products,
)
from headwise.learn.book.lessons_heads import diversity, joining, positions
from headwise.learn.book.lessons_worked import example_trace, given
from headwise.plain.numbers import count, error, number, vector
from headwise.reference import reference_attention


def flops_of_heads() -> str:
    """One head against eight."""
    one, eight = (cost(d_model=512, heads=h, seq=1024) for h in (1, 8))
    return f"d_model 512, n 1024: {count(one.flops)} FLOPs with h = 1, {count(eight.flops)} with h = 8."


def exponentials_of_heads() -> str:
    rows = head_sweep(512, 1024).rows
    first, last = rows[0], rows[-1]
    return (
        f"Exponentials at d_model 512, n 1024: {count(first.exponentials)} with h = 1, "
        f"{count(last.exponentials)} with h = {last.heads}."
    )


def same_projections() -> str:
    found = diversity()
    return (
        f"Two heads with the same projections: outputs differ by {number(found['difference'])}, maps "
        f"overlap by {number(found['redundancy'])}. With their own: {number(found['own'])}."
    )


def scale_of_head() -> str:
    sizes = example_trace("2.1").sizes
    d_k, d_model = sizes["d_k"], sizes["d_in"]
    return (
        f"d_model {d_model}, h {sizes['h']}: 1/\u221a{d_k} = {number(1 / np.sqrt(d_k))}, and not "
        f"1/\u221a{d_model} = {number(1 / np.sqrt(d_model))}."
    )


def concatenation_does_not_mix() -> str:
    """Change head 1 and see what moves before and after W_O."""
    found = joining()
    heads, w_o = found["heads"], found["w_o"]
    changed = np.array([heads[0], heads[1] + 1])
    before, after = (np.concatenate(list(h), axis=-1) for h in (heads, changed))
    first = np.abs(after - before)[:, : heads.shape[-1]].max()
    mixed = np.abs((after - before) @ w_o)[:, : heads.shape[-1]].max()
    return (
        f"Add 1 to every number of head 1: the columns of head 0 move by {number(first)} in the "
        f"concatenation, and by up to {number(mixed)} after W_O."
    )


def parameters_of_heads() -> str:
    totals = [cost(d_model=512, heads=h) for h in (1, 8)]
    one, eight = (count(sum(t[f"parameters.w_{x}"] for x in "qkv")) for t in totals)
    return f"W_Q, W_K and W_V at d_model 512: {one} weights with h = 1, {eight} with h = 8."


def self_weight() -> str:
    trace = example_trace("G")
    weights = trace["weights"]["A_i"][0, 0]
    best = int(weights.argmax())
    return (
        f"Example G: \u201cit\u201d gives {number(weights[best])} to \u201c{trace.keys[best]}\u201d and "
        f"{number(weights[-1])} to itself."
    )


def cross_shapes() -> str:
    sizes = example_trace("H").sizes
    return (
        f"Example H: {sizes['n_q']} queries, {sizes['n_k']} keys, {sizes['h']} heads: grids of "
        f"{sizes['n_q']} \u00d7 {sizes['n_k']}, head outputs of {sizes['n_q']} \u00d7 {sizes['d_v']}."
    )


def refused_heads() -> str:
    """What headwise itself says to h = 6 at d_model 512."""
    try:
        cost(d_model=512, heads=6)
    except HeadwiseError as refusal:
        return f"headwise says: {refusal}."
    raise AssertionError("six heads do not divide 512")


def negative_scores() -> str:
    trace = example_trace("E")
    return f"Scores {vector(given('E')['scores'][0])} give weights {vector(trace['weights']['A_i'][0, 0])}."


def hidden_weights() -> str:
    q = np.array([(0, 1), (1, 1), (1, -1), *given("4.2")["query"]], np.float64)
    _, weights, _ = reference_attention(q, given("4.2")["key"], given("4.2")["value"], is_causal=True)
    return f"Causal weights of query 1 over four keys: {vector(weights[1])}."


def four_ways_apart() -> str:
    ways = joining()["ways"]
    away = {name: np.abs(array - ways["concatenated"]).max() for name, array in ways.items()}
    return (
        f"Against concatenating: own rows of W_O, then added, differs by {error(away['projected'])}; heads "
        f"added first by {number(away['summed'])}; one shared W_O by {number(away['shared'])}."
    )


def grid_shape() -> str:
    sizes = example_trace("2.1").sizes
    n, d_k = sizes["n_q"], sizes["d_k"]
    return (
        f"Q_i is {n} \u00d7 {d_k}, K_i\u1d40 is {d_k} \u00d7 {n}: their product is {n} \u00d7 {n}, and d_k "
        "is summed away."
    )


def rows_sum() -> str:
    weights = example_trace("A")["weights"]["A_i"][0]
    return f"Example A: its rows sum to {vector(weights.sum(-1))}, the whole grid to {number(weights.sum())}."


def w_o_shape() -> str:
    sizes = example_trace("2.1").sizes
    return (
        f"h\u00b7d_v = {sizes['h']} \u00b7 {sizes['d_v']} = {sizes['h'] * sizes['d_v']}, so W_O is "
        f"{sizes['h'] * sizes['d_v']} \u00d7 {sizes['d_out']}."
    )


def blind_heads() -> str:
    found = favourites_by_width()
    parts = (f"{number(mean)} at d_k = {d_k}" for _, d_k, mean in found)
    return (
        f"{BLIND[1]} random tokens, d_model {BLIND[0]}, keys that are some query's favourite, per head: "
        f"{', '.join(parts)}."
    )


def order_blind() -> str:
    found = positions()
    return (
        f"Four words shuffled: outputs move with them, to {error(found['without'])}; with positions added "
        f"first they change by up to {number(found['with'])}."
    )


def spread_at_64() -> str:
    spread = spread_of_products()[63]
    return (
        f"Measured at d_k = 64: spread {spread:.2f}; divided by \u221ad_k {spread / 8:.2f}, by d_k "
        f"{spread / 64:.3f}."
    )


def mask_after_softmax() -> str:
    weights = attention_row(given("2.3")["scores"][0]).weights
    return (
        f"Weights {vector(weights.round(4))} without the last one sum to "
        f"{number(weights[:2].sum().round(4))}."
    )


def one_head() -> str:
    made = block_inputs(1, 3, 4)
    head, _ = heads_of(made["x"], made["w_q"], made["w_k"], made["w_v"], 1)
    alone, _, _ = reference_attention(*(made["x"] @ made[name] for name in ("w_q", "w_k", "w_v")))
    return (
        "The one head of a block, and attention on its projections: "
        f"{number(np.abs(head[0] - alone).max())} apart."
    )


def equal_scores() -> str:
    trace = example_trace("C")
    values = given("C")["value"][:, 0]
    return (
        f"Scores {vector(given('C')['scores'][0])}, values {vector(values)}: weights "
        f"{vector(trace['weights']['A_i'][0, 0])}, output {number(trace.output[0][0][0])}, their mean "
        f"{number(values.mean())}."
    )


def huge_score() -> str:
    trace = example_trace("D")
    weight, output = float(trace["weights"]["A_i"][0, 0, 2]), float(trace.output[0][0][0])
    return f"Scores {vector(given('D')['scores'][0])}: weight {weight!r}, output {output!r}."


def other_value_width() -> str:
    wide = cost(d_model=512, heads=8, v_head_dim=32)
    rows = int(wide["parameters.w_o"]) // 512
    return f"d_model 512, h 8, d_k 64, d_v 32: the concatenation is {rows} wide and W_O is {rows} \u00d7 512."


def equal_values() -> str:
    trace = example_trace("5.2")
    return (
        f"All values {vector(given('5.2')['value'][0])}, random scores: output of query 0 "
        f"{vector(trace.output[0][0])}."
    )


def one_token() -> str:
    alone = attention_row([7.3], [[5.0]])
    return f"Score 7.3, value 5: weight {number(alone.weights[0])}, output {number(alone.output[0])}."


def empty_row() -> str:
    nothing = attention_row([1, 2], [[5.0], [6.0]], seen=[False, False])
    return f"Two hidden keys: weights {vector(nothing.weights)}, output {number(nothing.output[0])}."


def layer_widths() -> str:
    sizes = example_trace("2.1").sizes
    return f"In: {sizes['n_q']} \u00d7 {sizes['d_in']}; out: {sizes['n_q']} \u00d7 {sizes['d_out']}."


def parameters_512() -> str:
    return f"4 \u00b7 512\u00b2 = {count(cost(d_model=512, heads=8).parameters)}."


def batched_heads() -> str:
    trace = example_trace("2.1")
    array = next(a for a in trace["weights"].arrays if a.name == "A_i")
    shape = " \u00d7 ".join(map(str, array.shape))
    return f"One array for all heads: weights of shape {shape}."


Evidence = Callable[[], str]
