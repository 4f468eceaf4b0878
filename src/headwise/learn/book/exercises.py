"""The graded exercises, level 1 (recognise) to 5 (judge). Answers are computed when they are asked for."""

from collections.abc import Callable

import numpy as np

from headwise.costs import cost
from headwise.costs.sweep import head_sweep
from headwise.learn.book.experiments import attention_row, favourites_by_width, spread_of_products
from headwise.learn.book.lessons_heads import diversity, joining
from headwise.learn.book.lessons_worked import example_trace, given
from headwise.learn.curriculum import Exercise, plain
from headwise.plain.numbers import column, count, number, vector


def exercise_1_1() -> Exercise:
    d_k = cost(d_model=768, heads=12).layers[0].sizes["head_dim"]
    return Exercise(
        "1.1",
        1,
        "Width of a head",
        "How is d_k computed from d_model and h? What is it for d_model = 768, h = 12?",
        (f"d_k = d_model / h = 768 / 12 = {d_k}.",),
        {"d_k": d_k},
        "shapes",
    )


def exercise_1_2() -> Exercise:
    sizes = example_trace("2.1").sizes
    width = sizes["h"] * sizes["d_v"]
    return Exercise(
        "1.2",
        1,
        "Shape of the output",
        "n tokens of width d_model go into a block. What shape comes out, and why is the width the same?",
        (
            "n \u00d7 d_model: one row per query token.",
            f"The concatenation is h\u00b7d_v = d_model wide (for d_model 512 and h 8: {sizes['h']} \u00d7 "
            f"{sizes['d_v']} = {width}), and W_O maps it to d_model, so that blocks can be stacked and "
            "added to their input.",
        ),
        {"width": width, "d_out": sizes["d_out"]},
        "home",
    )


def exercise_2_1() -> Exercise:
    sizes = example_trace("2.1").sizes
    n, d_k, d_v = sizes["n_q"], sizes["d_k"], sizes["d_v"]
    shapes = {"W_i": [sizes["d_in"], d_k], "Q_i": [n, d_k], "scores": [n, n], "head": [n, d_v]}
    lines = [f"{name}: {a} \u00d7 {b}" for name, (a, b) in shapes.items()]
    return Exercise(
        "2.1",
        2,
        "Shapes of one head",
        "d_model = 512, h = 8, n = 10. Give the shapes of the slice W_i of W_Q, of Q_i, of the scores and "
        "of the head's output.",
        (
            "; ".join(lines) + ".",
            "One score for every pair of tokens: the row's token looks at the column's.",
        ),
        shapes,
        "shapes",
        "grid",
    )


def exercise_2_2() -> Exercise:
    trace = example_trace("2.2")
    scaled, spread = float(trace["scaled"]["Z_i"][0, 0, 0]), spread_of_products()[63]
    return Exercise(
        "2.2",
        2,
        "One scaled score",
        "d_k = 64 and q \u00b7 k = 40. What is the scaled score? Why divide by \u221ad_k and not by d_k?",
        (
            f"40 / \u221a64 = {number(scaled)}.",
            "The variance of q \u00b7 k is d_k when entries have variance 1, so its typical size is "
            f"\u221ad_k (measured at 64: {spread:.2f}). Dividing by \u221ad_k brings it to 1; dividing by "
            f"d_k leaves a variance of 1/d_k and a spread of {spread / 64:.3f}: nearly uniform weights.",
        ),
        {"scaled": scaled},
        "scale",
    )


def exercise_2_3() -> Exercise:
    weights = attention_row(given("2.3")["scores"][0]).weights
    ratio = float(weights[2] / weights[0])
    return Exercise(
        "2.3",
        2,
        "Softmax by hand",
        "The scaled scores of one query are 4, 2 and 5. What are the weights, and how far ahead is the "
        "winner?",
        (
            f"{vector(np.round(weights, 4))}: the third key wins.",
            f"It has {number(ratio)} times the weight of the first: a gap of 1 in score is a factor e.",
        ),
        {"weights": plain(weights), "ratio": ratio},
        "C",
    )


