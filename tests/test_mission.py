"""The worked examples and exercises that headwise is there for, with their exact numbers."""

import math

import numpy as np
import pytest

from headwise import AuxRequest, attention, multi_head_attention
from headwise.reference import reference_attention

EXACT = 1e-15


def softmax_of(scores, values):
    """Weights and output of one query with given scores: keys are the axes, the query holds the scores."""
    scores, values = np.array([scores], float), np.array(values, float)
    keys = np.eye(scores.shape[1])
    output, aux = attention(
        scores, keys, values, scale=1.0, return_aux=AuxRequest(argmax=True, max_weight=True)
    )
    weights = attention(scores, keys, keys, scale=1.0)
    np.testing.assert_allclose(
        reference_attention(scores, keys, values, scale=1.0)[0], output, rtol=EXACT, atol=EXACT
    )
    return weights[0], output[0], aux


def test_a_one_head():
    query = key = np.eye(2)  # so that query @ key.T is the identity
    value = np.array([[2.0, 0.0], [0.0, 4.0]])
    weights = attention(query, key, np.eye(2))
    np.testing.assert_allclose(weights, [[0.669762, 0.330238], [0.330238, 0.669762]], rtol=0, atol=5e-7)
    output = attention(query, key, value)
    np.testing.assert_allclose(output, [[1.339523, 1.320954], [0.660477, 2.679046]], rtol=0, atol=5e-7)
    near = 1 / (1 + math.exp(-1 / math.sqrt(2)))
    np.testing.assert_allclose(output, [[2 * near, 4 * (1 - near)], [2 * (1 - near), 4 * near]], rtol=EXACT)


def test_b_split_and_join_again():
    select = np.eye(4)
    result = multi_head_attention(
        np.array([[1.0, 2.0, 3.0, 4.0]]), w_q=select, w_k=select, w_v=select, w_o=select, num_heads=2
    )
    np.testing.assert_array_equal(result, [[1.0, 2.0, 3.0, 4.0]])


def test_c_equal_scores_average():
    weights, output, _ = softmax_of([2, 2, 2], [[10], [20], [30]])
    np.testing.assert_allclose(weights, [1 / 3] * 3, rtol=EXACT)
    np.testing.assert_allclose(output, [20.0], rtol=EXACT)


def test_d_one_huge_score_copies():
    weights, output, _ = softmax_of([0, 0, 20], [[10], [20], [30]])
    assert weights[2] == pytest.approx(0.9999999958776928, rel=1e-15)
    assert output[0] == pytest.approx(29.999999938165395, rel=1e-15)


def test_d_figure_weight_climbs_to_one_with_the_gap():
    curve = [softmax_of([0, 0, gap], np.eye(3))[0][2] for gap in range(21)]
    np.testing.assert_allclose(curve, [1 / (1 + 2 * math.exp(-gap)) for gap in range(21)], rtol=EXACT)
    assert curve[0] == pytest.approx(1 / 3)
    assert all(np.diff(curve) > 0)
    assert 1 - curve[20] == pytest.approx(4.1223e-9, rel=1e-4)


def test_e_negative_score():
    weights, output, _ = softmax_of([-3, 1], [[100], [200]])
    np.testing.assert_allclose(weights, [0.017986, 0.982014], rtol=0, atol=5e-7)
    np.testing.assert_allclose(output, [198.201379], rtol=0, atol=5e-7)
    np.testing.assert_allclose(weights[1], 1 / (1 + math.exp(-4)), rtol=EXACT)


def test_f_why_scores_are_scaled():
    query = np.ones((1, 64))
    key = np.concatenate([np.full((1, 64), 40 / 64), np.full((1, 64), 8 / 64)])  # raw scores 40 and 8
    unscaled, scaled = (attention(query, key, np.eye(2), scale=scale) for scale in (1.0, None))
    assert 1 - unscaled[0, 0] == pytest.approx(1.2664e-14, abs=2e-16)
    assert unscaled[0, 1] == pytest.approx(math.exp(-32), rel=1e-13)
    assert scaled[0, 0] == pytest.approx(0.982014, abs=5e-7)
    assert scaled[0, 0] == pytest.approx(1 / (1 + math.exp(-4)), rel=EXACT)


