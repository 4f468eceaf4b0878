"""What is taken and what is refused, and how a problem looks once it is checked."""

import numpy as np
import pytest

from headwise.compute.options import UNSERVED, both_readings
from headwise.compute.problem import build_problem
from headwise.compute.request import AuxRequest
from headwise.errors import DtypeError, HeadwiseError, ShapeError


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


Q, K, V = zeros(2, 6, 5, 8), zeros(2, 3, 7, 8), zeros(2, 3, 7, 4)


def build(query=Q, key=K, value=V, mask=None, **options):
    return build_problem(query, key, value, mask, **options)


def test_sizes():
    problem = build()
    assert (problem.lead, problem.heads, problem.kv_heads) == ((2,), 6, 3)
    assert (problem.n_q, problem.n_k, problem.d_k, problem.d_v) == (5, 7, 8, 4)
    assert not problem.one_head
    assert problem.scale == 1 / np.sqrt(8)


def test_one_head_gains_an_axis():
    problem = build(zeros(5, 8), zeros(7, 8), zeros(7, 4))
    assert problem.one_head
    assert problem.query.shape == (1, 5, 8)
    assert (problem.lead, problem.heads) == ((), 1)


def test_without_values():
    assert build(value=None).d_v == 0


def test_a_problem_cannot_be_changed():
    with pytest.raises(AttributeError):
        build().scale = 2.0


@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 8), (7, 8), (7, 4)),
        ((1, 5, 8), (1, 7, 8), (1, 7, 4)),
        ((2, 3, 6, 5, 8), (2, 3, 2, 7, 8), (2, 3, 2, 7, 1)),
        ((6, 0, 8), (6, 7, 8), (6, 7, 4)),
        ((6, 5, 8), (6, 0, 8), (6, 0, 4)),
        ((0, 6, 5, 8), (0, 6, 7, 8), (0, 6, 7, 4)),
        ((2, 9, 5, 1), (2, 3, 7, 1), (2, 3, 7, 1)),
    ],
)
def test_shapes_taken(shapes):
    assert build(*(zeros(*shape) for shape in shapes)).n_q == shapes[0][-2]


@pytest.mark.parametrize(
    "shapes, argument",
    [
        (((8,), (8,), (8,)), "query"),
        (((6, 5, 8), (7, 8), (7, 4)), "key"),
        (((5, 8), (7, 8), (1, 7, 4)), "value"),
        (((2, 6, 5, 8), (3, 6, 7, 8), (3, 6, 7, 4)), "key"),
        (((2, 6, 5, 8), (2, 6, 7, 8), (1, 6, 7, 4)), "value"),
        (((6, 5, 8), (6, 7, 9), (6, 7, 4)), "key"),
        (((6, 5, 8), (6, 7, 8), (6, 5, 4)), "value"),
        (((6, 5, 8), (4, 7, 8), (4, 7, 4)), "key"),
        (((6, 5, 8), (12, 7, 8), (12, 7, 4)), "key"),
        (((6, 5, 8), (3, 7, 8), (6, 7, 4)), "value"),
        (((0, 5, 8), (1, 7, 8), (1, 7, 4)), "query"),
        (((6, 5, 8), (0, 7, 8), (0, 7, 4)), "key"),
        (((6, 5, 0), (6, 7, 0), (6, 7, 4)), "query"),
        (((6, 5, 8), (6, 7, 8), (6, 7, 0)), "value"),
    ],
)
def test_shapes_refused(shapes, argument):
    with pytest.raises(ShapeError) as caught:
        build(*(zeros(*shape) for shape in shapes))
    assert caught.value.argument == argument


def test_grouped_heads_only_where_allowed():
    assert build(enable_gqa=True).kv_heads == 3
    assert build(zeros(3, 5, 8), zeros(3, 7, 8), zeros(3, 7, 4), enable_gqa=False).kv_heads == 3
    with pytest.raises(ShapeError, match="6 key heads"):
        build(enable_gqa=False)