def exercise_3_1() -> Exercise:
    rows = head_sweep(512, 1024).rows
    one, eight, most = rows[0], next(r for r in rows if r.heads == 8), rows[-1]
    return Exercise(
        "3.1",
        3,
        "Is h = 8 eight times slower?",
        "\u201cAttention costs n\u00b2\u00b7d, so 8 heads take 8 times as long as one.\u201d Right?",
        (
            "No. Each head is d_model / h wide: h\u00b7n\u00b2\u00b7d_k = n\u00b2\u00b7d_model, once for "
            "the scores and once for the blend. Matrix products at d_model 512, n 1024: "
            f"{count(one.matmul)} FLOPs with one head, {count(eight.matmul)} with 8.",
            f"What grows with h is softmax, h\u00b7n\u00b2 exponentials: {count(one.exponentials)} and "
            f"{count(eight.exponentials)}. Beside scores and values that is about {one.softmax_share:.0%} "
            f"of the vector work at h = 1, {eight.softmax_share:.0%} at h = 8 and {most.softmax_share:.0%} "
            f"at h = {most.heads}.",
        ),
        {
            "matmul": [one.matmul, eight.matmul],
            "exponentials": [one.exponentials, eight.exponentials],
            "share": [one.softmax_share, eight.softmax_share, most.softmax_share],
        },
        "cost",
    )


def exercise_3_2() -> Exercise:
    sizes = example_trace("2.1").sizes
    found = joining()["ways"]
    away = float(np.abs(found["summed"] - found["concatenated"]).max())
    width = sizes["h"] * sizes["d_v"]
    return Exercise(
        "3.2",
        3,
        "Find the error",
        "d_model = 512, h = 8, n = 10: \u201cI add the eight 10 \u00d7 64 heads to one 10 \u00d7 64 array "
        "and multiply by W_O, 64 \u00d7 512.\u201d",
        (
            f"The heads have to be concatenated, to {sizes['n_q']} \u00d7 {width}, and W_O is {width} \u00d7 "
            f"{sizes['d_out']}.",
            "Added, only their sum is left, and which head said what is gone; the small W_O follows from "
            f"that mistake. In the lesson's example the results differ by up to {number(away)}.",
        ),
        {"w_o": [width, sizes["d_out"]], "away": away},
        "joining",
    )


def exercise_3_3() -> Exercise:
    trace = example_trace("3.3")
    heads = trace["blend"]["O_i"]
    difference, overlap = float(np.abs(heads[0] - heads[1]).max()), diversity()["redundancy"]
    return Exercise(
        "3.3",
        3,
        "Two heads, one set of projections",
        "Why does every head need its own W_Q, W_K and W_V? What happens if two heads share all three?",
        (
            f"Same projections, same numbers: the outputs differ by {number(difference)} and the maps "
            f"overlap by {number(overlap)}. The second head is redundant.",
            "All heads run the same formula on the same tokens. Only the projections make them differ.",
        ),
        {"difference": difference, "overlap": overlap},
        "diversity",
    )


def exercise_4_1() -> Exercise:
    totals = {heads: cost(d_model=512, heads=heads).parameters for heads in (1, 8, 64)}
    return Exercise(
        "4.1",
        4,
        "Count the parameters",
        "Derive the number of weights of a block without biases, and show that h drops out. How many for "
        "d_model = 512?",
        (
            "3 matrices \u00d7 h heads \u00d7 d_model\u00b7(d_model / h) = 3\u00b7d_model\u00b2: the h "
            "cancels. W_O adds d_model\u00b2. Together 4\u00b7d_model\u00b2.",
            "For 512: " + ", ".join(f"{count(total)} with h = {h}" for h, total in totals.items()) + ".",
        ),
        {"total": totals[8], "totals": list(totals.values())},
        "I",
    )


