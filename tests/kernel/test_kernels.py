"""The compiled kernel, every instruction set that runs here, against the float64 specification.

The inputs are the ones that tell kernels apart: sizes around the edges of vectors and tiles, axes that all
differ, odd layouts, rows that see nothing, huge scores, NaN and infinity where nobody may look.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import headwise._core as _core
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise import AuxRequest, attention
from headwise.compute import planning
from headwise.compute.functional import attention_statistics
from headwise.reference import reference_attention
from headwise.reference.statistics import dense_statistics
from tests.compare import seen_by
from tests.kernel.kernel_checks import (
    EVERY_REQUEST,
    ISAS,
    POSITIONLESS,
    SHAPES,
    bit_test_arrays,
    bits,
    check,
    requests,
    running_on,
)
from tests.strategies import EDGES, MASKS, cases, random_mask


@pytest.mark.parametrize("isa", ISAS)
@given(case=cases(), data=st.data())
def test_random_problems(isa, case, data):
    request = requests(data.draw, case.query.shape[-2], case.key.shape[-2])
    case.options.setdefault("query_offset", 0)
    check(isa, case.query, case.key, case.value, request=request, **case.options)


@pytest.mark.parametrize("isa", ISAS)
@given(case=cases(sizes=EDGES, masks=("none", "boolean", "additive_inf")), data=st.data())
def test_random_problems_around_tile_edges(isa, case, data):
    one = (0,) * (case.query.ndim - 3)  # one batch entry is enough: the specification is slow
    query, key, value = case.query[one], case.key[one], case.value[one]
    options = {"query_offset": 0, **case.options}
    mask = options.pop("attn_mask")
    mask = mask[one] if mask is not None and mask.ndim == case.query.ndim else mask
    check(isa, query, key, value, mask, requests(data.draw, query.shape[-2], key.shape[-2]), **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize("isa", ISAS)
def test_every_edge(isa, n, is_causal, dtype):
    rng = np.random.default_rng(n)
    query, key, value = (
        rng.normal(size=(heads, n, d)).astype(dtype) for heads, d in ((2, 5), (1, 5), (1, 3))
    )
    ids = rng.integers(0, 9, n)
    request = AuxRequest(**POSITIONLESS, distance=True, relative=(-1, 0, 1), matches=ids, top_k=4, pooled=5)
    check(isa, query, key, value, request=request, is_causal=is_causal, query_offset=0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_q, n_k", [(1, 200), (200, 1), (1, 1), (3, 129), (129, 3), (25, 66)])
def test_long_and_flat(isa, n_q, n_k):
    rng = np.random.default_rng(n_q)
    query, key, value = (rng.normal(size=(3, n, d)) for n, d in ((n_q, 8), (n_k, 8), (n_k, 4)))
    for dtype in (np.float32, np.float64):
        arrays = (query.astype(dtype), key.astype(dtype), value.astype(dtype))
        check(isa, *arrays, request=AuxRequest(**POSITIONLESS, top_k=3, pooled=64))
        for offset in (0, n_k - n_q, -n_q, n_k + 5):
            request = AuxRequest(**POSITIONLESS, distance=True, relative=(-2, 0))
            check(isa, *arrays, request=request, is_causal=True, query_offset=offset)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
def test_received_over_so_many_keys_that_they_are_read_twice(isa, dtype, is_causal):
    n_k = _core.largest_strip // (_core.tile(isa, np.dtype(dtype).name)[1] * np.dtype(dtype).itemsize) + 77
    rng = np.random.default_rng(19)
    query, key, value = (rng.normal(size=(1, n, d)).astype(dtype) for n, d in ((7, 2), (n_k, 2), (n_k, 1)))
    mask = rng.random((7, n_k)) < 0.9
    mask[3] = False
    mask[:, 50] = False
    key[0, 50] = np.nan
    request = AuxRequest(received=True)
    with running_on(isa):
        assert planning.plan(query, key, value, return_aux=request).second_pass == ("received",)
    check(isa, query, key, value, mask, request, is_causal=is_causal, query_offset=n_k - 9)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("d_k, d_v", [(1, 1), (64, 64), (80, 48), (33, 7), (7, 130), (256, 16)])
def test_widths(isa, d_k, d_v):
    rng = np.random.default_rng(d_k)
    query, key, value = (
        rng.normal(size=(1, n, d)).astype(np.float32) for n, d in ((50, d_k), (67, d_k), (67, d_v))
    )
    check(isa, query, key, value, request=AuxRequest(**POSITIONLESS))


def frobenius(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype, allowed", [(np.float32, 1e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("n, d", [(128, 64), (1024, 64), (300, 128)])
def test_accuracy_on_normal_inputs(isa, dtype, allowed, is_causal, n, d):
    rng = np.random.default_rng(7)
    query, key, value = (rng.normal(size=(2, n, d)).astype(dtype) for _ in range(3))
    expected, _, _ = reference_attention(query, key, value, is_causal=is_causal)
    with running_on(isa):
        output = attention(query, key, value, is_causal=is_causal)
    assert frobenius(output, expected) <= allowed


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype, allowed", [(np.float32, 5e-7), (np.float64, 1e-15)])
def test_weights_of_a_row_sum_to_one(isa, dtype, allowed):
    rng = np.random.default_rng(8)
    query, key = (rng.normal(size=(2, 2000, 16)).astype(dtype) for _ in range(2))
    with running_on(isa):
        output = attention(query[:, :100], key, np.ones((2, 2000, 1), dtype))
    np.testing.assert_allclose(output, 1, rtol=0, atol=allowed)


@pytest.mark.parametrize("isa", ISAS)
def test_accuracy_of_long_rows(isa):
    rng = np.random.default_rng(9)
    query, key, value = (rng.normal(size=(1, n, 64)).astype(np.float32) for n in (24, 16384, 16384))
    expected, _, _ = reference_attention(query, key, value)
    with running_on(isa):
        assert frobenius(attention(query, key, value), expected) <= 1e-6


def exact_scores(largest, n_q, n_k, dtype):
    """Query and key whose scores are exact in any order of additions: whole numbers, up to +-largest."""
    rng = np.random.default_rng(10)
    scores = rng.integers(-largest, largest + 1, size=(n_q, n_k))
    return np.eye(n_k, dtype=dtype)[None], scores.astype(dtype)[None]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [30, 1000, 100_000])
@pytest.mark.parametrize("shift", [0, 100_000, -245_000])
def test_huge_scores(isa, dtype, largest, shift):
    key, query = exact_scores(largest, 37, 70, dtype)
    query = query + dtype(shift)
    value = np.random.default_rng(11).normal(size=(1, 70, 3)).astype(dtype)
    request = AuxRequest(
        lse=True, max_weight=True, argmax=True, entropy=True, top_k=3, received=True, pooled=16
    )
    with running_on(isa):
        output, aux = attention(query, key, value, scale=1.0, return_aux=request)
    expected, weights, lse = reference_attention(query, key, value, scale=1.0)
    tolerance = {np.float32: 3e-6, np.float64: 1e-14}[dtype]
    np.testing.assert_allclose(output, expected, rtol=0, atol=tolerance * 3)
    answers = dense_statistics(weights, np.ones(weights.shape, bool), request, lse=lse)
    np.testing.assert_allclose(aux.lse, lse, rtol=np.finfo(dtype).eps, atol=tolerance)
    np.testing.assert_array_equal(aux.argmax, answers["argmax"])
    for name in ("max_weight", "entropy", "top_k_weight", "pooled"):
        np.testing.assert_allclose(
            getattr(aux, name), answers[name], rtol=0, atol=tolerance * 10, err_msg=name
        )
    # The second pass starts from the rounded lse, whose last place is worth 1/64 near 2.5e5 in float32.
    rounding = np.finfo(dtype).eps * np.abs(lse).max()
    np.testing.assert_allclose(
        aux.received, answers["received"], rtol=rounding + tolerance, atol=tolerance * 40
    )


@pytest.mark.parametrize("isa", ISAS)
def test_first_tiles_hidden_and_all_scores_negative(isa):
    """A running maximum that starts too high, or sticks at 0 after a hidden tile, ends in rows of zeros."""
    rng = np.random.default_rng(12)
    query = np.full((1, 60, 4), 10.0, np.float32)
    key = (-5.0 + rng.normal(size=(1, 200, 4))).astype(np.float32)  # scores near -100
    value = rng.normal(size=(1, 200, 3)).astype(np.float32)
    mask = np.zeros((60, 200), bool)
    mask[:, 130:] = True
    mask[:30, 64:] = True
    request = AuxRequest(**POSITIONLESS, pooled=64)
    check(isa, query, key, value, mask, request)
    bias = np.where(mask, np.float32(-200.0), np.float32(-np.inf))
    check(isa, query, key, value, bias, request)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", MASKS[1:])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_poison_in_hidden_keys_and_values(isa, poison, kind, dtype):
    rng = np.random.default_rng(13)
    n_q, n_k = 53, 101
    query, key, value = (
        rng.normal(size=(2, h, n, d)).astype(dtype) for h, n, d in ((6, n_q, 5), (2, n_k, 5), (2, n_k, 3))
    )
    mask = random_mask(rng, kind, (2,), 6, n_q, n_k, dtype)
    for offset in (n_k - n_q, -20):
        visible, _ = seen_by(query, key, mask, True, offset)
        by_kv_head = visible.reshape(2, 2, 3 * n_q, n_k).any(-2)  # keys that some row of the group sees
        spoiled_key, spoiled_value = key.copy(), value.copy()
        spoiled_key[~by_kv_head], spoiled_value[~by_kv_head] = poison, poison
        assert offset >= 0 or not by_kv_head.all()
        request = AuxRequest(**POSITIONLESS, distance=True, top_k=3, pooled=16, classes=np.arange(n_k) % 3)
        check(isa, query, spoiled_key, spoiled_value, mask, request, is_causal=True, query_offset=offset)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_poison_in_values_that_only_some_rows_see(isa, poison):
    rng = np.random.default_rng(14)
    query, key, value = (rng.normal(size=(1, 130, d)).astype(np.float32) for d in (4, 4, 3))
    value[0, 100, 1] = poison
    with running_on(isa):
        output = attention(query, key, value, is_causal=True)
    expected, _, _ = reference_attention(query, key, value, is_causal=True)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
    assert np.isfinite(output[0, :100]).all()
    assert not np.isfinite(output[0, 100:, 1]).any()
    assert np.isfinite(output[0, :, [0, 2]]).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_q, n_k, batch", [(0, 5, 2), (5, 0, 2), (0, 0, 2), (5, 5, 0), (1, 0, 1)])
def test_empty_axes(isa, n_q, n_k, batch):
    query, key, value = (np.ones((batch, 2, n, d), np.float32) for n, d in ((n_q, 4), (n_k, 4), (n_k, 3)))
    request = AuxRequest(
        **POSITIONLESS,
        distance=True,
        top_k=2,
        relative=(0, 1),
        matches=(np.zeros(n_k, int), np.zeros(n_q, int)),
        classes=np.zeros(n_k, int),
        pooled=2,
    )
    for is_causal in (False, True):
        check(isa, query, key, value, None, request, is_causal=is_causal, query_offset=0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_bits_do_not_depend_on_statistics_or_threads(isa, dtype, is_causal, shape):
    query, key, value = bit_test_arrays(shape, dtype)
    n_q = query.shape[-2]
    rng = np.random.default_rng(16)
    for mask in (None, rng.random((n_q, 150)) < 0.8, rng.normal(size=(n_q, 150)).astype(dtype)):
        seen = set()
        with running_on(isa):
            for request in EVERY_REQUEST.values():
                for num_threads in (1, 2, 7):
                    options = {"is_causal": is_causal, "query_offset": 2, "num_threads": num_threads}
                    answer = attention(query, key, value, mask, return_aux=request, **options)
                    seen.add(bits(answer if request is None else answer[0]))
        assert len(seen) == 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", list(EVERY_REQUEST)[1:])
def test_statistics_bits_do_not_depend_on_threads(isa, shape, name):
    query, key, _ = bit_test_arrays(shape, np.float32)
    options = {"return_aux": EVERY_REQUEST[name], "query_offset": 2}
    with running_on(isa):
        expected = attention_statistics(query, key, num_threads=1, **options).asked()
        for num_threads in (2, 3, 7):
            found = attention_statistics(query, key, num_threads=num_threads, **options)
            for field, answer in expected.items():
                assert bits(getattr(found, field)) == bits(answer), field


@pytest.mark.parametrize("isa", ISAS)
def test_bits_repeat(isa):
    rng = np.random.default_rng(17)
    arrays = [rng.normal(size=(3, 200, 16)).astype(np.float32) for _ in range(3)]
    with running_on(isa):
        assert len({bits(attention(*arrays, num_threads=2)) for _ in range(10)}) == 1


@pytest.mark.parametrize("isa", ISAS)
@given(case=cases(layouts=("heads_inside", "transposed", "reversed", "every_second", "read_only")))
def test_layout_does_not_change_the_bits(isa, case):
    plain = [np.ascontiguousarray(array) for array in (case.query, case.key, case.value)]
    mask = case.options["attn_mask"]
    if mask is not None and mask.ndim > 1:
        case.options["attn_mask"] = np.asfortranarray(mask)
    request = AuxRequest(lse=True, received=True)
    with running_on(isa):
        output, aux = attention(case.query, case.key, case.value, return_aux=request, **case.options)
        expected, expected_aux = attention(*plain, return_aux=request, **{**case.options, "attn_mask": mask})
    np.testing.assert_array_equal(output, expected)
    np.testing.assert_array_equal(aux.lse, expected_aux.lse)
    np.testing.assert_array_equal(aux.received, expected_aux.received)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("n_q", [127, 128, 129])
def test_token_matches_across_the_edge_of_a_tile(isa, n_q, is_causal):
    # The last query stands right before, at, or behind the first key of the second tile.
    rng = np.random.default_rng(21)
    query, key, value = (rng.normal(size=(1, 2, n, 4)).astype(np.float32) for n in (n_q, 200, 200))
    for tokens in (np.zeros(200, int), rng.integers(0, 3, 200) * 1024):
        request = AuxRequest(matches=(tokens[None], tokens[None, :n_q]))
        check(isa, query, key, value, request=request, is_causal=is_causal, query_offset=0)


GAPS = {
    "heads inside": lambda x: np.ascontiguousarray(x.swapaxes(-2, -3)).swapaxes(-2, -3),
    "columns apart": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "backwards": lambda x: np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
    "wider rows": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "one for the batch": lambda x: np.broadcast_to(x[:1], x.shape),
    "one for the heads": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "heads inside, one for the batch": lambda x: np.broadcast_to(GAPS["heads inside"](x[:1]), x.shape),
    "wider rows, one for the heads": lambda x: np.broadcast_to(GAPS["wider rows"](x[:, :1]), x.shape),
    "one row for all keys": lambda x: np.broadcast_to(x[..., :1, :], x.shape),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gap", GAPS)
def test_rows_that_lie_apart_under_many_queries(isa, gap, dtype):
    # From 256 queries on the kernel reads a copy with contiguous rows.
    rng = np.random.default_rng(19)
    query = rng.normal(size=(2, 4, 260, 5)).astype(dtype)
    key, value = (GAPS[gap](rng.normal(size=(2, 2, 140, d)).astype(dtype)) for d in (5, 3))
    request = AuxRequest(lse=True, received=True)
    options = dict(attn_mask=rng.random((2, 1, 1, 140)) < 0.8, window_size=(100, 100), query_offset=0)
    with running_on(isa):
        for threads in (1, 2):
            output, aux = attention(query, key, value, return_aux=request, num_threads=threads, **options)
            plain = [np.ascontiguousarray(array) for array in (key, value)]
            expected, expected_aux = attention(
                query, *plain, return_aux=request, num_threads=threads, **options
            )
            np.testing.assert_array_equal(output, expected)
            np.testing.assert_array_equal(aux.lse, expected_aux.lse)
            np.testing.assert_array_equal(aux.received, expected_aux.received)
    check(isa, query, key, value, request=request, **options)


@pytest.mark.parametrize("isa", ISAS)
def test_rows_that_lie_apart_in_several_threads_at_once(isa):
    # One call has the memory that is kept for the copies, the others their own.
    rng = np.random.default_rng(20)
    problems = [
        [GAPS["heads inside"](rng.normal(size=(1, 4, n, 8)).astype(np.float32)) for _ in range(3)]
        for n in (300, 900, 600, 300)
    ]
    with running_on(isa):
        expected = [attention(*(np.ascontiguousarray(x) for x in arrays)) for arrays in problems]
        with ThreadPoolExecutor(4) as pool:
            for _ in range(5):
                found = list(pool.map(lambda arrays: attention(*arrays), problems))
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("isa", ISAS)
def test_axes_of_length_one_with_senseless_strides(isa):
    rng = np.random.default_rng(18)
    query, key, value = (rng.normal(size=(1, 5, d)).astype(np.float32) for d in (1, 1, 1))
    expected = attention(query, key, value)
    odd = [
        np.lib.stride_tricks.as_strided(x, x.shape, (-4096, x.strides[1], 12345 * 4))
        for x in (query, key, value)
    ]
    with running_on(isa):
        np.testing.assert_allclose(attention(*odd), expected, rtol=1e-6)


MEMORY_PROBE = """
import resource, sys
import numpy as np
from headwise import AuxRequest, attention
n = 16384
rng = np.random.default_rng(0)
query, key, value = (rng.normal(size=(1, n, 8)).astype(np.float32) for _ in range(3))
mask = np.ones(n, bool)
mask[-100:] = False
request = AuxRequest(lse=True, max_weight=True, argmax=True, entropy=True, distance=True, top_k=4,
    sink_mass=2, relative=(-1, 0), matches=rng.integers(0, 500, n), classes=np.arange(n) % 3, received=True,
    pooled=128)