@pytest.mark.parametrize(
    "shape",
    [(), (7,), (1, 7), (5, 1), (5, 7), (6, 5, 7), (6, 1, 7), (1, 1, 5, 7), (2, 1, 1, 7), (2, 6, 5, 7)],
)
def test_masks_broadcast_without_a_copy(shape):
    mask = np.ones(shape, bool)
    problem = build(mask=mask)
    assert problem.mask.shape == (2, 6, 5, 7)
    assert np.shares_memory(problem.mask, mask)


@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 5, 7), (2, 7), (3, 5, 7), (1, 2, 6, 5, 7), (8,)])
def test_masks_that_do_not_fit(shape):
    with pytest.raises(ShapeError, match="attn_mask"):
        build(mask=np.ones(shape, bool))


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int8])
def test_integer_masks_are_refused(dtype):
    with pytest.raises(DtypeError, match="attn_mask != 0"):
        build(mask=np.ones((5, 7), dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.complex64, object])
def test_masks_of_another_dtype_are_refused(dtype):
    with pytest.raises(DtypeError, match="attn_mask: expected bool, or float32"):
        build(mask=np.ones((5, 7), dtype))


def zero_one_masks():
    yield "triangle", np.tri(5, 7, dtype=np.float32)
    yield "broadcast", np.broadcast_to(np.array([0, 1, 0, 1, 0, 1, 1], np.float32), (5, 7))
    yield "negative zero", np.array([-0.0, 1, 1, 1, 1, 1, 1], np.float32)
    yield "transposed", np.tri(7, 5, dtype=np.float32).T


@pytest.mark.parametrize(
    "mask", [mask for _, mask in zero_one_masks()], ids=[name for name, _ in zero_one_masks()]
)
def test_zero_one_masks_are_refused(mask):
    with pytest.raises(HeadwiseError, match="nothing but 0 and 1"):
        build(mask=mask)


def test_a_long_zero_one_mask_is_read_to_its_end():
    mask = np.tri(300, 301, dtype=np.float32)
    arrays = (zeros(1, 300, 2), zeros(1, 301, 2), zeros(1, 301, 2))
    with pytest.raises(HeadwiseError, match="nothing but 0 and 1"):
        build(*arrays, mask=mask)
    mask[-1, -1] = -np.inf
    assert build(*arrays, mask=mask).mask is not None


@pytest.mark.parametrize(
    "row", [[0] * 7, [1] * 7, [0, 0.5, 1, 0, 0, 0, 0], [0, -np.inf, 1, 1, 1, 1, 1], [np.nan] + [1, 0] * 3]
)
def test_other_floating_masks_pass(row):
    assert build(mask=np.array(row, np.float32)).mask is not None


def test_empty_masks_pass():
    arrays = (zeros(2, 5, 8), zeros(2, 0, 8), zeros(2, 0, 4))
    assert build(*arrays, mask=zeros(5, 0)).mask.shape == (2, 5, 0)


@pytest.mark.parametrize(
    "options, offset",
    [
        ({}, 0),
        ({"causal_alignment": "upper_left"}, 0),
        ({"causal_alignment": "lower_right"}, 2),
        ({"query_offset": 4}, 4),
        ({"query_offset": np.int32(-3)}, -3),
        ({"is_causal": True, "query_offset": 0}, 0),
        ({"is_causal": True, "causal_alignment": "lower_right"}, 2),
    ],
)
def test_offset(options, offset):
    problem = build(**options)
    assert problem.offset == offset
    assert type(problem.offset) is int


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True},
        {"window_size": (1, 2)},
        {"window_size": (None, 0)},
        {"alibi_slopes": [0.5] * 6},
        {"return_aux": AuxRequest(distance=True)},
        {"return_aux": AuxRequest(relative=(0,))},
        {"return_aux": AuxRequest(matches=range(7))},
        {"return_aux": AuxRequest(matches=(range(7), range(5)))},
    ],
)
def test_positions_have_to_be_said_when_sizes_differ(options):
    with pytest.raises(ShapeError, match="upper_left"):
        build(**options)
    assert build(**options, query_offset=1).offset == 1
    square = (zeros(6, 7, 8), zeros(3, 7, 8), zeros(3, 7, 4))
    if options.get("return_aux") is None or not isinstance(options["return_aux"].matches, tuple):
        assert build(*square, **options).offset == 0


