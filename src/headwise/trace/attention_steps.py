"""The steps that every trace has: scores, scaled, masked, weights, blend. Heads stand in front."""

import math

import numpy as np

from headwise.plain.numbers import MINUS_INFINITY, count, number, vector
from headwise.plain.types import Array
from headwise.trace import claims
from headwise.trace.arithmetic import for_each_query_head, softmax
from headwise.trace.attention_pass import AttentionPass
from headwise.trace.data import Check, Fact, Step
from headwise.trace.notation import MINUS, array, dot, plus

SHOWN_HEADS = 8  # facts are told for so many heads


def attention_steps(forward: AttentionPass, compared: Check | None) -> list[Step]:
    """The steps in order; ``compared`` is a further check of the last one."""
    steps = [_scores_given(forward) if forward.query is None else _scores(forward)]
    if forward.query is not None or forward.scale != 1:
        steps.append(_scaled(forward))
    if forward.has_mask or forward.is_causal:
        steps.append(_masked(forward))
    return [*steps, _weights(forward), _blend(forward, compared)]


def given(forward: AttentionPass) -> Step:
    """The first step of bare attention: the arrays as they were given."""
    assert forward.query is not None and forward.key is not None
    letters, heads, kv_heads = forward.letters, forward.heads, forward.key.shape[0]
    index = "i" if kv_heads == heads else "g"
    n_q, n_k = letters.n_q, letters.n_k
    grouped = f"; head i uses K_g and V_g with g = \u230ai / {heads // kv_heads}\u230b"
    latex = [
        rf"Q_i \in \mathbb{{R}}^{{{n_q} \times d_k}}",
        rf"K_{index} \in \mathbb{{R}}^{{{n_k} \times d_k}}",
    ]
    latex.append(rf"V_{index} \in \mathbb{{R}}^{{{n_k} \times d_v}}")
    return Step(
        "shapes",
        "Shapes",
        "Queries and keys share a width, for they meet in dot products; values may have another.",
        f"Q_i: {n_q} × d_k, K_{index}: {n_k} × d_k, V_{index}: {n_k} × d_v"
        + (grouped if index == "g" else ""),
        r",\quad ".join(latex),
        arrays=(
            array("Q_i", "queries", ["h", n_q, "d_k"], forward.query, "head query column"),
            array(f"K_{index}", "keys", [letters.h_kv, n_k, "d_k"], forward.key, "head key column"),
            array(f"V_{index}", "values", [letters.h_kv, n_k, "d_v"], forward.value, "head key column"),
        ),
        facts=tuple(letters.facts()),
    )


def _scores(forward: AttentionPass) -> Step:
    assert forward.query is not None and forward.key is not None
    letters, d_k = forward.letters, forward.query.shape[-1]
    at, key_head = forward.shown_row or 0, "i" if forward.key.shape[0] == forward.heads else "g"
    n_q, n_k = forward.query.shape[1], forward.key.shape[1]
    lines = [f"S_0[{at}, 0] = q_{at} · k_0 = {dot(forward.query[0, at], forward.key[0, 0])}"]
    algebra = f"{n_q}×{d_k} times {d_k}×{n_k} is {n_q}×{n_k}: queries down, keys across"
    return Step(
        "scores",
        "Scores",
        "A score says how well a query matches a key; any sign and any size.",
        f"S_i = Q_i K_{key_head}ᵀ",
        rf"S_i = Q_i K_{{{key_head if key_head == 'i' else 'g(i)'}}}^{{\top}}",
        worked=tuple(lines),
        arrays=(array("S_i", "scores of each head", forward.grid(), forward.scores, "head query key"),),
        facts=(Fact("grid", "grid of one head", f"{letters.n_q}×{letters.n_k} = {n_q}×{n_k}"),),
        checks=(
            claims.dimensions("score_grid", algebra, forward.scores[0].size, n_q * n_k),
            claims.equal(
                "scores_one_by_one",
                "summed product by product, every score is the same",
                _one_by_one(forward),
                forward.scores,
            ),
        ),
    )


def _scores_given(forward: AttentionPass) -> Step:
    return Step(
        "scores",
        "Scores",
        "The scores are taken as they were given: one row per query, one column per key.",
        "S_i given",
        r"S_i \text{ given}",
        arrays=(array("S_i", "scores", forward.grid(), forward.scores, "head query key"),),
    )


def _one_by_one(forward: AttentionPass) -> Array:
    """Every score as an exactly rounded sum of its products."""
    assert forward.query is not None and forward.key is not None
    keys = for_each_query_head(forward.key, forward.heads)
    found = np.empty_like(forward.scores)
    for i, r, j in np.ndindex(*forward.scores.shape):
        found[i, r, j] = math.fsum((forward.query[i, r] * keys[i, j]).tolist())
    return found


