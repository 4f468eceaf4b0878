"""The claims of the question bank, each computed: what is true holds, what is taught wrongly elsewhere does
not."""

import math

import numpy as np
import pytest

from headwise import attention, cost, explain, multi_head_attention
from headwise.costs.sweep import head_sweep
from headwise.trace.examples import example


def block(seed=0, n=5, d_model=6, heads=3, d_v=None, n_k=None):
    rng = np.random.default_rng(seed)
    d_v = d_model // heads if d_v is None else d_v
    made = {
        "x": rng.normal(size=(n, d_model)),
        "w_q": rng.normal(size=(d_model, d_model)),
        "w_k": rng.normal(size=(d_model, d_model)),
        "w_v": rng.normal(size=(d_model, heads * d_v)),
        "w_o": rng.normal(size=(heads * d_v, d_model)),
        "num_heads": heads,
    }
    return made if n_k is None else {**made, "context": rng.normal(size=(n_k, d_model))}


def test_products_do_not_grow_with_the_heads_but_exponentials_do():
    rows = head_sweep(64, 16).rows
    assert len({row.matmul for row in rows}) == 1
    assert [row.exponentials for row in rows] == [row.heads * 16 * 16 for row in rows]


def test_identical_projections_give_identical_heads():
    first, second = example("3.3")["blend"]["O_i"]
    np.testing.assert_array_equal(first, second)


def test_the_scale_uses_the_width_of_a_head():
    trace = explain(**block(d_model=6, heads=3))
    assert trace.options["scale"] == pytest.approx(1 / math.sqrt(2)) and trace["scaled"].check("scale").holds
    assert explain(**block(d_model=6, heads=1)).options["scale"] == pytest.approx(1 / math.sqrt(6))


def heads_that_reach(result, changed):
    """Columns of the result that a change of one head reaches."""
    return set(np.flatnonzero(np.abs(changed - result).max(0) > 1e-12))


def test_concatenation_does_not_mix_and_w_o_does():
    made = block(heads=3)
    other = {**made, "w_v": made["w_v"].copy()}
    other["w_v"][:, 2:4] += 1.0  # the values of head 1
    before, after = explain(**made), explain(**other)
    joined = heads_that_reach(before["concatenation"]["H"], after["concatenation"]["H"])
    assert joined == {2, 3}
    assert heads_that_reach(before["output"]["Y"], after["output"]["Y"]) == set(range(6))


def test_without_w_o_every_head_keeps_to_its_own_columns():
    made = {**block(heads=3), "w_o": np.eye(6)}
    other = {**made, "w_v": made["w_v"].copy()}
    other["w_v"][:, 2:4] += 1.0
    assert heads_that_reach(multi_head_attention(**made), multi_head_attention(**other)) == {2, 3}


def test_heads_have_to_divide_the_width():
    with pytest.raises(ValueError, match="nearest that work: 4 heads .* and 8 heads"):
        cost(d_model=512, heads=6)
    with pytest.raises(ValueError, match="num_heads"):
        explain(np.zeros((1, 512)), num_heads=6, **{f"w_{letter}": np.eye(512) for letter in "qkvo"})


def test_scores_are_a_grid_of_tokens_not_of_columns():
    assert explain(**block(n=5, d_model=6, heads=3))["scores"]["S_i"].shape == (3, 5, 5)


def test_softmax_runs_over_the_keys_of_each_query():
    weights = explain(**block())["weights"]["A_i"]
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-13)
    assert abs(weights[0].sum() - 5) < 1e-12, "the whole grid sums to n"
    assert np.abs(weights.sum(-2) - 1).max() > 0.1, "columns are free"


def test_concatenate_then_w_o_is_the_sum_of_projected_heads():
    """And what loses information is adding heads before they are projected, or sharing one small W_O among
    them."""
    made = block(heads=3)
    trace = explain(**made)
    heads, w_o = trace["blend"]["O_i"], made["w_o"]
    own_rows = sum(heads[i] @ w_o[2 * i : 2 * i + 2] for i in range(3))
    np.testing.assert_allclose(own_rows, trace["output"]["Y"], rtol=1e-12, atol=1e-12)
    assert trace["output"].check("sum_of_projected_heads").holds
    shared = sum(head @ w_o[:2] for head in heads)
    np.testing.assert_allclose(shared, heads.sum(0) @ w_o[:2], rtol=1e-12, atol=1e-12)
    assert np.abs(shared - trace["output"]["Y"]).max() > 0.1


def test_adding_unprojected_heads_forgets_which_head_said_what():
    heads = explain(**block(heads=3))["blend"]["O_i"]
    swapped = heads[[1, 0, 2]]
    np.testing.assert_allclose(swapped.sum(0), heads.sum(0), rtol=1e-13)
    joined, exchanged = (np.concatenate(list(h), -1) for h in (heads, swapped))
    assert np.abs(joined - exchanged).max() > 0.1


def test_w_o_has_as_many_rows_as_the_heads_have_columns():
    made = block(heads=3, d_v=5)
    assert explain(**made)["shapes"].check("w_o_rows").holds and made["w_o"].shape[0] == 15
    with pytest.raises(ValueError, match="heads are concatenated, not added"):
        explain(**{**made, "w_o": made["w_o"][:5]})


def test_a_head_need_not_attend_to_itself():
    trace = example("G")
    weights = trace["weights"]["A_i"][0, 0]
    assert weights[trace.keys.index("it")] < 0.07 < weights.max()


