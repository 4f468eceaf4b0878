"""A call as data: its statistics, its uniform twin, and the part of it that belongs to one sequence."""

import numpy as np
import pytest

from headwise.compute.request import AuxRequest
from headwise.inspect.call.call import AttentionCall
from tests.inspect.zoo import visible_of_call, weights_of_call


def call_of(n_q=7, n_k=9, kind="self", batch=2, **options):
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((batch, 4, n_q, 5)), rng.standard_normal((batch, 2, n_k, 5))
    value, output = rng.standard_normal((batch, 2, n_k, 3)), rng.standard_normal((batch, 4, n_q, 3))
    return AttentionCall(
        layer=0, name="x", kind=kind, query=query, key=key, value=value, output=output, options=options
    )


MASK = np.random.default_rng(1).random((2, 1, 7, 9)) < 0.8
IDS = (np.array([[0] * 7, [-2, -2, 0, 0, 0, 0, 0]]), np.array([[0] * 9, [-1, -1, *[0] * 7]]))
CASES = {
    "causal": {"is_causal": True, "query_offset": 2},
    "window": {"window_size": (3, 0), "query_offset": 2},
    "segments": {"segment_ids": IDS, "query_offset": 2},
    "mask": {"attn_mask": MASK, "query_offset": 2},
    "bias of all heads": {"attn_bias": np.where(MASK[:, :, :1], 0.5, -np.inf), "query_offset": 2},
    "bias per head": {"attn_bias": np.random.default_rng(2).standard_normal((1, 4, 7, 9)), "query_offset": 2},
    "sinks": {"sinks": np.arange(4.0), "softcap": 3.0, "scale": 0.9, "query_offset": 2},
}


@pytest.mark.parametrize("name", CASES)
def test_statistics_uniform_and_parts(name):
    call = call_of(**CASES[name])
    weights, visible = weights_of_call(call), visible_of_call(call)
    request = AuxRequest(max_weight=True)
    rows = visible.any(-1)
    assert np.allclose(call.statistics(request).max_weight[rows], weights.max(-1)[rows], atol=1e-12)
    equal = np.nan_to_num(call.uniform().statistics(request).max_weight)
    count = np.maximum(visible.sum(-1), 1)
    assert np.allclose(np.broadcast_to(equal, rows.shape), np.where(rows, 1 / count, 0), atol=1e-12)
    for sequence in (0, 1):
        for queries, keys in ((None, None), ((2, 7), (2, 9)), ((0, 5), None)):
            part = call.cut(sequence, queries, keys)
            (a, z), (b, y) = queries or (0, 7), keys or (0, 9)
            expected = visible[sequence : sequence + 1, :, a:z, b:y]
            assert np.array_equal(visible_of_call(part), expected)
            assert part.value.shape[2] == y - b and part.output.shape[2] == z - a
            assert part.query.base is not None  # a view


def test_cutting_the_padding_off_leaves_plain_attention():
    call = call_of(7, 7, segment_ids=(IDS[0], np.where(IDS[0] == -2, -1, 0)), query_offset=0, is_causal=True)
    assert call.cut(1, (2, 7), (2, 7)).options == {"query_offset": 0, "is_causal": True}
    assert "segment_ids" in call.cut(1).options and "segment_ids" not in call.cut(0).options


def test_cross_attention_has_no_offset():
    call = call_of(kind="cross")
    assert "query_offset" not in call.cut(1, (0, 3), (2, 9)).options
    assert call.cut(0).query.shape[0] == 1 and call_of(batch=1).cut(0).options == {}


def test_causality_may_be_said_by_a_window():
    assert call_of(window_size=(3, 0)).is_causal and not call_of(window_size=(3, 1)).is_causal
    assert not call_of().is_causal and call_of().scale == pytest.approx(5**-0.5)