def _scaled(forward: AttentionPass) -> Step:
    at, found = forward.shown_row or 0, []
    d_k = None if forward.query is None else forward.query.shape[-1]
    if forward.scale_given or d_k is None:
        formula, latex = f"Z_i = {number(forward.scale)} S_i", rf"Z_i = {number(forward.scale)}\, S_i"
        why = "The scale was given; it keeps the scores at a size at which softmax still answers to them."
        line = f"Z_0[{at}, 0] = {number(forward.scale)} · {number(forward.scores[0, at, 0])}"
    else:
        formula = f"Z_i = S_i / √d_k = S_i / √{d_k}"
        latex = rf"Z_i = \frac{{S_i}}{{\sqrt{{d_k}}}} = \frac{{S_i}}{{\sqrt{{{d_k}}}}}"
        why = "A sum of d_k random products has variance d_k; dividing by √d_k makes that 1."
        line = f"Z_0[{at}, 0] = {number(forward.scores[0, at, 0])} / {number(math.sqrt(d_k))}"
        claim = "the scale is that of the head's own width: scale · √d_k = 1"
        found.append(claims.make("scale", claim, abs(forward.scale * math.sqrt(d_k) - 1), claims.ROUNDING))
    facts = []
    if forward.shown_row is not None:
        raw = forward.scores if forward.bias is None else forward.scores + forward.bias
        without = softmax(np.where(forward.seen, raw, -np.inf))[0, at]
        named = f"largest weight of query {forward.queries[at]}, head 0"
        facts = [
            Fact("largest_without_scale", f"{named}, unscaled", float(without.max())),
            Fact("largest_with_scale", f"{named}, scaled", float(forward.weights[0, at].max())),
        ]
    return Step(
        "scaled",
        "Scaled scores",
        why,
        formula,
        latex,
        worked=(f"{line} = {number(forward.scaled[0, at, 0])}",),
        arrays=(array("Z_i", "scaled scores", forward.grid(), forward.scaled, "head query key"),),
        facts=tuple(facts),
        checks=tuple(found),
    )


def _masked(forward: AttentionPass) -> Step:
    one_for_all = (forward.seen == forward.seen[:1]).all()
    seen, axes = (forward.seen[0], "query key") if one_for_all else (forward.seen, "head query key")
    arrays = [array("seen", "which keys each query sees", forward.grid()[3 - seen.ndim :], seen, axes)]
    added = added_latex = "Z_i"
    if forward.bias is not None:
        same = (forward.bias == forward.bias[:1]).all()
        bias, bias_axes = (forward.bias[0], "query key") if same else (forward.bias, "head query key")
        arrays.append(array("bias", "added to the scores", forward.grid()[3 - bias.ndim :], bias, bias_axes))
        added, added_latex = "(Z_i + bias)", r"(Z_i + \text{bias})"
    arrays.append(array("M_i", "scores that softmax gets", forward.grid(), forward.masked, "head query key"))
    rule_latex = r"\text{query } r \text{ sees key } j"
    rule, found = "query r sees key j", [claims.nothing_hidden_is_seen(forward.masked, forward.seen)]
    if forward.is_causal:
        sign = "+" if forward.offset > 0 else MINUS
        shift = "" if forward.offset == 0 else f" {sign} {abs(forward.offset)}"
        beyond = " and the mask lets it" if _mask_beyond_causal(forward) else ""
        rule = f"j \u2264 r{shift}{beyond}"
        rule_latex = rf"j \le r{shift.replace(MINUS, '-')}" + (rf"\text{{{beyond}}}" if beyond else "")
        found.append(claims.no_later_key(forward.seen, forward.offset))
    pairs, all_pairs = int(forward.seen[0].sum()), forward.seen[0].size
    facts = [Fact("visible_pairs", f"query-key pairs that head 0 sees, of {count(all_pairs)}", pairs)]
    empty = int((~forward.seen.any(-1)).sum())
    if empty:
        facts.append(Fact("empty_rows", "rows that see no key (all heads)", empty))
    at = forward.shown_row
    worked: tuple[str, ...] = ()
    if at is not None:
        allowed = [forward.keys[j] for j in np.flatnonzero(forward.seen[0, at])]
        worked = (
            f"query {forward.queries[at]} sees {len(allowed)} of {len(forward.keys)} keys: {_some(allowed)}",
        )
    latex = rf"\tilde Z_i[r, j] = \begin{{cases}} {added_latex}[r, j] & {rule_latex} \\ "
    latex += r"-\infty & \text{otherwise} \end{cases}"
    return Step(
        "masked",
        "Masked scores",
        "A hidden key gets the score \u2212\u221e: its exponential, and so its weight, is then exactly 0.",
        f"M_i[r, j] = {added}[r, j] if {rule}, else {MINUS_INFINITY}",
        latex,
        worked=worked,
        arrays=tuple(arrays),
        facts=tuple(facts),
        checks=tuple(found),
    )


