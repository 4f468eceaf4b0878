"""Positions on plain arrays: sinusoidal embeddings, rotary embeddings, ALiBi slopes, relative buckets of T5.

Angles are computed in float64 at every position and rounded once, to the dtype that is asked for: an angle
of 10^6 radians in half precision, or even in float32, would be wrong in its leading digits.
"""

import math
from typing import Any

import numpy as np

from headwise.compute.arrays import integers, take
from headwise.compute.positions.scaling import RotaryScaling, rotary_frequencies
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.types import Array, Floats, Integers
from headwise.plain.values import is_whole, shown


def sinusoidal(positions: Any, width: int, *, base: float = 10000.0, dtype: Any = np.float32) -> Array:
    """Sinusoidal position embeddings ``(..., n, width)``.

        e[p, 2i] = sin(p / base^(2i / width)),   e[p, 2i + 1] = cos(p / base^(2i / width))

    (Vaswani et al. 2017, section 3.5.) An odd width ends with a sine.

    Args:
        positions: whole numbers ``(..., n)``, or their number n for 0, 1, ..., n - 1.
        width: d_model.
        base: of the wavelengths, 2 pi to 2 pi base.
        dtype: of the result; angles are float64 whatever it is.

    Raises:
        HeadwiseError: ``width`` or ``base`` is not positive.
        DtypeError: ``positions`` are not whole numbers.

    >>> sinusoidal(2, 4).round(3)
    array([[0.   , 1.   , 0.   , 1.   ],
           [0.841, 0.54 , 0.01 , 1.   ]], dtype=float32)
    """
    _whole("width", width)
    at = _positions(positions)
    angles = at[..., None] * rotary_frequencies(width, base, None)[0]
    result = np.empty((*at.shape, width), dtype)
    result[..., 0::2] = np.sin(angles)
    result[..., 1::2] = np.cos(angles[..., : width // 2])
    return result


def rotary_table(
    positions: Any,
    width: int,
    *,
    base: float = 10000.0,
    scaling: RotaryScaling | None = None,
    dtype: Any = np.float64,
) -> tuple[Array, Array]:
    """Cosines and sines of the rotary angles, each ``(..., n, width / 2)``.

        angle[p, i] = p / base^(2i / width)

    (Su et al. 2021, section 3.2.2.)

    Args:
        positions: whole numbers ``(..., n)``, or their number n for 0, 1, ..., n - 1.
        width: number of features that turn; even.
        base: of the wavelengths.
        scaling: for texts longer than those that a model was trained on; it changes the angles, and "yarn"
            multiplies cosines and sines.
        dtype: of the result; angles are float64 whatever it is.

    Raises:
        HeadwiseError: ``width`` is not even and positive, ``base`` not positive, ``scaling`` no scaling.
    """
    _whole("width", width)
    if width % 2:
        raise HeadwiseError("width", "an even number", str(width), "features turn in pairs")
    frequencies, magnitude = rotary_frequencies(width, base, scaling)
    angles = _positions(positions)[..., None] * frequencies
    return (magnitude * np.cos(angles)).astype(dtype), (magnitude * np.sin(angles)).astype(dtype)


def rotary(
    x: Any,
    positions: Any = None,
    *,
    base: float = 10000.0,
    interleaved: bool = False,
    width: int | None = None,
    scaling: RotaryScaling | None = None,
    table: tuple[Any, Any] | None = None,
) -> Any:
    """Rotary position embedding of ``(..., n, d)``: pairs of features turn by an angle that grows with the
    position, so that the dot product of a query and a key depends on the difference of their positions only.

        (a, b) -> (a cos - b sin, a sin + b cos),   angle[p, i] = p / base^(2i / width)

    (Su et al. 2021, equation 34.) Pair i is features (i, i + width / 2), the half-split form of GPT-NeoX and
    Llama as transformers has it, or features (2i, 2i + 1) when ``interleaved``, the form of the paper and of
    GPT-J. The two differ by a fixed order of the features; a weight fits one of them.

    Args:
        x: queries or keys, float32 or float64; NumPy, torch or JAX.
        positions: whole numbers that broadcast to ``(..., n)``, such as ``(n,)`` or ``(B, 1, n)``; None means
            0, 1, ..., n - 1.
        base: of the wavelengths.
        interleaved: which features are a pair.
        width: only the first ``width`` features turn (even); None means all.
        scaling: as for :func:`rotary_table`.
        table: (cosines, sines) in place of positions, base and scaling, each broadcasting to
            ``(..., n, width / 2)``.

    Returns:
        An array of the kind, shape and dtype of ``x``.

    Raises:
        ShapeError, DtypeError, HeadwiseError: positions, table or width do not fit.

    >>> rotary(np.array([[1.0, 0.0], [1.0, 0.0]])).round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    (view,), restore = take({"x": x})
    if view.ndim < 2:
        raise ShapeError("x", "(..., n, d)", f"shape {view.shape}", "x[None] is a sequence of one position")
    d = view.shape[-1]
    turned = d if width is None else width
    _whole("width", turned)
    if turned % 2 or turned > d:
        hint = "features turn in pairs; the others stay as they are"
        raise HeadwiseError("width", f"an even number between 2 and {d}, the width of x", str(turned), hint)
    if table is None:
        at = np.arange(view.shape[-2]) if positions is None else integers("positions", positions)
        cosines, sines = rotary_table(at, turned, base=base, scaling=scaling)
        name, received = "positions", at.shape
    else:
        if positions is not None or scaling is not None:
            expected = "positions and scaling, or table, not both"
            raise HeadwiseError("table", expected, "both", "a table has positions and scaling in it")
        (cosines, sines), _ = take({"cosines": table[0], "sines": table[1]})
        name, received = "table", cosines.shape
    try:
        full = (*view.shape[:-1], turned // 2)
        cosines, sines = np.broadcast_to(cosines, full), np.broadcast_to(sines, full)
    except ValueError:
        expected = f"one per position of x {view.shape}" + (
            f", {turned // 2} wide" if name == "table" else ""
        )
        hint = "positions of one batch entry serve all heads as (B, 1, n)"
        raise ShapeError(name, expected, f"shape {received}", hint) from None
    result = view.copy()
    first, second = (
        (slice(0, turned, 2), slice(1, turned, 2))
        if interleaved
        else (slice(0, turned // 2), slice(turned // 2, turned))
    )
    a, b = view[..., first], view[..., second]
    result[..., first] = a * cosines - b * sines
    result[..., second] = a * sines + b * cosines
    return restore(result)


def alibi_slopes(num_heads: int) -> Floats:
    """The slopes of ALiBi, ``(num_heads,)`` float64, for ``attention(..., alibi_slopes=...)``.

    For a power of two H, slope h = 2^(-8 (h + 1) / H), h = 0, ..., H - 1 (Press et al. 2022, section 3). For
    any other number, as in the authors' code: those of the next lower power of two, then every second one of
    the next higher power of two.

    Raises:
        HeadwiseError: ``num_heads`` is no whole number >= 1.

    >>> alibi_slopes(4)
    array([0.25      , 0.0625    , 0.015625  , 0.00390625])
    """
    _whole("num_heads", num_heads)
    lower = 1 << (int(num_heads).bit_length() - 1)

    def of_power(heads: int) -> Floats:
        return np.exp2(-8.0 * np.arange(1, heads + 1) / heads)

    return np.concatenate([of_power(lower), of_power(2 * lower)[0::2][: num_heads - lower]])


def t5_buckets(
    n_q: int,
    n_k: int,
    *,
    query_offset: int = 0,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Integers:
    """Bucket of each (query, key) pair, ``(n_q, n_k)``: the index into T5's learned relative biases.

    With r = key position - query position: bidirectional, half of the buckets are for r > 0 and both halves
    count |r|; otherwise the buckets count max(-r, 0). Of the B buckets of a side the first B / 2 are for the
    distances 0, 1, ..., B / 2 - 1; the others grow with the logarithm,
    B/2 + floor(ln(distance / (B/2)) / ln(max_distance / (B/2)) * B/2), and the last one is open. (Raffel et
    al. 2020, section 2.1, and the authors' code.) The bias of head h is then ``table[buckets, h]``, for
    ``attention(..., attn_bias=table[buckets].transpose(2, 0, 1))``.

    Args:
        n_q, n_k: number of queries and of keys.
        query_offset: position of query 0 among the keys.
        bidirectional: True in encoders; False in decoders.
        num_buckets: of both sides together.
        max_distance: from here on every distance shares the last bucket.

    Raises:
        HeadwiseError: too few buckets, or a ``max_distance`` within the exact ones.

    >>> t5_buckets(2, 4, num_buckets=8)
    array([[0, 5, 6, 6],
           [1, 0, 5, 6]])
    """
    _whole("num_buckets", num_buckets)
    _whole("max_distance", max_distance)
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    if exact < 1 or max_distance <= exact:
        least = 4 if bidirectional else 2
        expected = f"at least {least} buckets, and max_distance above the {exact} exact distances"
        received = f"num_buckets={num_buckets}, max_distance={max_distance}"
        raise HeadwiseError("num_buckets", expected, received, "T5 has num_buckets=32, max_distance=128")
    relative = np.arange(n_k) - (np.arange(n_q)[:, None] + query_offset)
    distance = np.abs(relative) if bidirectional else np.maximum(-relative, 0)
    grown = np.log(np.maximum(distance, exact) / exact) / math.log(max_distance / exact) * (side - exact)
    far = np.minimum(exact + grown.astype(np.int64), side - 1)
    bucket = np.where(distance < exact, distance, far)
    return bucket + side * (relative > 0) if bidirectional else bucket


def _positions(positions: Any) -> Integers:
    return np.arange(positions) if is_whole(positions) else integers("positions", positions)


def _whole(name: str, number: Any) -> None:
    if not is_whole(number) or number < 1:
        raise HeadwiseError(name, "a whole number >= 1", shown(number), f"{name}=64")