def test_statistics_without_positions_need_none():
    request = AuxRequest(lse=True, top_k=3, classes=[0, 1, 0, 1, 0, 1, -1], received=True, pooled=2)
    assert build(return_aux=request).offset == 0


def test_offset_and_alignment_exclude_each_other():
    with pytest.raises(HeadwiseError, match="not both"):
        build(query_offset=0, causal_alignment="upper_left")


@pytest.mark.parametrize("offset", [True, 1.0, "1", 2**31, -(2**31), 1j])
def test_offsets_refused(offset):
    with pytest.raises(HeadwiseError, match="query_offset"):
        build(query_offset=offset)


@pytest.mark.parametrize("offset", [[3, -2], (3, -2), np.array([3, -2], np.int16)])
def test_offsets_per_batch_entry(offset):
    problem = build(query_offset=offset, is_causal=True)
    np.testing.assert_array_equal(problem.rules.query_offsets, [3, -2])
    assert problem.rules.query_offsets.dtype == np.int64
    assert problem.offset == 0


@pytest.mark.parametrize(
    "offset, error",
    [
        ([1, 2, 3], ShapeError), ([[1, 2]], ShapeError), (np.array(1), ShapeError), ([1.5, 2.0], DtypeError),
        ([True, False], DtypeError), ([2**31, 0], HeadwiseError), ([0, -(2**31)], HeadwiseError),
    ],
)  # fmt: skip
def test_offsets_per_batch_entry_refused(offset, error):
    with pytest.raises(error, match="^query_offset"):
        build(query_offset=offset)


@pytest.mark.parametrize(
    "lengths, offsets",
    [
        ({"kv_lengths": [7, 3]}, [2, -2]),
        ({"query_lengths": [5, 1]}, [2, 6]),
        ({"query_lengths": [4, 0], "kv_lengths": [0, 7]}, [-4, 7]),
        ({"query_lengths": 3, "kv_lengths": 6}, [3, 3]),
    ],
)
def test_lower_right_is_that_of_the_lengths(lengths, offsets):
    problem = build(causal_alignment="lower_right", is_causal=True, **lengths)
    np.testing.assert_array_equal(problem.rules.query_offsets, offsets)
    assert build(causal_alignment="upper_left", is_causal=True, **lengths).rules.query_offsets is None


@pytest.mark.parametrize("name, most", [("query_lengths", 5), ("kv_lengths", 7)])
def test_lengths(name, most):
    np.testing.assert_array_equal(getattr(build(**{name: [0, most]}).rules, name), [0, most])
    np.testing.assert_array_equal(getattr(build(**{name: most}).rules, name), [most, most])
    for wrong, error in [
        ([most + 1, 0], HeadwiseError), ([-1, 0], HeadwiseError), (most + 1, HeadwiseError),
        ([1], ShapeError), ([1.0, 2.0], DtypeError), (1.0, DtypeError), (True, DtypeError), ("2", DtypeError),
    ]:  # fmt: skip
        with pytest.raises(error, match=f"^{name}"):
            build(**{name: wrong})


@pytest.mark.parametrize("window", [(2, 3), [2, 3], (np.int64(2), 3)])
def test_window(window):
    assert build(window_size=window, query_offset=0).rules.window == (2, 3)


@pytest.mark.parametrize(
    "window", [3, (3,), (1, 2, 3), (-1, 2), (1.5, 2), (True, 0), "12", np.array([1, 2]), (2**31, 0)]
)
def test_windows_refused(window):
    with pytest.raises(HeadwiseError, match="^window_size: expected"):
        build(window_size=window, query_offset=0)


def test_an_open_window_needs_no_positions():
    assert build(window_size=(None, None)).rules.window == (None, None)


