"""Faults that were reported in public trackers of attention code, each as a test of what is right.

A name in brackets is the tracker and the number of the report. The expected numbers are worked out here, by a
plain softmax in float64 over the keys that the report says should be seen, and not by the package.
"""

import headwise._core as _core
import numpy as np
import pytest
import torch

from headwise import AttentionWeights, AuxRequest, attention, multi_head_attention
from headwise.errors import HeadwiseError, ShapeError

TILE = _core.tile(_core.isa_names()[-1], "float32")
KEYS_PER_TILE = TILE[2]


def normal(seed, *shapes, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in shapes)


def plain(query, key, value, seen, bias=0.0, scale=None, cap=None):
    """Softmax over the seen keys, in float64; rows that see none are 0. Heads are grouped in blocks."""
    group = query.shape[-3] // key.shape[-3]
    key, value = (x.astype(np.float64).repeat(group, axis=-3) for x in (key, value))
    scores = query.astype(np.float64) @ key.swapaxes(-1, -2) * (scale or query.shape[-1] ** -0.5)
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias
    output = np.zeros((*scores.shape[:-1], value.shape[-1]))
    for row in np.ndindex(scores.shape[:-1]):
        keys = np.flatnonzero(np.broadcast_to(seen, scores.shape)[row])
        if keys.size:
            e = np.exp(scores[row][keys] - scores[row][keys].max())
            output[row] = e / e.sum() @ value[row[:-1]][keys]
    return output


def close(found, expected, atol=2e-6):
    np.testing.assert_allclose(found, expected, rtol=0, atol=atol)


# ---- masks: which way round, which axis, which order ----


def test_causal_hides_the_future_and_not_the_past():
    """The generated mask hid the past. [pytorch/examples#649, hkproj/pytorch-transformer#19]"""
    query, key, value = normal(1, (2, 5, 4), (2, 5, 4), (2, 5, 3))
    close(attention(query, key, value, is_causal=True), plain(query, key, value, np.tri(5, dtype=bool)))


def test_zero_and_one_are_never_added_in_silence():
    """An additive mask met a function of 1 and 0, and the other way round.
    [harvard-edge/cs249r_book#1785, pytorch#136816, pytorch#86120]"""
    (x,) = normal(2, (2, 5, 4))
    allowed = np.tri(5, dtype=np.float32)
    with pytest.raises(HeadwiseError, match="1 means attend"):
        attention(x, x, x, allowed)
    with pytest.raises(HeadwiseError, match="1 means attend"):
        attention(x, x, x, allowed.astype(np.int64))
    additive = np.where(allowed, np.float32(0), np.float32(-np.inf))
    close(attention(x, x, x, additive), plain(x, x, x, np.tri(5, dtype=bool)))


def test_a_mask_per_batch_entry_reaches_all_of_its_heads_and_no_other_entry():
    """Masks were tiled over (batch, head) in the wrong order, unseen at batch 1. [line/lighthouse#77,
    ArrowLuo/CLIP4Clip#22, lsdefine/attention-is-all-you-need-keras#36, reczoo/FuxiCTR#130, PPLM#6]"""
    query, key, value = normal(3, (3, 2, 4, 5), (3, 2, 6, 5), (3, 2, 6, 2))
    mask = np.random.default_rng(3).random((3, 4, 6)) < 0.5
    mask[..., 0] = True
    found = attention(query, key, value, mask[:, None])
    for b in range(3):
        close(found[b], plain(query[b], key[b], value[b], mask[b]))
    with pytest.raises(ShapeError, match=r"attn_mask\[:, None\]"):
        attention(query, key, value, mask)