def _mask_beyond_causal(forward: AttentionPass) -> bool:
    n_q, n_k = forward.seen.shape[1:]
    causal = np.arange(n_k) <= np.arange(n_q)[:, None] + forward.offset
    return bool((forward.seen != causal).any())


def _some(names: list[str], shown: int = 6) -> str:
    return ", ".join(names if len(names) <= shown else [*names[: shown - 1], "…", names[-1]])


def _weights(forward: AttentionPass) -> Step:
    weights, masked = forward.weights, forward.masked
    empty: Array = ~np.asarray(forward.seen.any(-1))
    symbol = (
        "M_i"
        if forward.has_mask or forward.is_causal
        else "Z_i"
        if forward.query is not None or forward.scale != 1
        else "S_i"
    )
    latex_symbol = {"M_i": r"\tilde Z"}.get(symbol, symbol[0])
    found = [claims.rows_sum_to_one(weights, empty), claims.never_negative(weights)]
    if not forward.seen.all():
        found.append(claims.hidden_weight_zero(weights, forward.seen))
    found.append(claims.shift_changes_nothing(masked, weights))
    facts = []
    choices = forward.seen.sum(-1)
    for head in range(min(forward.heads, SHOWN_HEADS)):
        # A query with one key has no choice: its weight of 1 says nothing.
        chosen = np.where((choices[head] > 1)[:, None], weights[head], 0.0)
        spread = chosen.max(-1) - np.where(forward.seen[head], chosen, np.inf).min(-1)
        if (spread > claims.ROUNDING).any():
            r, j = np.unravel_index(np.argmax(chosen), chosen.shape)
            link = f"query {forward.queries[r]} \u2192 key {forward.keys[j]}: {number(float(chosen[r, j]))}"
            facts.append(Fact(f"strongest_{head}", f"strongest link of head {head}", link))
    return Step(
        "weights",
        "Attention weights",
        "Softmax makes each query's row of scores into shares of 1: over its keys, never the grid.",
        f"A_i[r, j] = exp {symbol}[r, j] / Σ_t exp {symbol}[r, t]",
        rf"A_i[r, j] = \frac{{e^{{{latex_symbol}_i[r, j]}}}}{{\sum_t e^{{{latex_symbol}_i[r, t]}}}}",
        worked=_worked_softmax(forward),
        arrays=(array("A_i", "attention weights", forward.grid(), weights, "head query key"),),
        facts=tuple(facts),
        checks=tuple(found),
    )


def _worked_softmax(forward: AttentionPass) -> tuple[str, ...]:
    at = forward.shown_row
    if at is None:
        return ()
    j = int(np.argmax(forward.weights[0, at]))
    seen = forward.masked[0, at][forward.seen[0, at]].tolist()
    top = forward.masked[0, at, j]
    sum_of = plus([f"exp({number(score)})" for score in seen])
    if len(seen) > 1:
        sum_of = f"({sum_of})"
    return (f"A_0[{at}, {j}] = exp({number(top)}) / {sum_of} = {number(float(forward.weights[0, at, j]))}",)


def _blend(forward: AttentionPass, compared: Check | None) -> Step:
    grouped = forward.value.shape[0] != forward.heads
    found = [claims.inside_the_hull(forward.blend, forward.values, forward.seen)]
    letters, what = forward.letters, "output of each head"
    arrays = [array("O_i", what, ["h", letters.n_q, "d_v"], forward.blend, "head query column")]
    if forward.query is None:
        shape = [letters.h_kv, letters.n_k, "d_v"]
        arrays.insert(0, array("V_i", "values as given", shape, forward.value, "head key column"))
    return Step(
        "blend",
        "Blend of values",
        "Each output row is a mean of the value rows, weighted by that query's row of weights.",
        f"O_i = A_i V_{'g' if grouped else 'i'}",
        f"O_i = A_i V_{'{g(i)}' if grouped else 'i'}",
        worked=_worked_blend(forward),
        arrays=tuple(arrays),
        checks=(*found, *([compared] if compared else [])),
    )


def _worked_blend(forward: AttentionPass) -> tuple[str, ...]:
    at = forward.shown_row
    if at is None:
        return ()
    seen = np.flatnonzero(forward.seen[0, at])
    weights, values = forward.weights[0, at], forward.values[0]
    parts = [f"{number(float(weights[j]))}·{vector(values[j].tolist(), 4)}" for j in seen]
    return (f"O_0[{at}] = {plus(parts)} = {vector(forward.blend[0, at].tolist(), 4)}",)