def test_segment_ids():
    square = (zeros(2, 6, 7, 8), K, V)
    for ids in (range(7), np.arange(7), np.arange(14).reshape(2, 7), [list(range(7))] * 2, [list(range(7))]):
        rules = build(*square, segment_ids=ids).rules
        assert rules.query_segments is rules.key_segments
        assert rules.key_segments.shape == (2, 7)
    rules = build(segment_ids=(range(5), np.zeros((2, 7), int))).rules
    assert (rules.query_segments.shape, rules.key_segments.shape) == ((2, 5), (2, 7))
    for arrays, ids, error in [
        ((Q, K, V), range(7), ShapeError), ((Q, K, V), (range(7), range(5)), ShapeError),
        (square, range(6), ShapeError), (square, [0.5] * 7, DtypeError), (square, 3, DtypeError),
    ]:  # fmt: skip
        with pytest.raises(error, match="^segment_ids"):
            build(*arrays, segment_ids=ids)


@pytest.mark.parametrize("cap", [5, 0.5, np.float32(30)])
def test_softcap(cap):
    assert build(softcap=cap).rules.softcap == cap
    assert type(build(softcap=cap).rules.softcap) is float


@pytest.mark.parametrize("cap", [0, -1.0, np.inf, np.nan, True, "1", 1e-50, 1e50, np.ones(1)])
def test_softcaps_refused(cap):
    with pytest.raises(HeadwiseError, match="^softcap: expected None or a finite number > 0"):
        build(softcap=cap)


@pytest.mark.parametrize("name", ["alibi_slopes", "head_mask"])
def test_numbers_per_head(name):
    for values in ([1, 2, 3, 4, 5, 6], np.arange(6, dtype=np.float32), np.arange(12.0).reshape(2, 6)):
        found = getattr(build(**{name: values}, query_offset=0).rules, name)
        np.testing.assert_array_equal(found, np.broadcast_to(values, (2, 6)))
        assert found.dtype == np.float64
    for values, error in [
        ([1.0] * 5, ShapeError), (np.ones((6, 1)), ShapeError), (np.ones((1, 6)), ShapeError),
        (np.float64(2), ShapeError), ([np.nan] * 6, HeadwiseError), ([np.inf] * 6, HeadwiseError),
        ([True] * 6, DtypeError), (2.0, DtypeError), ([[1], [1, 2]], DtypeError), (["a"] * 6, DtypeError),
    ]:  # fmt: skip
        with pytest.raises(error, match=f"^{name}"):
            build(**{name: values}, query_offset=0)


def test_sinks():
    assert build(sinks=[1.0] * 6).rules.sinks.shape == (6, 1)
    assert build(sinks=np.ones((6, 3), np.float32)).rules.sinks.shape == (6, 3)
    assert build(sinks=np.ones((6, 0))).rules.sinks is None
    for wrong in (np.ones(5), np.ones((1, 6)), np.ones((6, 1, 1)), np.float64(1)):
        with pytest.raises(ShapeError, match="^sinks"):
            build(sinks=wrong)
    with pytest.raises(HeadwiseError, match="^sinks: expected finite"):
        build(sinks=[-np.inf] * 6)


def test_bias():
    bias = np.tri(5, 7, dtype=np.float32)  # 0 and 1: numbers to add
    problem = build(mask=np.ones(7, bool), attn_bias=bias)
    assert problem.rules.bias.shape == (2, 6, 5, 7)
    assert np.shares_memory(problem.rules.bias, bias)
    for wrong, error in [
        (np.ones((5, 7)), DtypeError), (np.ones((5, 7), bool), DtypeError),
        (np.ones((5, 7), int), DtypeError), (np.ones((6, 7), np.float32), ShapeError),
    ]:  # fmt: skip
        with pytest.raises(error, match="^attn_bias"):
            build(attn_bias=wrong)


def test_plain_calls_share_one_set_of_rules():
    assert build().rules is build(is_causal=True, query_offset=3, softcap=None).rules


@pytest.mark.parametrize("alignment", ["lower_left", "", 0, True, np.array(["upper_left", "x"])])
def test_alignments_refused(alignment):
    with pytest.raises(HeadwiseError, match="causal_alignment"):
        build(causal_alignment=alignment)