def test_attention_is_blind_to_order():
    made, order = block(), np.array([3, 0, 4, 1, 2])
    output, shuffled = multi_head_attention(**made), multi_head_attention(**{**made, "x": made["x"][order]})
    np.testing.assert_allclose(shuffled, output[order], rtol=1e-12, atol=1e-12)
    positions = np.sin(np.arange(5)[:, None] * 10.0 ** -np.arange(6))
    placed = multi_head_attention(**{**made, "x": made["x"] + positions})
    moved = multi_head_attention(**{**made, "x": made["x"][order] + positions})
    assert np.abs(moved - placed[order]).max() > 0.01, "positions added first are seen"


def test_cross_attention_splits_heads_the_same_way():
    made = block(n=2, n_k=7)
    trace = explain(**made)
    assert trace["split"]["Q_i"].shape == (3, 2, 2) and trace["split"]["K_i"].shape == (3, 7, 2)
    assert trace["scores"]["S_i"].shape == (3, 2, 7) and np.shape(trace.output) == (2, 6)
    query, key = made["x"] @ made["w_q"], made["context"] @ made["w_k"]
    np.testing.assert_allclose(trace["scores"]["S_i"][1], query[:, 2:4] @ key[:, 2:4].T, rtol=1e-13)


def test_one_head_is_plain_attention():
    made = block(heads=1)
    x = made["x"]
    plain = attention(*(x @ made[f"w_{letter}"] for letter in "qkv")) @ made["w_o"]
    np.testing.assert_allclose(multi_head_attention(**made), plain, rtol=1e-12, atol=1e-12)


def test_as_many_heads_as_columns_see_one_number_each():
    trace = explain(**block(heads=6))
    assert trace.sizes["d_k"] == 1
    ranks = [np.linalg.matrix_rank(scores) for scores in trace["scores"]["S_i"]]
    assert ranks == [1] * 6, "every grid of scores is a column times a row"
    assert [np.linalg.matrix_rank(scores) for scores in explain(**block(heads=2))["scores"]["S_i"]] == [3, 3]


def test_equal_scores_give_the_mean():
    value = np.random.default_rng(1).normal(size=(4, 3))
    trace = explain(scores=np.full((2, 4), 7.0), value=value)
    np.testing.assert_allclose(trace["blend"]["O_i"][0], [value.mean(0)] * 2, rtol=1e-14)


def test_one_huge_score_copies_one_value():
    value = np.random.default_rng(2).normal(size=(3, 2))
    trace = explain(scores=np.array([[0.0, 800.0, 3.0]]), value=value)
    np.testing.assert_array_equal(trace["blend"]["O_i"][0, 0], value[1])


def test_values_may_have_another_width():
    trace = explain(**block(heads=3, d_v=5))
    assert (trace.sizes["d_k"], trace.sizes["d_v"]) == (2, 5) and trace["concatenation"]["H"].shape == (5, 15)
    assert trace.options["scale"] == pytest.approx(1 / math.sqrt(2)), "d_v has no say in the scale"


def test_the_first_layer_reads_embeddings_and_positions():
    """Q, K and V are projections of one and the same sum."""
    rng = np.random.default_rng(3)
    embedding, position = rng.normal(size=(5, 6)), rng.normal(size=(5, 6))
    made = {**block(), "x": embedding + position}
    trace = explain(**made)
    for letter in "QKV":
        weight = made[f"w_{letter.lower()}"]
        np.testing.assert_allclose(
            trace["projections"][letter], embedding @ weight + position @ weight, rtol=1e-11, atol=1e-12
        )


def test_one_head_and_many_have_equally_many_parameters():
    assert {cost(d_model=512, heads=heads).parameters for heads in (1, 2, 8, 64, 512)} == {4 * 512**2}


def test_one_formula_for_all_heads_is_one_batched_operation():
    made = block(heads=3)
    trace = explain(**made)
    q, k, v = (trace["split"][name] for name in ("Q_i", "K_i", "V_i"))
    one_by_one = [attention(q[i], k[i], v[i]) for i in range(3)]
    np.testing.assert_array_equal(attention(q, k, v), one_by_one)


def test_heads_differ_because_their_projections_do():
    heads = explain(**block(heads=3))["weights"]["A_i"]
    assert min(np.abs(heads[i] - heads[j]).max() for i in range(3) for j in range(i)) > 0.05
    made = block(heads=3)
    for name in ("w_q", "w_k", "w_v"):
        made[name] = np.tile(made[name][:, :2], 3)
    same = explain(**made)["weights"]["A_i"]
    np.testing.assert_array_equal(same[0], same[2])


def test_a_weight_is_never_negative():
    for seed in range(20):
        trace = explain(scores=np.random.default_rng(seed).normal(size=(3, 4)) * 100, value=np.eye(4))
        assert trace["weights"]["A_i"].min() >= 0 and trace["weights"].check("never_negative").holds


def test_the_spread_of_dot_products_is_the_root_of_the_width():
    rng = np.random.default_rng(4)
    for d_k in (1, 4, 16, 64, 128):
        products = (rng.normal(size=(20000, d_k)) * rng.normal(size=(20000, d_k))).sum(-1)
        assert products.std() == pytest.approx(math.sqrt(d_k), rel=0.05)
        assert (products / math.sqrt(d_k)).std() == pytest.approx(1, rel=0.05)
        assert (products / d_k).var() == pytest.approx(1 / d_k, rel=0.1)


def test_dividing_by_the_width_shrinks_too_much():
    """Exercise 2.2: with 1/d_k in place of 1/√d_k, weights go towards uniform."""
    rng = np.random.default_rng(5)
    query, key = rng.normal(size=(8, 64)), rng.normal(size=(8, 64))
    largest = [
        explain(query=query, key=key, value=np.eye(8), scale=scale)["weights"]["A_i"].max(-1).mean()
        for scale in (1.0, None, 1 / 64)
    ]
    assert largest[0] > 0.8 > largest[1] > 0.3 > largest[2] > 1 / 8
