"""The compiled kernel under every option, alone and all together, on every instruction set that runs here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import AuxRequest, attention
from tests.compare import seen_by
from tests.kernel.kernel_checks import (
    EVERY_REQUEST,
    ISAS,
    POSITIONLESS,
    SHAPES,
    VISIBILITY,
    bit_test_arrays,
    bits,
    check,
    requests,
    running_on,
)
from tests.strategies import EDGES, cases, random_rules


def with_rules(case, seed, lead, likely):
    """The case under a random composition of every other option."""
    n_q, n_k = case.query.shape[-2], case.key.shape[-2]
    rules = random_rules(
        np.random.default_rng(seed), lead, case.query.shape[-3], n_q, n_k, case.query.dtype, likely
    )
    return {"query_offset": 0, **case.options, **rules}


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=120)
@given(case=cases(), data=st.data(), seed=st.integers(0, 2**32 - 1), likely=st.sampled_from([0.15, 0.4, 0.8]))
def test_random_compositions_of_all_options(isa, case, data, seed, likely):
    options = with_rules(case, seed, case.query.shape[:-3], likely)
    request = requests(data.draw, case.query.shape[-2], case.key.shape[-2])
    check(isa, case.query, case.key, case.value, request=request, **options)


@pytest.mark.parametrize("isa", ISAS)
@given(
    case=cases(sizes=EDGES, masks=("none", "boolean", "additive_inf")),
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
    likely=st.sampled_from([0.15, 0.4]),
)
def test_random_compositions_around_tile_edges(isa, case, data, seed, likely):
    one = (0,) * (case.query.ndim - 3)
    mask = case.options["attn_mask"]
    case.query, case.key, case.value = case.query[one], case.key[one], case.value[one]
    case.options["attn_mask"] = mask[one] if mask is not None and mask.ndim > 3 else mask
    options = with_rules(case, seed, (), likely)
    request = requests(data.draw, case.query.shape[-2], case.key.shape[-2])
    check(isa, case.query, case.key, case.value, request=request, **options)


def every_rule(batch, heads, n_q, n_k, dtype):
    """Each option alone, and all of them together."""
    rng = np.random.default_rng(20)
    rules = {
        "attn_bias": rng.normal(size=(n_q, n_k)).astype(dtype),
        "query_offset": rng.integers(0, n_k, batch),
        "window_size": (100, 30),
        "query_lengths": rng.integers(n_q // 2, n_q, batch),
        "kv_lengths": rng.integers(n_k // 2, n_k, batch),
        "segment_ids": (np.arange(n_q) // 90, np.arange(n_k) // 70),
        "softcap": 3.0,
        "alibi_slopes": 0.1 / (1 + np.arange(heads)),
        "sinks": rng.normal(size=(heads, 2)),
        "head_mask": rng.normal(size=heads),
    }
    dropout = {"dropout_p": 0.3, "rng": 7}
    yield from ({name: rule} for name, rule in rules.items())
    yield dropout
    yield rules | dropout


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_bits_under_every_option(isa, dtype, shape):
    query, key, value = bit_test_arrays(shape, dtype)
    batch, heads, _, n_q = SHAPES[shape]
    mask = np.random.default_rng(21).random((n_q, 150)) < 0.8
    for rules in every_rule(batch, heads, n_q, 150, dtype):
        options = {"query_offset": 2, "is_causal": True, **rules}
        seen, statistics = set(), set()
        with running_on(isa):
            for name in ("none", "lse", "top_k", "received", "all"):
                for num_threads in (1, 2, 7):
                    request = EVERY_REQUEST[name]
                    answer = attention(
                        query, key, value, mask, return_aux=request, num_threads=num_threads, **options
                    )
                    seen.add(bits(answer if request is None else answer[0]))
                    if name == "all":
                        statistics.add(b"".join(map(bits, answer[1].asked().values())))
        assert (len(seen), len(statistics)) == (1, 1), rules.keys()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poison_under_every_option(isa, poison, dtype):
    rng = np.random.default_rng(22)
    batch, heads, kv_heads, n_q, n_k = 2, 6, 2, 53, 101
    query, key, value = (
        rng.normal(size=(batch, h, n, 5)).astype(dtype)
        for h, n in ((heads, n_q), (kv_heads, n_k), (kv_heads, n_k))
    )
    for rules in every_rule(batch, heads, n_q, n_k, dtype):
        options = {"query_offset": 20, "is_causal": True, **rules}
        told = {name: option for name, option in options.items() if name in VISIBILITY}
        visible, _ = seen_by(query, key, None, **told)
        by_kv_head = visible.reshape(batch, kv_heads, -1, n_k).any(-2)
        spoiled_key, spoiled_value = key.copy(), value.copy()
        spoiled_key[~by_kv_head], spoiled_value[~by_kv_head] = poison, poison
        request = AuxRequest(**POSITIONLESS, distance=True, top_k=3, pooled=16, classes=np.arange(n_k) % 3)
        check(isa, query, spoiled_key, spoiled_value, None, request, **options)


@pytest.mark.parametrize("isa", ISAS)
def test_dropout_drops_the_told_share_and_keeps_the_mean(isa):
    query, key = np.zeros((2, 4, 1000, 1), np.float32), np.zeros((2, 4, 100, 1), np.float32)
    value = np.ones((2, 4, 100, 1), np.float32)
    for p in (0.1, 0.5, 0.9, 1.0):
        with running_on(isa):
            output = attention(query, key, value, dropout_p=p, rng=3)
        expected_mean, expected_variance = (1.0, p / (1 - p) / 100) if p < 1 else (0.0, 0.0)
        assert abs(output.mean() - expected_mean) < 0.01
        assert abs(output.var() - expected_variance) <= 0.05 * expected_variance
    with running_on(isa):
        one, again, other = (attention(query, key, value, dropout_p=0.5, rng=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.5
    assert len({bits(one[b, h]) for b, h in np.ndindex(2, 4)}) == 8  # every head drops its own


@pytest.mark.parametrize("isa", ISAS)
def test_rows_that_see_only_sinks(isa):
    rng = np.random.default_rng(23)
    query, key, value = (rng.normal(size=(1, 2, 9, 3)).astype(np.float32) for _ in range(3))
    sinks = np.array([[1.0, -2.0], [40.0, 0.5]])
    request = AuxRequest(**POSITIONLESS, top_k=2, distance=True)
    with running_on(isa):
        output, aux = attention(
            query, key, value, sinks=sinks, is_causal=True, query_offset=-4, return_aux=request
        )
    np.testing.assert_array_equal(output[:, :, :4], 0)
    expected = np.log(np.exp(sinks).sum(-1))
    np.testing.assert_allclose(aux.lse[0, :, :4], np.repeat(expected[:, None], 4, 1), rtol=1e-6)
    assert np.isnan(aux.sink_logit_mass[:, :, :4]).all() and (aux.argmax[:, :, :4] == -1).all()
    assert (aux.sink_logit_mass[:, :, 4:] > 0).all()
    check(isa, query, key, value, request=request, sinks=sinks, is_causal=True, query_offset=-4)


@pytest.mark.parametrize("isa", ISAS)
def test_an_extra_key_of_zeros_is_a_sink_logit_of_zero(isa):
    rng = np.random.default_rng(24)
    query, key, value = (rng.normal(size=(2, 40, 4)) for _ in range(3))
    more = [np.concatenate([x, np.zeros((2, 1, 4))], axis=1) for x in (key, value)]
    with running_on(isa):
        output = attention(query, key, value, sinks=np.zeros(2))
        np.testing.assert_allclose(output, attention(query, *more), rtol=0, atol=1e-14)
