"""Positions from their definitions: loops that spell the formulas out, laws of rotations, known values."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from headwise import attention
from headwise.compute.positions import alibi_slopes, rotary, rotary_table, sinusoidal, t5_buckets
from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.reference import visible_and_bias

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sinusoidal_spelled_out(width):
    found = sinusoidal([3, 0, 17], width, base=100.0, dtype=np.float64)
    for row, p in zip(found, (3, 0, 17), strict=True):
        for feature, number in enumerate(row):
            angle = p / 100.0 ** (2 * (feature // 2) / width)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert number == pytest.approx(expected, abs=1e-14)


def test_sinusoidal_of_a_number_of_positions():
    np.testing.assert_array_equal(sinusoidal(5, 6), sinusoidal(range(5), 6))
    assert sinusoidal(5, 6).dtype == np.float32
    assert sinusoidal(np.zeros((2, 3), int), 6, dtype=np.float16).shape == (2, 3, 6)


def test_a_shift_of_positions_turns_every_pair_by_one_angle():
    early, late = sinusoidal(10, 8, dtype=np.float64), sinusoidal(range(7, 17), 8, dtype=np.float64)
    for pair in range(4):
        angle = 7 / 10000 ** (2 * pair / 8)
        sine, cosine = early[:, 2 * pair], early[:, 2 * pair + 1]
        np.testing.assert_allclose(
            late[:, 2 * pair], sine * math.cos(angle) + cosine * math.sin(angle), atol=1e-13
        )


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("width", [None, 2, 6])
def test_rotary_spelled_out(interleaved, width):
    x = RNG.normal(size=(2, 3, 4, 8))
    at = [5, 0, 2, 9]
    found = rotary(x, at, base=50.0, interleaved=interleaved, width=width)
    turned = 8 if width is None else width
    np.testing.assert_array_equal(found[..., turned:], x[..., turned:])
    for n, p in enumerate(at):
        for i in range(turned // 2):
            first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + turned // 2)
            angle = p / 50.0 ** (2 * i / turned)
            number = (x[..., n, first] + 1j * x[..., n, second]) * np.exp(1j * angle)
            np.testing.assert_allclose(found[..., n, first], number.real, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found[..., n, second], number.imag, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)])
def test_rotary_laws(interleaved, dtype, tolerance):
    query, key = (RNG.normal(size=(4, 16)).astype(dtype) for _ in range(2))

    def turned(x, at):
        return rotary(x, [at] * 4, interleaved=interleaved)

    assert turned(query, 3).dtype == dtype
    np.testing.assert_array_equal(turned(query, 0), query)
    np.testing.assert_allclose(
        np.linalg.norm(turned(query, 12345), axis=-1), np.linalg.norm(query, axis=-1), rtol=tolerance
    )
    products = [turned(query, q) @ turned(key, k).T for q, k in ((5, 2), (1005, 1002), (3, 0))]
    for product in products[1:]:
        np.testing.assert_allclose(product, products[0], atol=20 * tolerance)
    assert np.abs(turned(query, 2) @ turned(key, 5).T - products[0]).max() > 0.1
    np.testing.assert_allclose(turned(turned(query, 40), 2), turned(query, 42), atol=20 * tolerance)


def test_the_two_forms_differ_by_the_order_of_the_features():
    x = RNG.normal(size=(5, 8))
    order = [0, 4, 1, 5, 2, 6, 3, 7]  # half-split features, pair by pair
    np.testing.assert_array_equal(rotary(x)[:, order], rotary(x[:, order], interleaved=True))


def test_positions_of_batch_entries():
    x = RNG.normal(size=(2, 3, 4, 6))
    at = np.array([[0, 1, 2, 3], [7, 8, 9, 10]])
    found = rotary(x, at[:, None])
    for b in range(2):
        np.testing.assert_array_equal(found[b], rotary(x[b], at[b]))
    np.testing.assert_array_equal(rotary(x), rotary(x, range(4)))
    np.testing.assert_array_equal(rotary(x, at[:, None]), rotary(x, table=rotary_table(at[:, None], 6)))


def test_input_is_left_as_it_is():
    x = RNG.normal(size=(4, 6))
    before = x.copy()
    rotary(x)
    np.testing.assert_array_equal(x, before)


def exact(p, frequency):
    """cos and sin of p * frequency for whole p: the turns are taken off in exact arithmetic."""
    from fractions import Fraction

    # pi to 50 digits: enough for turns of angles up to 10^30.
    pi = Fraction("3.14159265358979323846264338327950288419716939937510")
    angle = Fraction(p) * frequency
    rest = float(angle - 2 * pi * round(angle / (2 * pi)))
    return math.cos(rest), math.sin(rest)


@pytest.mark.parametrize("p", [1857, 15962, 10**6, 2**24 + 1])
def test_far_positions(p):
    """Half precision turned position 15962 into 15968 elsewhere, and the cosine -0.55 into -0.88."""
    cosines, sines = rotary_table([p], 8, dtype=np.float32)
    waves = sinusoidal([p], 8)
    turned = rotary(np.ones((1, 8), np.float32), [p])
    from fractions import Fraction

    for i, frequency in enumerate((1, Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000))):
        cosine, sine = exact(p, frequency)
        assert cosines[0, i] == pytest.approx(cosine, abs=1e-7)
        assert (waves[0, 2 * i], waves[0, 2 * i + 1]) == pytest.approx((sine, cosine), abs=1e-7)
        assert turned[0, i] == pytest.approx(cosine - sine, abs=3e-7)


@pytest.mark.parametrize("convert", [torch.from_numpy, jnp.asarray], ids=["torch", "jax"])
def test_kinds(convert):
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    found = rotary(convert(x), convert(np.arange(4)))
    assert type(found) is type(convert(x))
    np.testing.assert_array_equal(np.asarray(found), rotary(x))


def test_slopes_that_are_known():
    np.testing.assert_array_equal(
        alibi_slopes(8), [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    )
    expected = [2.0**-n for n in (1, 2, 3, 4, 5, 6, 7, 8)] + [2.0**-n for n in (0.5, 1.5, 2.5, 3.5)]
    np.testing.assert_allclose(alibi_slopes(12), expected, rtol=1e-15)
    np.testing.assert_array_equal(alibi_slopes(1), [2.0**-8])
    np.testing.assert_allclose(alibi_slopes(3), [2.0**-4, 2.0**-8, 2.0**-2], rtol=1e-15)


@pytest.mark.parametrize("heads", range(1, 40))
def test_every_number_of_heads_has_its_own_slopes(heads):
    slopes = alibi_slopes(heads)
    assert slopes.shape == (heads,) and len(set(slopes)) == heads
    assert ((slopes > 0) & (slopes < 1)).all()


def test_slopes_in_attention():
    query, key = RNG.normal(size=(12, 5, 3)), RNG.normal(size=(12, 7, 3))
    _, bias = visible_and_bias((12, 5, 7), query_offset=2, alibi_slopes=alibi_slopes(12))
    assert bias[3, 1, 6] == -alibi_slopes(12)[3] * 3
    found = attention(query, key, key, alibi_slopes=alibi_slopes(12), query_offset=2)
    np.testing.assert_allclose(found, attention(query, key, key, attn_bias=bias), rtol=1e-12)


def t5_bucket(relative, bidirectional, num_buckets, max_distance):
    """One pair, as the definition says it."""
    start = 0
    if bidirectional:
        num_buckets //= 2
        start = num_buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(-relative, 0)
    exact = num_buckets // 2
    if distance < exact:
        return start + distance
    grown = math.log(distance / exact) / math.log(max_distance / exact) * (num_buckets - exact)
    return start + min(exact + int(grown), num_buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("num_buckets, max_distance", [(32, 128), (8, 20), (5, 64)])
@pytest.mark.parametrize("offset", [0, 3, -150])
def test_t5_buckets_spelled_out(bidirectional, num_buckets, max_distance, offset):
    options = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    found = t5_buckets(40, 300, query_offset=offset, **options)
    expected = [[t5_bucket(j - i - offset, **options) for j in range(300)] for i in range(40)]
    np.testing.assert_array_equal(found, expected)
    assert found.max() < num_buckets


def test_t5_buckets_of_transformers():
    from transformers.models.t5.modeling_t5 import T5Attention

    relative = torch.arange(200)[None] - torch.arange(30)[:, None]
    for bidirectional in (True, False):
        expected = T5Attention._relative_position_bucket(relative, bidirectional, 32, 128)
        np.testing.assert_array_equal(t5_buckets(30, 200, bidirectional=bidirectional), expected.numpy())


def test_rotary_of_transformers():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    x = torch.from_numpy(RNG.normal(size=(2, 3, 5, 8)).astype(np.float32))
    angles = torch.arange(5)[:, None] * 10000 ** (-torch.arange(0, 8, 2) / 8)
    table = torch.cat([angles, angles], -1)[None]
    expected, _ = apply_rotary_pos_emb(x, x, table.cos(), table.sin())
    torch.testing.assert_close(rotary(x), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda: sinusoidal([0.5], 4), DtypeError), (lambda: sinusoidal(4, True), HeadwiseError),
        (lambda: sinusoidal(4, 4, base=-1), HeadwiseError), (lambda: rotary(np.ones((4, 7))), HeadwiseError),
        (lambda: rotary(np.ones((4, 8)), width=3), HeadwiseError), (lambda: rotary([[1.0, 2.0]]), DtypeError),
        (lambda: rotary(np.ones((4, 8)), np.arange(8).reshape(2, 4)), ShapeError),
        (lambda: rotary(np.ones((4, 8)), [0.0] * 4), DtypeError), (lambda: alibi_slopes(2.0), HeadwiseError),
        (lambda: t5_buckets(2, 2, max_distance=16, num_buckets=64), HeadwiseError),
    ],
)  # fmt: skip
def test_refused(call, error):
    with pytest.raises(error):
        call()