@pytest.mark.parametrize(
    "scale, expected", [(0, 0.0), (-2, -2.0), (0.5, 0.5), (np.float32(0.25), 0.25), (np.int64(3), 3.0)]
)
def test_scale(scale, expected):
    problem = build(scale=scale)
    assert problem.scale == expected
    assert type(problem.scale) is float


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, True, "1", 1j, np.ones(1), np.float32(np.nan)])
def test_scales_refused(scale):
    with pytest.raises(HeadwiseError, match="^scale: expected None or a finite number"):
        build(scale=scale)


@pytest.mark.parametrize(
    "name, value",
    [
        ("is_causal", 1), ("is_causal", None), ("is_causal", np.True_), ("is_causal", np.ones((5, 7), bool)),
        ("enable_gqa", 1), ("enable_gqa", "yes"),
        ("implementation", "flash"), ("implementation", None), ("implementation", np.array(["auto", "auto"])),
        *(("num_threads", number) for number in (0, -1, True, 1.0, "2")),
        *(("dropout_p", number) for number in (-0.1, 1.5, np.nan, True, "0")),
        ("return_aux", True), ("return_aux", {"lse": True}), ("return_aux", AuxRequest),
    ],
)  # fmt: skip
def test_option_values_refused(name, value):
    with pytest.raises(HeadwiseError) as caught:
        build(**{name: value})
    assert type(caught.value) is HeadwiseError
    assert caught.value.argument == name


def test_dropout_needs_a_seed():
    assert build(dropout_p=0).rules.dropout_p == 0
    assert build(dropout_p=0, rng=3).rules.dropout_p == 0
    rules = build(dropout_p=0.1, rng=2**64 - 1).rules
    assert (rules.dropout_p, rules.seed) == (0.1, 2**64 - 1)
    for rng in (None, -1, 2**64, 1.0, True, "1", np.random.RandomState(0)):
        with pytest.raises(HeadwiseError, match="^rng: expected"):
            build(dropout_p=0.1, rng=rng)
    with pytest.raises(HeadwiseError, match="^rng: expected"):
        build(rng="1")


def test_a_generator_gives_a_new_seed_each_time():
    generators = [np.random.default_rng(5) for _ in range(2)]
    seeds = [[build(dropout_p=0.5, rng=generator).rules.seed for _ in range(2)] for generator in generators]
    assert seeds[0] == seeds[1]
    assert seeds[0][0] != seeds[0][1]


@pytest.mark.parametrize(
    "name",
    ["lse", "max_weight", "argmax", "entropy", "distance", "received", "sum_squares", "sink_logit_mass"],
)
@pytest.mark.parametrize("value", [1, None, "yes", np.True_])
def test_request_flags_are_booleans(name, value):
    with pytest.raises(HeadwiseError, match=f"^{name}: expected True or False"):
        AuxRequest(**{name: value})


@pytest.mark.parametrize("name", ["top_k", "sink_mass", "pooled"])
@pytest.mark.parametrize("value", [-1, True, 1.5, None, "3"])
def test_request_counts_are_whole_numbers(name, value):
    with pytest.raises(HeadwiseError, match=f"^{name}: expected a whole number"):
        AuxRequest(**{name: value})


@pytest.mark.parametrize("value", [3, (0.5,), (True,), "12", None, (2**31,)])
def test_request_offsets_are_whole_numbers(value):
    with pytest.raises(HeadwiseError, match="^relative: expected"):
        AuxRequest(relative=value)


def test_request_is_normalised():
    request = AuxRequest(relative=[np.int64(-1), 2], top_k=np.int32(3), matches=[1, 2], classes=(0, 2, -1))
    assert request.relative == (-1, 2)
    assert type(request.top_k) is int
    assert request.matches.dtype == request.classes.dtype == np.int64
    assert request.class_count == 3
    assert AuxRequest(classes=[-1, -1]).class_count == 0
    with pytest.raises(AttributeError):
        request.top_k = 4


