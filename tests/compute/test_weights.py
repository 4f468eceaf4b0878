"""The lazy weights against the dense ones of the specification: any index, any option, only what is asked."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from headwise import AttentionWeights, AuxRequest, attention
from headwise.compute.functional import attention_statistics
from headwise.compute.weights import matrix as weights_matrix
from headwise.errors import CapabilityError, HeadwiseError, ShapeError
from headwise.plain.numbers import binary
from headwise.reference import reference_attention, visible_and_bias
from tests.strategies import cases, random_rules

SHAPE = (2, 6, 9, 11)
AFTER = ("dropout_p", "rng", "head_mask")  # what comes after the weights


def example(dtype=np.float64):
    """Arrays of SHAPE, options that hide some keys, and the dense weights."""
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(2, 6, 9, 5)).astype(dtype), rng.normal(size=(2, 3, 11, 5)).astype(dtype)
    options = {"is_causal": True, "query_offset": [1, -2], "softcap": 2.0, "sinks": np.ones(6)}
    _, dense, _ = reference_attention(query, key, key, **options)
    return query, key, options, dense


QUERY, KEY, OPTIONS, DENSE = example()
LAZY = AttentionWeights(QUERY, KEY, **OPTIONS)


def same(found, expected):
    assert type(found) is type(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@given(cases(max_n=19), st.integers(0, 2**32 - 1))
def test_dense_weights_under_random_options(case, seed):
    query, key, value = case.query, case.key, case.value
    n_q, n_k = query.shape[-2], key.shape[-2]
    rules = random_rules(
        np.random.default_rng(seed), query.shape[:-3], query.shape[-3], n_q, n_k, query.dtype, 0.3
    )
    options = {"query_offset": 0, **case.options, **rules}
    lazy = AttentionWeights(query, key, **options)
    told = {name: option for name, option in options.items() if name not in AFTER}
    expected, weights, _ = reference_attention(query, key, value, **told)
    tolerance = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-12}[query.dtype]
    assert (lazy.shape, lazy.dtype) == (weights.shape, query.dtype)
    np.testing.assert_allclose(np.asarray(lazy), weights, rtol=0, atol=tolerance)
    np.testing.assert_allclose(lazy @ value, expected, rtol=0, atol=50 * tolerance)


@given(hypothesis_numpy.basic_indices(SHAPE, allow_newaxis=True, allow_ellipsis=True))
def test_basic_indices(index):
    same(LAZY[index], DENSE[index])


@given(hypothesis_numpy.integer_array_indices(SHAPE))
def test_index_arrays(index):
    same(LAZY[index], DENSE[index])


@given(st.data())
def test_mixed_indices(data):
    index = tuple(
        data.draw(
            st.one_of(
                st.integers(-n, n - 1),
                st.slices(n),
                st.lists(st.integers(-n, n - 1), min_size=3, max_size=3),
                st.lists(st.integers(-n, n - 1), min_size=3, max_size=3).map(np.array),
            )
        )
        for n in SHAPE[: data.draw(st.integers(1, 4))]
    )
    same(LAZY[index], DENSE[index])


@pytest.mark.parametrize(
    "index",
    [
        DENSE > 0.2,
        (slice(None), [True, False] * 3),
        (0, slice(None), [True] * 9, 3),
        (0, DENSE[0, :, :, 0] > 0.1),
        (..., np.ones(11, bool)),
        np.zeros(SHAPE, bool),
        True,
        (0, False),
        (0, 0, np.array([[1, 2], [3, -4]])),
        (None, 0, ..., None, -1),
        (..., []),
        np.ix_([0, 1], [2, 5], [8], [0, 3, 10]),
        (np.int8(1), torch.tensor([1, 2])),
        ([0, 1], slice(None), 0),
        (0, slice(None), [1, 2]),
    ],
)
def test_indices(index):
    plain = (
        tuple(entry.numpy() if isinstance(entry, torch.Tensor) else entry for entry in index)
        if isinstance(index, tuple)
        else index
    )
    same(LAZY[index], DENSE[plain])


@pytest.mark.parametrize(
    "index",
    [2, (0, 6), (0, 0, -10), (0, 0, 0, 0, 0), (..., ...), 1.0, "rows", ([0, 2],), (0, 0, [[9]]),
     np.ones((2, 5), bool), (0, [True, False]), ([0, 1], [0, 1, 2])],
)  # fmt: skip
def test_indices_that_do_not_fit(index):
    with pytest.raises(IndexError):
        DENSE[index]
    with pytest.raises(IndexError):
        LAZY[index]


def test_only_what_is_asked_is_computed(monkeypatch):
    computed = []

    def noting(problem, at, i, j, stage):
        computed.append(np.broadcast_shapes(i.shape, j.shape))
        return plain(problem, at, i, j, stage)

    from headwise.compute.weights import weights

    plain = weights.scores_at
    monkeypatch.setattr(weights, "scores_at", noting)
    n = 20_000
    x = np.random.default_rng(1).normal(size=(2, n, 4)).astype(np.float32)
    lazy = AttentionWeights(x, x)
    for index, most in [
        ((1, 7, 9), 2), ((0, 5), n + 1), ((0, slice(3), [4, 9]), 9), ((..., 3), 4 * n),
        ((0, np.arange(n), np.arange(n)), 2 * n),
    ]:  # fmt: skip
        computed.clear()
        assert lazy[index].size <= most
        assert sum(int(np.prod(shape)) for shape in computed) <= most


def test_rows_columns_and_windows():
    same(LAZY.rows(3), DENSE[:, :, [3]])
    same(LAZY.rows(3, -1), DENSE[:, :, [3, -1]])
    same(LAZY.rows(slice(2, 5)), DENSE[:, :, 2:5])
    same(LAZY.columns(0, 4), DENSE[..., [0, 4]])
    same(LAZY.columns(np.arange(11) % 2 == 0), DENSE[..., ::2])
    same(LAZY.window(slice(2, 4), range(1, 6)), DENSE[..., 2:4, 1:6])
    same(LAZY.window(2, [0, 0]), DENSE[..., 2:3, [0, 0]])
    same(
        AttentionWeights(QUERY[0, 0], KEY[0, 0]).rows(1),
        np.asarray(AttentionWeights(QUERY[0, 0], KEY[0, 0]))[[1]],
    )
    for wrong in (9, [0, 9], None, "x", np.zeros((9, 9), bool)):
        with pytest.raises(IndexError):
            LAZY.rows(wrong)


def test_statistics_are_those_of_attention():
    request = AuxRequest(lse=True, entropy=True, received=True, pooled=4, top_k=3)
    aux = attention_statistics(QUERY, KEY, return_aux=request, **OPTIONS)
    np.testing.assert_array_equal(LAZY.lse, aux.lse)
    np.testing.assert_array_equal(LAZY.entropy(), aux.entropy)
    np.testing.assert_array_equal(LAZY.received(), aux.received)
    np.testing.assert_array_equal(LAZY.pooled(4), aux.pooled)
    for found, expected in zip(LAZY.top_k(3), (aux.top_k_index, aux.top_k_weight), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_dropout_and_head_mask_come_after():
    lazy = AttentionWeights(QUERY, KEY, dropout_p=0.5, rng=1, head_mask=np.zeros(6), **OPTIONS)
    np.testing.assert_array_equal(lazy[:], LAZY[:])
    np.testing.assert_array_equal(lazy @ KEY, LAZY @ KEY)


def test_logits_by_stage():
    scores = QUERY @ KEY.repeat(2, axis=1).swapaxes(-1, -2) / np.sqrt(5)
    bias = np.random.default_rng(2).normal(size=(9, 11))
    bias[3, 4] = -np.inf
    options = {**OPTIONS, "attn_bias": bias, "alibi_slopes": np.linspace(0, 1, 6)}
    lazy = AttentionWeights(QUERY, KEY, **options)
    rules = {name: option for name, option in options.items() if name not in ("softcap", "sinks")}
    visible, added = visible_and_bias(SHAPE, None, **rules)
    capped = 2 * np.tanh(scores / 2)
    same(lazy.logits("scaled")[:], scores)
    same(lazy.logits("capped")[1, 2], capped[1, 2])
    same(lazy.logits("masked")[...], np.where(visible, capped + added, -np.inf))
    same(np.asarray(lazy.logits()), np.where(visible, capped + added, -np.inf))
    assert lazy.logits().shape == SHAPE
    assert "stage='masked'" in repr(lazy.logits())
    for stage in ("raw", None, 0):
        with pytest.raises(HeadwiseError, match="^stage"):
            lazy.logits(stage)


def test_logits_and_lse_make_weights():
    found = np.exp(LAZY.logits()[:] - LAZY.lse[..., None])
    seen = np.isfinite(LAZY.logits()[:]).any(-1)
    np.testing.assert_allclose(found[seen], DENSE[seen], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_scores(dtype):
    """Near 2.5e5 a float32 log-sum-exp is exact to 1/64 only; the weights must not be."""
    key = np.eye(30, dtype=dtype)[None]
    query = (np.random.default_rng(3).integers(-3, 4, size=(1, 20, 30)) - 245_000).astype(dtype)
    lazy = AttentionWeights(query, key, scale=1.0)
    _, expected, _ = reference_attention(query, key, key, scale=1.0)
    np.testing.assert_allclose(lazy[:], expected, rtol=2e-6)
    np.testing.assert_allclose(lazy[:].sum(-1), 1, rtol=2e-6)
    far = AttentionWeights(
        np.full((1, 2, 4), 1e15, dtype),
        np.ones((1, 5, 4), dtype) * np.array([[1], [2], [3], [1], [0]], dtype),
    )
    np.testing.assert_array_equal(far[0], [[0, 0, 1, 0, 0]] * 2)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_hidden_keys_hold_shows_only_before_the_mask(poison):
    key = KEY.copy()
    key[:, :, 10] = poison
    lazy = AttentionWeights(QUERY, key, **{**OPTIONS, "query_offset": [0, 1]})
    assert (lazy[..., 10] == 0).all()
    assert np.isfinite(lazy[:]).all()
    assert (lazy.logits("masked")[..., 10] == -np.inf).all()
    assert not np.isfinite(lazy.logits("scaled")[..., 10]).any()


def test_rows_that_see_nothing():
    lazy = AttentionWeights(QUERY, KEY, np.zeros((9, 11), bool))
    assert not lazy[:].any() and not lazy[0, 0, 1, 2]
    no_keys = AttentionWeights(QUERY, KEY[:, :, :0])
    assert no_keys[:].shape == (2, 6, 9, 0)
    np.testing.assert_array_equal(no_keys @ np.zeros((0, 3)), np.zeros((2, 6, 9, 3)))


def test_products():
    rng = np.random.default_rng(4)
    for shape in [
        (2, 3, 11, 4),
        (3, 11, 4),
        (1, 11, 4),
        (11, 4),
        (11, 1),
        (2, 1, 11, 4),
        (2, 6, 11, 4),
        (11,),
    ]:
        x = rng.normal(size=shape)
        by_head = x.repeat(2, axis=-3) if x.ndim > 2 and x.shape[-3] == 3 else x
        np.testing.assert_allclose(LAZY @ x, DENSE @ by_head, rtol=1e-12, atol=1e-14)
    one = AttentionWeights(QUERY[0, 0], KEY[0, 0])
    np.testing.assert_allclose(one @ KEY[0, 0], attention(QUERY[0, 0], KEY[0, 0], KEY[0, 0]), rtol=1e-14)
    for shape in [(10, 4), (11, 0), (10,), (5, 11, 4), (3, 3, 11, 4)]:
        with pytest.raises(ShapeError, match="^x"):
            LAZY @ rng.normal(size=shape)
    with pytest.raises(HeadwiseError, match="^x: expected float64"):
        LAZY @ np.zeros((11, 4), np.float32)


def test_the_memory_limit():
    x = np.zeros((8, 16384, 4), np.float32)
    lazy = AttentionWeights(x, x)
    for ask in (lambda: np.asarray(lazy), lambda: lazy[:], lambda: lazy[0], lambda: lazy.rows(slice(2000)),
                lambda: lazy.logits()[0], lambda: lazy[[0] * 40, :, [1] * 40], lambda: np.add(lazy, 1),
                lambda: lazy[np.ix_(range(8), range(3000), range(3000))]):  # fmt: skip
        lazy.memory_limit = 2**20
        with pytest.raises(CapabilityError, match="memory_limit"):
            ask()
    assert lazy[0, 0].shape == (16384,)
    small = AttentionWeights(x[0, :8], x[0, :8], memory_limit=255)
    with pytest.raises(CapabilityError, match="at most 255 B.*received 256 B"):
        np.asarray(small)
    small.memory_limit = 256
    np.testing.assert_allclose(np.asarray(small), 1 / 8)
    assert AttentionWeights(x, x).memory_limit == 2**28


def test_as_an_array():
    assert np.asarray(LAZY, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="copy"):
        np.asarray(LAZY, copy=False)
    assert len(LAZY) == 2
    np.testing.assert_array_equal(np.stack(list(LAZY)), np.asarray(LAZY))
    assert (LAZY.ndim, LAZY.size, LAZY.nbytes) == (4, DENSE.size, DENSE.nbytes)


def test_shown():
    x = np.zeros((1, 8, 4096, 16), np.float32)
    assert (
        repr(AttentionWeights(x, x))
        == "AttentionWeights(shape=(1, 8, 4096, 4096), float32, 512.0 MiB not made)"
    )


@pytest.mark.parametrize(
    "size, text",
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (2**31, "2.0 GiB"), (2**70, "1048576.0 PiB")],
)
def test_bytes_for_people(size, text):
    assert binary(size) == text


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_kinds(kind):
    convert, of_kind = {"torch": (torch.from_numpy, torch.Tensor), "jax": (jnp.asarray, jnp.ndarray)}[kind]
    query, key, options, dense = example(np.float32)
    lazy = AttentionWeights(convert(query), convert(key), **options)
    assert lazy.dtype == convert(query).dtype
    for found, expected in [
        (lazy[1, 2], dense[1, 2]), (lazy[0, 0, 1, 1], dense[0, 0, 1, 1]), (lazy.rows(2), dense[:, :, [2]]),
        (lazy[[0, 1], [1, 2]], dense[[0, 1], [1, 2]]), (lazy @ convert(key), LAZY @ KEY),
    ]:  # fmt: skip
        assert isinstance(found, of_kind)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
    assert isinstance(lazy.entropy(), of_kind) and isinstance(lazy.top_k(2)[0], of_kind)


def test_pieces_are_worked_on_in_turn(monkeypatch):
    monkeypatch.setattr(weights_matrix, "PIECE", 20)
    same(LAZY[:], DENSE)
    same(LAZY[DENSE > -1], DENSE[DENSE > -1])


@pytest.mark.parametrize("name", ["value", "return_aux", "flavour"])
def test_what_is_no_option(name):
    with pytest.raises(TypeError):
        AttentionWeights(QUERY, KEY, **{name: 1})