attention(query[:, :64], key[:, :64], value[:, :64])
def peak():
    # Linux hands ru_maxrss down from the parent process, so there the kernel's own high-water mark is read.
    if sys.platform == "linux":
        with open("/proc/self/status") as status:
            return 1024 * int(status.read().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
{call}
print(peak() - before)
"""
BIG = 16384 * 16384  # one byte for each pair of a query and a key


def peak_growth(call):
    """Bytes by which a fresh process grows during ``call``."""
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY_PROBE.replace("{call}", call)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(answer.stdout)


@pytest.mark.parametrize(
    "call",
    [
        "attention(query, key, value, is_causal=True)",
        "attention(query, key, value, mask)",
        "attention(query, key, value, window_size=(16, 0), segment_ids=np.arange(n) // 100, sinks=[1.0])",
        "attention(query, key, value, mask, is_causal=True, return_aux=request)",
    ],
    ids=["causal", "mask", "window", "every statistic"],
)
def test_no_array_of_queries_by_keys(call):
    assert peak_growth(call) < BIG / 4


def test_the_memory_probe_can_fail():
    assert peak_growth("held = np.ones((n, n), bool)") > BIG / 2


@pytest.mark.parametrize(
    "options, answers, message",
    [
        ({"softcup": 2.0}, {}, "an option that the kernel does not know"),
        ({}, {"entropie": np.empty((2, 5))}, "an answer that the kernel does not give"),
        ({"softcap": "2"}, {}, "softcap"),
        ({"query_segments": np.zeros(5, int)}, {}, "key_segments"),
        ({"classes": np.full(5, 3), "class_count": 3}, {}, "a class beyond class_count"),
        ({}, {"entropy": np.empty((2, 4))}, "entropy"),
        ({}, {"argmax": np.empty((2, 5))}, "argmax"),
        ({"top_k": 3}, {"top_k_index": np.empty((2, 5, 3), int)}, "top_k needs its index and its weight"),
        ({"relative": np.zeros(1, int)}, {}, "relative needs its masses"),
        ({}, {"pooled": np.empty((2, 0, 0))}, "pooled needs a block size"),
        ({"class_count": 1}, {}, "class_count needs classes and their masses"),
        ({}, {"distance_histogram": np.empty((2, 0))}, "distance_histogram needs a bucket"),
        ({}, {"duplicate": np.empty((2, 5))}, "matches need key_tokens and query_tokens"),
    ],
)
def test_records_that_do_not_fit_are_refused_before_anything_is_written(options, answers, message):
    x = np.zeros((2, 5, 4))
    isa = _core.isa_names()[-1]
    with pytest.raises(ValueError, match=f"^headwise._core: {message}$"):
        _core.attend(x, x, x, np.empty_like(x), None, 0.5, False, 0, isa, 1, options, answers)
    with pytest.raises(ValueError, match=f"^headwise._core: {message}$"):
        _core.scratch(x, x, x, None, False, isa, 1, options, answers)