def exercise_4_2() -> Exercise:
    trace = example_trace("4.2")
    scores, scaled = trace["scores"]["S_i"][0, 0], trace["scaled"]["Z_i"][0, 0]
    weights, output = trace["weights"]["A_i"][0, 0], np.array(trace.output)[0, 0]
    return Exercise(
        "4.2",
        4,
        "One causal query, all the way",
        "Causal, one head, d_k = 2, the last of four positions: q = (1, 0), keys (1, 0), (0, 1), (1, 1), "
        "(2, 0), values (1, 0), (0, 2), (3, 0), (0, 4). Compute the output.",
        (
            f"Scores {vector(scores)}, divided by \u221a2: ({', '.join(column(scaled, 4))}). The last "
            "query sees all four keys.",
            f"Weights ({', '.join(column(weights, 4))}); output ({', '.join(column(output, 4))}), to six "
            f"decimals {vector(output)}.",
        ),
        {"weights": plain(weights), "output": plain(output)},
        "causal",
    )


def exercise_5_1() -> Exercise:
    found = favourites_by_width()
    first, last = found[0], found[-1]
    return Exercise(
        "5.1",
        5,
        "Are more heads always better?",
        "Make the best case for \u201cmore heads is always better\u201d, then refute it by letting h go to "
        "d_model.",
        (
            "For: more subspaces, more relations, at the same number of parameters and of matrix-product "
            "FLOPs.",
            "Against: d_k = d_model / h falls to 1. A query and a key are then one number each, and "
            f"whatever the tokens are, a head points to the largest or the smallest key: {number(last[2])} "
            f"favourites per head at h = {last[0]}, {number(first[2])} at h = 1. Diversity is bought with "
            "the width of each head; widths near 64 have worked well.",
        ),
        {"favourites": plain(found)},
        "narrow",
        "narrow",
    )


def exercise_5_2() -> Exercise:
    trace, value = example_trace("5.2"), given("5.2")["value"]
    away = float(np.abs(np.array(trace.output)[0] - value[0]).max())
    return Exercise(
        "5.2",
        5,
        "All values alike",
        "All value rows equal v. Prove that every output is v, and say where the power of attention comes "
        "from.",
        (
            "\u03a3_j w_ij v = v \u03a3_j w_ij = v, because every row of weights sums to 1.",
            f"With v = {vector(value[0])} and random scores the outputs stray from v by {number(away)}. "
            "Attention only averages: it needs values that differ, and weights that pick among them.",
        ),
        {"away": away, "value": plain(value[0])},
        "edges",
    )


def exercise_5_3() -> Exercise:
    sizes = example_trace("5.3").sizes
    n_q, n_k = sizes["n_q"], sizes["n_k"]
    return Exercise(
        "5.3",
        5,
        "Cross-attention",
        "Queries come from a sequence of length n_q, keys and values from one of length n_k. What shape "
        "are the scores, how long is the output, and why does nothing change in the heads?",
        (
            f"Scores n_q \u00d7 n_k, output n_q rows: with {n_q} queries and {n_k} keys, {n_q} \u00d7 "
            f"{n_k} and {n_q} rows of {sizes['d_out']}.",
            "Softmax runs over the keys and the product with the values sums them away. Splitting, "
            "concatenating and W_O act on the width, which has nothing to do with either length.",
        ),
        {"scores": [n_q, n_k], "length": n_q},
        "H",
        "cross",
    )


EXERCISES: dict[str, Callable[[], Exercise]] = {
    "1.1": exercise_1_1, "1.2": exercise_1_2, "2.1": exercise_2_1, "2.2": exercise_2_2, "2.3": exercise_2_3,
    "3.1": exercise_3_1, "3.2": exercise_3_2, "3.3": exercise_3_3, "4.1": exercise_4_1, "4.2": exercise_4_2,
    "5.1": exercise_5_1, "5.2": exercise_5_2, "5.3": exercise_5_3,
}  # fmt: skip


def exercises() -> list[Exercise]:
    """All of them, in order of level."""
    return [make() for make in EXERCISES.values()]