def test_g_co_reference():
    words = ["cat", "sat", "on", "mat", "because", "it"]
    weights, _, aux = softmax_of([3.0, 0.5, 0.2, 1.0, 0.3, 0.6], np.eye(6))
    assert weights[0] == pytest.approx(0.696304, abs=5e-7)
    assert words[aux.argmax[0]] == "cat"
    assert aux.max_weight[0] == pytest.approx(weights[0], rel=EXACT)


def test_h_cross_attention_shapes():
    rng = np.random.default_rng(0)
    x, context = rng.normal(size=(3, 512)), rng.normal(size=(5, 512))
    w = {name: rng.normal(size=(512, 512)) / 22.6 for name in ("w_q", "w_k", "w_v", "w_o")}
    request = AuxRequest(top_k=5, received=True)
    result, aux = multi_head_attention(x, context, **w, num_heads=8, return_aux=request)
    assert result.shape == (3, 512)
    assert aux.top_k_weight.shape == (8, 3, 5)  # 3 x 5 weights in each of 8 heads
    np.testing.assert_allclose(aux.top_k_weight.sum(-1), 1, rtol=1e-14)
    assert aux.received.shape == (8, 5)
    query, key = ((y @ w[name]).reshape(-1, 8, 64) for y, name in ((x, "w_q"), (context, "w_k")))
    assert (query[:, 0].shape, key[:, 0].shape) == ((3, 64), (5, 64))


def test_i_parameters():
    w = {name: np.zeros((512, 8 * 64)) for name in ("w_q", "w_k", "w_v")}
    w["w_o"] = np.zeros((8 * 64, 512))
    multi_head_attention(np.zeros((1, 512)), **w, num_heads=8)  # these are the sizes that the block takes
    assert w["w_q"][:, :64].size == 32768
    assert sum(w[name].size for name in ("w_q", "w_k", "w_v")) == 786432
    assert w["w_o"].size == 262144
    assert sum(weight.size for weight in w.values()) == 1048576 == 4 * 512**2 == 2**20


def test_exercise_2_3():
    weights, _, _ = softmax_of([4, 2, 5], np.eye(3))
    np.testing.assert_array_equal(weights.round(4), [0.2595, 0.0351, 0.7054])
    assert weights[2] / weights[0] == pytest.approx(math.e, rel=1e-14)  # a gap of 1 is a factor e


def test_exercise_4_2():
    query = np.array([[1.0, 0.0]])
    key = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0]])
    value = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]])
    last = {"is_causal": True, "causal_alignment": "lower_right"}
    weights = attention(query, key, np.eye(4), **last)
    np.testing.assert_array_equal(weights.round(4), [[0.2212, 0.1091, 0.2212, 0.4486]])
    output = attention(query, key, value, **last)
    np.testing.assert_allclose(output, [[0.884724, 2.012437]], rtol=0, atol=5e-7)
    np.testing.assert_array_equal(attention(query, key, value, is_causal=True, query_offset=3), output)


@pytest.mark.parametrize("seed", range(5))
def test_exercise_5_2(seed):
    rng = np.random.default_rng(seed)
    query, key, row = rng.normal(size=(4, 6, 5)), rng.normal(size=(4, 9, 5)), rng.normal(size=3)
    output = attention(query, key, np.broadcast_to(row, (4, 9, 3)))
    np.testing.assert_allclose(output, np.broadcast_to(row, (4, 6, 3)), rtol=1e-15)


def test_six_heads_do_not_divide_512():
    square = np.eye(512)
    with pytest.raises(ValueError, match="4, 8"):
        multi_head_attention(np.zeros((2, 512)), w_q=square, w_k=square, w_v=square, w_o=square, num_heads=6)