def test_classes_start_at_zero():
    with pytest.raises(HeadwiseError, match="classes: expected classes >= 0"):
        AuxRequest(classes=[0, -2])


@pytest.mark.parametrize("ids", [np.zeros((2, 7), int), np.zeros((1, 7), int), np.zeros(7, int)])
def test_ids_reach_every_batch_entry(ids):
    problem = build(return_aux=AuxRequest(matches=ids, classes=ids), query_offset=0)
    assert problem.key_tokens.shape == problem.classes.shape == (2, 7)
    assert problem.query_tokens.shape == (2, 5)


@pytest.mark.parametrize("name", ["matches", "classes"])
@pytest.mark.parametrize("shape", [(5,), (1,), (), (3, 7), (2, 1, 7), (2, 6, 7), (7, 2)])
def test_ids_that_do_not_fit(name, shape):
    with pytest.raises(ShapeError, match=f"{name}: expected one number per key"):
        build(return_aux=AuxRequest(**{name: np.zeros(shape, int)}), query_offset=0)


def test_query_ids_that_do_not_fit():
    with pytest.raises(ShapeError, match="matches: expected one number per query"):
        build(return_aux=AuxRequest(matches=(range(7), range(7))), query_offset=0)


def test_a_list_of_two_lists_is_a_batch():
    matches = AuxRequest(matches=[[1, 2, 3], [4, 5, 6]]).matches
    assert matches.shape == (2, 3)
    pair = AuxRequest(matches=([1, 2, 3], [4, 5, 6, 7])).matches
    assert isinstance(pair, tuple)
    assert isinstance(AuxRequest(matches=(1, 2)).matches, np.ndarray)


@pytest.mark.parametrize("offset", [-2, 0, 1, 4, 9])
def test_queries_take_the_tokens_at_their_positions(offset):
    ids = np.array([3, 0, 1, 3, 2, 0, 4])
    problem = build(return_aux=AuxRequest(matches=ids), query_offset=offset)
    for i in range(5):
        token = problem.query_tokens[0, i]
        if 0 <= i + offset < 7:
            assert token == ids[i + offset]
        else:
            assert token not in ids


def test_queries_take_the_tokens_at_the_positions_of_their_batch_entry():
    ids = np.arange(14).reshape(2, 7)
    problem = build(return_aux=AuxRequest(matches=ids), query_offset=[1, 4])
    np.testing.assert_array_equal(problem.query_tokens[0], ids[0, 1:6])
    np.testing.assert_array_equal(problem.query_tokens[1, :3], ids[1, 4:])
    assert not np.isin(problem.query_tokens[1, 3:], ids).any()


def test_classes_may_not_outgrow_the_keys():
    assert build(return_aux=AuxRequest(classes=[1023] * 7)).request.class_count == 1024
    with pytest.raises(HeadwiseError, match="without gaps"):
        build(return_aux=AuxRequest(classes=[1024] * 7))


def test_every_unserved_option_has_advice():
    assert all(UNSERVED.values())


@pytest.mark.parametrize("n_q, n_k", [(2, 5), (5, 2), (3, 3), (6, 1)])
def test_drawing_of_both_readings(n_q, n_k):
    lines = both_readings(n_q, n_k).splitlines()
    assert len(lines) == n_q + 3
    width = 2 * n_k - 1
    left = [line[2 : 2 + width] for line in lines[2:-1]]
    right = [line[20 : 20 + width] for line in lines[2:-1]]
    for i in range(n_q):
        assert left[i].split() == ["#" if j <= i else "." for j in range(n_k)]
        assert right[i].split() == ["#" if j <= i + n_k - n_q else "." for j in range(n_k)]
    assert lines[-1].split() == ["query_offset=0", f"query_offset={n_k - n_q}"]


def test_large_sizes_are_drawn_small():
    assert "drawn for 2 queries and 5 keys" in both_readings(100, 4096)
    assert "drawn for 5 queries and 2 keys" in both_readings(4096, 100)
    assert "query_offset=3996" in both_readings(100, 4096)