def test_padding_hides_keys_and_empties_no_row():
    """The padding mask was laid along the queries, or taken from the target.
    [hyunwoongko/transformer#40 and #11, keras-team/keras-io#1046]"""
    query, key, value = normal(4, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    real = np.array([4, 7])
    seen = (np.arange(7) < real[:, None])[:, None, None]
    expected = plain(query, key, value, seen)
    assert (np.abs(expected).max(-1) > 0).all()
    close(attention(query, key, value, kv_lengths=real), expected)
    close(attention(query, key, value, seen), expected)


def test_no_finite_number_stands_for_hidden():
    """Hidden keys were filled with 1e-9, -1e4 or -1e5, and won against smaller scores. [gluonts#1401,
    NTMC-Community/MatchZoo-py#163, TransformerLens#319, huggingface/transformers#14859]"""
    query, key = np.full((1, 2, 4), 1000.0, np.float32), np.full((1, 6, 4), -100.0, np.float32)  # -2e5
    (value,) = normal(5, (1, 6, 3))
    mask = np.array([True, False, True, True, False, False])
    close(attention(query, key, value, mask), value[:, mask].mean(1, keepdims=True).repeat(2, 1))


def test_a_mask_is_never_dropped():
    """The result of the fill was not kept, so the mask did nothing. [opendilab/DI-engine#333]"""
    query, key, value = normal(6, (2, 5, 4), (2, 5, 4), (2, 5, 3))
    mask = np.eye(5, dtype=bool)
    close(attention(query, key, value, mask), value)


@pytest.mark.parametrize("statistics", [None, AuxRequest(lse=True, received=True)])
def test_one_answer_whatever_path(statistics):
    """Training and evaluation took different code, with different masks. [pytorch#97605, #102333, #90534]"""
    query, key, value = normal(7, (6, 5, 4), (6, 5, 4), (6, 5, 3))
    mask = np.random.default_rng(7).random((6, 5, 5)) < 0.7
    found = attention(query, key, value, mask, return_aux=statistics)
    close(found if statistics is None else found[0], plain(query, key, value, mask))


def test_a_column_padded_everywhere_shortens_nothing():
    """The output was shorter than the input. [pytorch#97111]"""
    query, key, value = normal(8, (2, 3, 6, 4), (2, 3, 6, 4), (2, 3, 6, 5))
    found = attention(query, key, value, np.array([False, *[True] * 5]))
    assert found.shape == (2, 3, 6, 5)
    close(found, attention(query, key[:, :, 1:], value[:, :, 1:]))


def test_a_mask_broadcast_over_heads_keeps_to_its_batch_entry():
    """Error 0.096 from -inf in batch entry 0. [pytorch#184180]"""
    query, key, value = normal(9, (2, 4, 8, 16), (2, 4, 8, 16), (2, 4, 8, 16))
    mask = np.zeros((2, 1, 8, 8), np.float32)
    mask[0, :, :, 5:] = -np.inf
    close(attention(query, key, value, mask), plain(query, key, value, mask == 0))


def test_a_window_works_without_a_mask():
    """The window was ignored when no mask was given. [jax-ml/jax#32300, huggingface/transformers#35924]"""
    (x,) = normal(10, (1, 9, 4))
    gap = np.arange(9)[:, None] - np.arange(9)
    close(attention(x, x, x, window_size=(2, 1)), plain(x, x, x, (gap <= 2) & (gap >= -1)))


@pytest.mark.parametrize("left, keys", [(0, 1), (3, 4)])
def test_a_window_counts_the_keys_beside_the_query(left, keys):
    """A window of W meant W or W + 1 keys, and twice as many without causal. [huggingface/transformers#39408,
    #29623, vllm#3385, flash-attention#1133]"""
    x = np.zeros((1, 9, 4), np.float32)
    _, aux = attention(x, x, x, window_size=(left, 0), return_aux=AuxRequest(received=True, max_weight=True))
    assert aux.max_weight[0, 8] == np.float32(1 / keys)


def test_no_row_depends_on_the_future():
    """Four model families saw the future. [huggingface/transformers#48745]"""
    query, key, value = normal(11, (2, 8, 4), (2, 8, 4), (2, 8, 3))
    before = attention(query, key, value, is_causal=True)
    for changed in range(8):
        other_key, other_value = key.copy(), value.copy()
        other_key[:, changed] += 1
        other_value[:, changed] -= 1
        after = attention(query, other_key, other_value, is_causal=True)
        np.testing.assert_array_equal(after[:, :changed], before[:, :changed])
        assert (after[:, changed:] != before[:, changed:]).any(-1).all()


@pytest.mark.parametrize(
    "shape", [(7,), (5, 7), (3, 5, 7), (2, 3, 5, 7), (2, 1, 5, 7), (2, 1, 1, 7), (1, 3, 1, 7)]
)
def test_masks_of_every_rank(shape):
    """Only masks of two axes were taken. [onnx#7116]"""
    query, key, value = normal(12, (2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4))
    mask = np.random.default_rng(12).random(shape) < 0.7
    close(attention(query, key, value, mask), plain(query, key, value, mask))


def test_the_soft_cap_comes_before_the_mask():
    """-inf became -cap, and hidden keys leaked. [onnx#7865, #7867, microsoft/onnxruntime#28370]"""
    query, key, value = normal(13, (2, 5, 4), (2, 7, 4), (2, 7, 3))
    mask = np.random.default_rng(13).random((5, 7)) < 0.6
    mask[:, 0] = True
    value[:, ~mask.any(0)] = 1000
    additive = np.where(mask, np.float32(0), np.float32(-np.inf))
    expected = plain(query, key, value, mask, cap=2.0)
    for given in (mask, additive):
        close(attention(query, key, value, given, softcap=2.0), expected)
    bias = np.full((5, 7), 5.0, np.float32)
    bias[:, 3] = -40.0  # a bias is not capped either
    close(
        attention(query, key, value, attn_bias=bias, softcap=2.0),
        plain(query, key, value, True, bias, cap=2.0),
    )


# ---- where the queries stand ----


def test_one_query_sees_the_whole_cache():
    """One query on 8 keys saw key 0 only. [pytorch#103082, hyprstream#1521]"""
    query, key, value = normal(14, (2, 1, 4), (2, 8, 4), (2, 8, 3))
    expected = plain(query, key, value, True)
    close(attention(query, key, value, is_causal=True, causal_alignment="lower_right"), expected)
    close(attention(query, key, value, is_causal=True, query_offset=7), expected)
    with pytest.raises(ShapeError, match="upper_left"):
        attention(query, key, value, is_causal=True)


@pytest.mark.parametrize("n_q, n_k", [(2, 5), (5, 2), (3, 128)])
def test_both_alignments(n_q, n_k):
    """Libraries, their paths and even their checkers disagreed. [flash-attention#517, #1778,
    NVIDIA/cutlass#2336, ml-explore/mlx#2835, NVIDIA/cudnn-frontend#493, onnx#8068]"""
    query, key, value = normal(15, (2, n_q, 4), (2, n_k, 4), (2, n_k, 3))
    for alignment, offset in (("upper_left", 0), ("lower_right", n_k - n_q)):
        seen = np.arange(n_k)[None] <= np.arange(n_q)[:, None] + offset
        close(
            attention(query, key, value, is_causal=True, causal_alignment=alignment),
            plain(query, key, value, seen),
        )


def test_tokens_one_by_one_are_tokens_at_once():
    """Two tokens in one cached step saw less than in two steps. [hyprstream#1521,
    huggingface/transformers#26344, lucidrains/x-transformers#311, vllm-xpu-kernels#181]"""
    query, key, value = normal(16, (2, 3, 9, 4), (2, 3, 9, 4), (2, 3, 9, 5))
    whole = attention(query, key, value, is_causal=True)
    for cuts in ([*range(9)], [0, 3, 4], [0, 8], [0, 2, 7]):
        for start, stop in zip(cuts, [*cuts[1:], 9], strict=True):
            part = attention(
                query[..., start:stop, :],
                key[..., :stop, :],
                value[..., :stop, :],
                is_causal=True,
                query_offset=start,
            )
            close(part, whole[..., start:stop, :])


def test_what_lies_behind_the_cache_is_never_read():
    """One-token decode read keys up to the width of a tile; the tail held NaN. [vllm-xpu-kernels#181,
    vllm#936, flash-attention#1745, llama.cpp#3523]"""
    query, key, value = normal(17, (2, 3, 1, 4), (2, 3, 100, 4), (2, 3, 100, 5))
    lengths = np.array([37, 64])
    expected = plain(query, key, value, (np.arange(100) < lengths[:, None])[:, None, None])
    for b, length in enumerate(lengths):
        key[b, :, length:], value[b, :, length:] = np.nan, np.inf
    found = attention(query, key, value, kv_lengths=lengths, causal_alignment="lower_right", is_causal=True)
    close(found, expected)


# ---- rows that see nothing ----


@pytest.mark.parametrize("way", ["boolean", "additive", "lengths", "causal", "segments"])
def test_rows_that_see_nothing_are_zero(way):
    """NaN, or the mean of all values. [pytorch#103963, #41508, #27968, NVIDIA/apex#1390,
    Xilinx/brevitas#1591, rten#1321, jadore801120/attention-is-all-you-need-pytorch#5]"""
    query, key, value = normal(18, (2, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 2))
    mask = np.ones((2, 1, 4, 4), bool)
    mask[1] = False
    options = {
        "boolean": {"attn_mask": mask},
        "additive": {"attn_mask": np.where(mask, np.float32(0), np.float32(-np.inf))},
        "lengths": {"kv_lengths": [4, 0]},
        "causal": {"is_causal": True, "query_offset": [3, -4]},
        "segments": {"segment_ids": (np.zeros((2, 4), int), np.array([[0] * 4, [1] * 4]))},
    }[way]
    found, aux = attention(query, key, value, return_aux=AuxRequest(lse=True), **options)
    close(found[0], plain(query[0], key[0], value[0], True))
    np.testing.assert_array_equal(found[1], 0)
    np.testing.assert_array_equal(aux.lse[1], -np.inf)
    np.testing.assert_array_equal(AttentionWeights(query, key, **options)[1], 0)


# ---- numbers ----


def test_the_dtype_of_the_input_is_the_dtype_of_the_work():
    """float64 was computed in float32 underneath. [jax-ml/jax#34114]"""
    query, key, value = normal(19, (2, 50, 16), (2, 60, 16), (2, 60, 8), dtype=np.float64)
    error = np.abs(attention(query, key, value) - plain(query, key, value, True)).max()
    assert error < 1e-14


def test_large_equal_inputs():
    """q = k = v = 133120 gave NaN. [pytorch#121558]"""
    x = np.full((1, 4, 64), 133120.0, np.float32)
    np.testing.assert_allclose(attention(x, x, x), x, rtol=1e-6)


def test_every_score_far_below_zero():
    """A running maximum that started at a finite number made rows of zeros. [flashinfer#4267]"""
    query, key = np.full((1, 3, 4), 350.0, np.float32), np.full((1, 70, 4), -350.0, np.float32)  # -2.45e5
    (value,) = normal(20, (1, 70, 3))
    close(attention(query, key, value), value.mean(1, keepdims=True).repeat(3, 1))


def test_hidden_first_tile_and_negative_scores():
    """The maximum stuck at 0 after a tile that was hidden. [flash-attention#2082, pytorch#109517]"""
    n = 3 * KEYS_PER_TILE
    query, key = np.full((1, 40, 4), 10.0, np.float32), np.full((1, n, 4), -10.0, np.float32)
    key += np.random.default_rng(21).normal(size=key.shape).astype(np.float32)
    (value,) = normal(21, (1, n, 3))
    for first in (1, KEYS_PER_TILE, 2 * KEYS_PER_TILE + 5):
        seen = np.arange(n) >= first
        close(attention(query, key, value, seen), plain(query, key, value, seen), atol=1e-5)


@pytest.mark.parametrize("poison", [np.nan, np.inf, 1e30])
def test_what_hidden_keys_and_values_hold(poison):
    """NaN behind a mask came out everywhere. [pytorch#101967, flash-attention#2374, #1395]"""
    query, key, value = normal(22, (2, 5, 4), (2, 7, 4), (2, 7, 3))
    mask = np.array([True, False, True, True, False, True, True])
    expected = plain(query, key, value, mask)
    key[:, ~mask], value[:, ~mask] = poison, poison
    close(attention(query, key, value, mask), expected)
    close(attention(query, key, value, np.where(mask, np.float32(0), np.float32(-np.inf))), expected)


def test_band_of_600():
    """exp(-inf - -inf) in blocks that a band hides as a whole. [pytorch#130014]"""
    query, key, value = normal(23, (1, 600, 4), (1, 600, 4), (1, 600, 3))
    gap = np.arange(600)[:, None] - np.arange(600)
    seen = (gap >= 0) & (gap < 20)
    expected = plain(query, key, value, seen)
    close(attention(query, key, value, seen), expected)
    close(attention(query, key, value, window_size=(19, 0)), expected)


def test_the_lowest_number_on_the_first_keys():
    """A block of the lowest finite number over 128 of 441 keys gave NaN. [pytorch#109517]"""
    query, key, value = normal(24, (1, 10, 4), (1, 441, 4), (1, 441, 3))
    mask = np.zeros((10, 441), np.float32)
    mask[:, :128] = np.finfo(np.float32).min
    close(attention(query, key, value, mask), plain(query, key, value, np.arange(441) >= 128))


# ---- grouped heads ----


@pytest.mark.parametrize("heads, kv_heads", [(9, 3), (6, 2), (4, 2), (5, 1), (3, 3)])
def test_query_heads_share_key_heads_in_blocks(heads, kv_heads):
    """Groups were tiled: 0, 1, 2, 0, 1, 2. A group of 3 did not compile. [onnx#7274, apple/ml-hypercloning#1,
    pytorch#143117]"""
    query, key, value = normal(25, (2, heads, 5, 4), (2, kv_heads, 7, 4), (2, kv_heads, 7, 3))
    close(attention(query, key, value), plain(query, key, value, True))
    constant = np.broadcast_to(np.arange(kv_heads, dtype=np.float32)[:, None, None], (2, kv_heads, 7, 1))
    found = attention(query, key, constant)[0, :, 0, 0]
    close(found, np.arange(heads) // (heads // kv_heads))


def test_an_expanded_view_of_grouped_heads():
    """`view` on expanded keys gave another shape. [NVIDIA/Megatron-LM#531]"""
    query, key, value = normal(26, (2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3))
    wide = [torch.from_numpy(x)[:, :, None].expand(2, 2, 3, 7, -1).reshape(2, 6, 7, -1) for x in (key, value)]
    assert torch.equal(
        attention(torch.from_numpy(query), *wide), torch.from_numpy(attention(query, key, value))
    )


# ---- dropout ----


def test_no_dropout_unless_it_is_asked_for_with_a_seed():
    """Dropout went on in evaluation. [pytorch#124464, nanoGPT#240,
    pytorch-image-models#1978, torchtune#1791]"""
    query, key, value = normal(27, (2, 5, 4), (2, 7, 4), (2, 7, 3))
    np.testing.assert_array_equal(
        attention(query, key, value), attention(query, key, value, dropout_p=0.0, rng=1)
    )
    with pytest.raises(HeadwiseError, match="^rng"):
        attention(query, key, value, dropout_p=0.1)


def test_returned_weights_are_those_before_dropout():
    """Rows of the returned weights summed to 1.25. [pytorch#42929, #33360, #90842]"""
    query, key, value = normal(28, (2, 5, 4), (2, 7, 4), (2, 7, 3))
    options = {"dropout_p": 0.4, "rng": 3}
    request = AuxRequest(classes=np.zeros(7, int), received=True)
    _, aux = attention(query, key, value, return_aux=request, **options)
    np.testing.assert_allclose(aux.classes, 1, rtol=1e-6)
    np.testing.assert_allclose(aux.received.sum(-1), 5, rtol=1e-6)
    np.testing.assert_allclose(AttentionWeights(query, key, **options)[:].sum(-1), 1, rtol=1e-6)


def test_kept_weights_grow_by_what_is_dropped():
    """Scaled by p in place of 1 / (1 - p). [NVIDIA/apex#816]"""
    query, key = np.zeros((1, 500, 1), np.float32), np.zeros((1, 400, 1), np.float32)
    output = attention(query, key, np.ones((1, 400, 1), np.float32), dropout_p=0.8, rng=0)
    assert abs(output.mean() - 1) < 0.02


# ---- sizes ----


@pytest.mark.parametrize("d_k, d_v", [(3, 5), (128, 64), (5, 1), (1, 7)])
def test_values_of_another_width(d_k, d_v):
    """The output took the width of the queries. [pytorch#128348, coreai-torch#117, flash-attention#914]"""
    query, key, value = normal(29, (2, 3, 4, d_k), (2, 3, 6, d_k), (2, 3, 6, d_v))
    close(attention(query, key, value), plain(query, key, value, True))


@pytest.mark.parametrize("shape", [(0, 5, 4), (2, 0, 5, 4)])
def test_no_heads_are_refused_and_end_no_process(shape):
    """Zero heads killed the process. [pytorch#141218, #141229, #191325, #106700]"""
    x = np.zeros(shape, np.float32)
    with pytest.raises(ShapeError, match="at least one head"):
        attention(x, x, x)
    one = np.eye(4)
    with pytest.raises(HeadwiseError, match="^num_heads"):
        multi_head_attention(one, w_q=one, w_k=one, w_v=one, w_o=one, num_heads=0)


@pytest.mark.parametrize("batch, n_q, n_k", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty_axes(batch, n_q, n_k):
    """Crash, or division by zero. [pytorch#174950, flash-attention#2515]"""
    query, key, value = (np.ones((batch, 2, n, d), np.float32) for n, d in ((n_q, 4), (n_k, 4), (n_k, 5)))
    found, aux = attention(query, key, value, return_aux=AuxRequest(lse=True))
    np.testing.assert_array_equal(found, np.zeros((batch, 2, n_q, 5)))
    np.testing.assert_array_equal(aux.lse, np.full((batch, 2, n_q), -np.inf if n_k == 0 else 0.0)[..., :n_q])


# ---- layouts ----


LAYOUTS = {
    "permuted": lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    "rows last": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "backwards": lambda x: np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1],
    "backwards on every axis": lambda x: np.ascontiguousarray(x[::-1, ::-1, ::-1, ::-1])[
        ::-1, ::-1, ::-1, ::-1
    ],
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("masked", [False, True])
def test_layouts(layout, masked):
    """Garbage for permuted inputs, inner strides, negative strides. [pytorch#112577, #163597, #181133,
    #187506, #92680, torch-spyre#4331]"""
    query, key, value = normal(30, (3, 2, 33, 8), (3, 2, 65, 8), (3, 2, 65, 8))
    mask = np.random.default_rng(30).random((33, 65)) < 0.7 if masked else np.ones((33, 65), bool)
    odd = [LAYOUTS[layout](x) for x in (query, key, value)]
    kept = [x.copy() for x in odd]
    close(attention(*odd, mask), plain(query, key, value, mask))
    for x, before in zip(odd, kept, strict=True):
        np.testing.assert_array_equal(x, before)


def test_keys_repeated_with_stride_zero():
    """Error 19.5 where the number of keys was one above a multiple of 32. [pytorch#191937]"""
    query, key, value = normal(31, (2, 4, 5, 8), (2, 1, 33, 8), (2, 1, 33, 8))
    key, value = (np.broadcast_to(x, (2, 4, 33, 8)) for x in (key, value))
    mask = np.random.default_rng(31).random((5, 33)) < 0.7
    close(attention(query, key, value, mask), plain(query, key, value, mask))


@pytest.mark.parametrize("stride", [-4096, 12345])
def test_axes_of_one_element_may_have_any_stride(stride):
    """Refused, or read elsewhere. [pytorch#116333, #127523, numpy#23349]"""
    query, key, value = normal(32, (1, 5, 1), (1, 5, 1), (1, 5, 1))
    odd = [
        np.lib.stride_tricks.as_strided(x, x.shape, (stride, x.strides[1], stride))
        for x in (query, key, value)
    ]
    close(attention(*odd), plain(query, key, value, True))


def test_softmax_runs_over_the_keys_also_at_batch_one():
    """Over axis 0 every weight of a single batch entry was 1. [PetrochukM/PyTorch-NLP#2]"""
    query, key, value = normal(33, (1, 1, 5, 4), (1, 1, 5, 4), (1, 1, 5, 3))
    close(attention(query, key, value), plain(query, key, value, True))
    close(AttentionWeights(query, key)[:].sum(-1), 1)


# ---- remainders of tiles ----


@pytest.mark.parametrize(
    "n_k", sorted({1, 2, 137, *(m * KEYS_PER_TILE + r for m in (1, 2) for r in (-1, 0, 1))})
)
@pytest.mark.parametrize("n_q", sorted({1, 2, TILE[1] - 1, TILE[1], TILE[1] + 1, 137}))
def test_lengths_that_are_no_multiple_of_a_tile(n_q, n_k):
    """The last rows or keys were off. [pytorch#159247, attention-gym#50, tiny-flash-attention#12,
    NNkernels.jl#16, SageAttention#26]"""
    query, key, value = normal(34, (1, n_q, 8), (1, n_k, 8), (1, n_k, 8))
    close(attention(query, key, value), plain(query, key, value, True))


# ---- windows and ALiBi ----


@pytest.mark.parametrize("offset", [0, 6])
def test_alibi_is_symmetric_and_on_the_distance_of_positions(offset):
    """Distances were off by one, slopes off by one head. [vllm#945,
    ml-explore/mlx#3071, TensorRT-LLM#1611]"""
    query, key, value = normal(35, (2, 5, 4), (2, 11, 4), (2, 11, 3))
    slopes = np.array([0.5, 0.25])
    distance = np.abs(np.arange(5)[:, None] + offset - np.arange(11))
    expected = plain(query, key, value, True, -slopes[:, None, None] * distance)
    close(attention(query, key, value, alibi_slopes=slopes, query_offset=offset), expected)
