"""What is taken and what is refused, and how a problem looks once it is checked."""

import numpy as np
import pytest

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.options import UNSERVED, both_readings
from headwise.problem import build_problem
from headwise.request import AuxRequest


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
        {"return_aux": AuxRequest(distance=True)},
        {"return_aux": AuxRequest(offsets=(0,))},
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
    request = AuxRequest(lse=True, top_k=3, segments=[0, 1, 0, 1, 0, 1, -1], received=True, pooled=2)
    assert build(return_aux=request).offset == 0


def test_offset_and_alignment_exclude_each_other():
    with pytest.raises(HeadwiseError, match="not both"):
        build(query_offset=0, causal_alignment="upper_left")


@pytest.mark.parametrize("offset", [True, 1.0, "1", 2**31, -(2**31), np.array(1)])
def test_offsets_refused(offset):
    with pytest.raises(HeadwiseError, match="query_offset"):
        build(query_offset=offset)


@pytest.mark.parametrize("offset", [[1, 2], (1, 2), np.array([1, 2])])
def test_offsets_per_batch_entry_are_not_yet_served(offset):
    with pytest.raises(CapabilityError, match="not yet served"):
        build(query_offset=offset)


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


def test_dropout_is_not_yet_served():
    assert build(dropout_p=0).scale > 0
    with pytest.raises(CapabilityError, match="not yet served"):
        build(dropout_p=0.1)


@pytest.mark.parametrize(
    "name", ["lse", "max_weight", "argmax", "entropy", "distance", "received", "sum_squares"]
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
    with pytest.raises(HeadwiseError, match="^offsets: expected"):
        AuxRequest(offsets=value)


def test_request_is_normalised():
    request = AuxRequest(offsets=[np.int64(-1), 2], top_k=np.int32(3), matches=[1, 2], segments=(0, 2, -1))
    assert request.offsets == (-1, 2)
    assert type(request.top_k) is int
    assert request.matches.dtype == request.segments.dtype == np.int64
    assert request.classes == 3
    assert AuxRequest(segments=[-1, -1]).classes == 0
    with pytest.raises(AttributeError):
        request.top_k = 4


def test_sum_squares_is_not_yet_served():
    with pytest.raises(CapabilityError, match="sum_squares"):
        AuxRequest(sum_squares=True)


def test_classes_start_at_zero():
    with pytest.raises(HeadwiseError, match="segments: expected classes >= 0"):
        AuxRequest(segments=[0, -2])


@pytest.mark.parametrize("ids", [np.zeros((2, 7), int), np.zeros((1, 7), int), np.zeros(7, int)])
def test_ids_reach_every_batch_entry(ids):
    problem = build(return_aux=AuxRequest(matches=ids, segments=ids), query_offset=0)
    assert problem.key_tokens.shape == problem.segments.shape == (2, 7)
    assert problem.query_tokens.shape == (2, 5)


@pytest.mark.parametrize("name", ["matches", "segments"])
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


def test_classes_may_not_outgrow_the_keys():
    assert build(return_aux=AuxRequest(segments=[1023] * 7)).request.classes == 1024
    with pytest.raises(HeadwiseError, match="without gaps"):
        build(return_aux=AuxRequest(segments=[1024] * 7))


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
