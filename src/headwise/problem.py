"""One attention problem, validated once.

Every shape message of the package is born here. Letters: ``H`` query heads, ``H_kv`` key/value heads,
``n_q`` queries, ``n_k`` keys, ``d_k`` width of queries and keys, ``d_v`` width of values; any number of
leading axes before them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.options import (
    ALIGNMENTS,
    both_readings,
    check_dropout,
    check_flags,
    check_running,
    is_whole,
    resolve_scale,
    shown,
)
from headwise.request import LARGEST_POSITION, AuxRequest

Shape = tuple[int, ...]

NOTHING = AuxRequest()
FEW_CLASSES = 1024


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """What to compute, in one normal form: views of shape ``(*lead, heads, n, d)``, every option resolved.

    ``mask`` is None, boolean (True = attend) or of the query's dtype (added), seen as
    ``(*lead, H, n_q, n_k)``. ``value`` is None where only statistics
    are asked for. ``offset`` is the position of query 0 among the keys. ``one_head`` says that the caller
    gave ``(n, d)`` arrays, so that the results lose their head axis again.
    """

    query: NDArray[Any]
    key: NDArray[Any]
    value: NDArray[Any] | None
    mask: NDArray[Any] | None
    scale: float
    is_causal: bool
    offset: int
    request: AuxRequest
    key_tokens: NDArray[np.int64] | None
    query_tokens: NDArray[np.int64] | None
    segments: NDArray[np.int64] | None
    num_threads: int | None
    one_head: bool

    @property
    def lead(self) -> Shape:
        return self.query.shape[:-3]

    @property
    def heads(self) -> int:
        return self.query.shape[-3]

    @property
    def kv_heads(self) -> int:
        return self.key.shape[-3]

    @property
    def n_q(self) -> int:
        return self.query.shape[-2]

    @property
    def n_k(self) -> int:
        return self.key.shape[-2]

    @property
    def d_k(self) -> int:
        return self.query.shape[-1]

    @property
    def d_v(self) -> int:
        return 0 if self.value is None else self.value.shape[-1]


def build_problem(
    query: NDArray[Any],
    key: NDArray[Any],
    value: NDArray[Any] | None,
    mask: NDArray[Any] | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    return_aux: Any = None,
    implementation: str = "auto",
    num_threads: int | None = None,
) -> Problem:
    """Check every option once and bring the arrays into one normal form.

    The options are those of ``headwise.attention``, which says what they mean.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: with argument, expected, received and a hint.
    """
    check_flags(is_causal, enable_gqa)
    check_dropout(dropout_p)
    check_running(implementation, num_threads)
    request = NOTHING if return_aux is None else return_aux
    if not isinstance(request, AuxRequest):
        hint = "return_aux=headwise.AuxRequest(entropy=True)"
        raise HeadwiseError("return_aux", "None or an AuxRequest", shown(request), hint)
    one_head = query.ndim == 2
    _check_sizes(query.shape, key.shape, None if value is None else value.shape, enable_gqa)
    if one_head:
        query, key, value = query[None], key[None], None if value is None else value[None]
    lead, n_q, n_k = query.shape[:-3], query.shape[-2], key.shape[-2]
    offset = _offset(
        query_offset, causal_alignment, n_q, n_k, "is_causal" if is_causal else request.needs_positions()
    )
    key_tokens = query_tokens = segments = None
    if request.matches is not None:
        key_tokens, query_tokens = _tokens(request.matches, lead, n_q, n_k, offset)
    if request.segments is not None:
        segments = _segments(request, lead, n_k)
    return Problem(
        query,
        key,
        value,
        None if mask is None else _mask(mask, query.dtype, (*query.shape[:-1], n_k)),
        resolve_scale(scale, query.shape[-1]),
        is_causal,
        offset,
        request,
        key_tokens,
        query_tokens,
        segments,
        num_threads,
        one_head,
    )


def _check_sizes(q: Shape, k: Shape, v: Shape | None, enable_gqa: bool | None) -> None:
    if len(q) < 2:
        hint = f"query[{', '.join(['None'] * (2 - len(q)))}] adds the missing axes"
        raise ShapeError("query", "(..., H, n_q, d_k), or (n_q, d_k) for one head", f"shape {q}", hint)
    for name, shape in (("key", k), ("value", v)):
        if shape is None:
            continue
        if len(shape) != len(q):
            hint = "query, key and value are all (..., H, n, d), or all (n, d) for one head"
            raise ShapeError(name, f"{len(q)} axes, as query {q} has", f"shape {shape}", hint)
        if shape[:-3] != q[:-3]:
            hint = "np.broadcast_to repeats an array along an axis without a copy"
            raise ShapeError(name, f"leading axes {q[:-3]}, as query {q} has", f"shape {shape}", hint)
    for name, shape in (("query", q), ("value", v)):
        if shape is not None and shape[-1] == 0:
            hint = "the layout is (..., H, n, d)"
            raise ShapeError(name, "a last axis (the width of a head) of at least 1", f"shape {shape}", hint)
    if k[-1] != q[-1]:
        hint = "queries and keys meet in dot products; only values may have another width"
        if k[-2] == q[-1]:
            hint = f"if key is transposed, swap its last two axes: one row per key, (..., {k[-1]}, {k[-2]})"
        raise ShapeError("key", f"width d_k = {q[-1]}, the last axis of query {q}", f"shape {k}", hint)
    if v is not None and v[-2] != k[-2]:
        raise ShapeError(
            "value", f"{k[-2]} rows, one per key of {k}", f"shape {v}", "value j belongs to key j"
        )
    if len(q) > 2:
        _check_heads(q, k, v, enable_gqa)


def _check_heads(q: Shape, k: Shape, v: Shape | None, enable_gqa: bool | None) -> None:
    heads, kv_heads = q[-3], k[-3]
    for name, shape in (("query", q), ("key", k)):
        if shape[-3] == 0:
            hint = "the layout is (..., H, n, d)"
            raise ShapeError(name, "at least one head (the third axis from the end)", f"shape {shape}", hint)
    if v is not None and v[-3] != kv_heads:
        raise ShapeError(
            "value", f"{kv_heads} heads, as key {k} has", f"shape {v}", "keys and values come in pairs"
        )
    if heads % kv_heads:
        hint = (
            f"{heads} query heads go with {_listed(divisors(heads))} key heads; the layout is (..., H, n, d)"
        )
        raise ShapeError(
            "key", f"a number of heads that divides query's {heads}", f"{kv_heads} heads, shape {k}", hint
        )
    if enable_gqa is False and heads != kv_heads:
        expected = f"{heads} key heads, as many as query heads, when enable_gqa=False"
        hint = "with enable_gqa=True or None, groups of query heads share a key head"
        raise ShapeError("key", expected, f"{kv_heads} heads, shape {k}", hint)


def _mask(mask: NDArray[Any], dtype: np.dtype[Any], full: Shape) -> NDArray[Any]:
    """The mask seen as (*lead, H, n_q, n_k), refused where its meaning would have to be guessed."""
    if mask.dtype != np.bool_:
        if mask.dtype.kind in "iu":
            expected = "booleans (True = attend) or floats (added to the scores)"
            raise DtypeError("attn_mask", expected, str(mask.dtype), "attn_mask != 0, if 1 means attend")
        if mask.dtype != dtype:
            expected = f"bool, or {dtype} as query has"
            hint = "nothing is cast in silence: convert the mask to the dtype of query"
            raise DtypeError("attn_mask", expected, str(mask.dtype), hint)
        if _only_zeros_and_ones(mask):
            expected = "booleans (True = attend) or floats (added to the scores)"
            received = f"{mask.dtype} with nothing but 0 and 1 in it, which would add 1 and hide no key"
            raise HeadwiseError(
                "attn_mask", expected, received, "attn_mask != 0 (.bool() in torch), if 1 means attend"
            )
    if mask.shape == full:
        return mask
    try:
        return np.broadcast_to(mask, full)
    except ValueError:
        expected = f"a shape that broadcasts, aligned at the right, to (*lead, H, n_q, n_k) = {full}"
        raise ShapeError("attn_mask", expected, f"shape {mask.shape}", _mask_hint(mask.shape, full)) from None


def _mask_hint(shape: Shape, full: Shape) -> str:
    batch, n_q, n_k = full[:-3], full[-2], full[-1]
    if len(batch) == 1 and shape == (*batch, n_k):
        return "for one row per batch entry, attn_mask[:, None, None, :]"
    if len(batch) == 1 and shape == (*batch, n_q, n_k):
        return "for one grid per batch entry, attn_mask[:, None]"
    if n_q != n_k and shape[-2:] == (n_k, n_q):
        return "rows are queries and columns are keys: swap the last two axes"
    return f"a mask of shape ({n_q}, {n_k}) serves every head and batch entry"


def _only_zeros_and_ones(mask: NDArray[Any]) -> bool:
    """Does the mask hold both 0 and 1 and nothing else?"""
    one_seen = zero_seen = False
    # In small pieces, up to the first other number: most masks are judged by their first row.
    for piece in np.nditer(mask, ["external_loop", "buffered", "zerosize_ok"], buffersize=8192):
        one, zero = np.asarray(piece == 1), np.asarray(piece == 0)
        if not np.all(one | zero):
            return False
        one_seen, zero_seen = one_seen or bool(one.any()), zero_seen or bool(zero.any())
    return one_seen and zero_seen


def _offset(offset: Any, alignment: Any, n_q: int, n_k: int, needed_by: str | None) -> int:
    """Position of query 0 among the keys."""
    if offset is None and alignment is None:
        if needed_by is not None and n_q != n_k:
            expected = "causal_alignment= or query_offset= beside it, as it uses positions and n_q != n_k"
            received = f"neither, with {n_q} queries and {n_k} keys"
            raise ShapeError(needed_by, expected, received, both_readings(n_q, n_k))
        return 0
    if alignment is not None:
        if not isinstance(alignment, str) or alignment not in ALIGNMENTS:
            expected = 'None, "upper_left" or "lower_right"'
            raise HeadwiseError("causal_alignment", expected, shown(alignment), both_readings(n_q, n_k))
        if offset is not None:
            received = f"query_offset={shown(offset)} and causal_alignment={shown(alignment)}"
            hint = "either one says where the queries stand"
            raise HeadwiseError("query_offset", "query_offset or causal_alignment, not both", received, hint)
        return 0 if alignment == "upper_left" else n_k - n_q
    if isinstance(offset, list | tuple) or getattr(offset, "shape", ()) != ():
        expected = "one whole number (one per batch entry is not yet served)"
        raise CapabilityError("query_offset", expected, shown(offset), "call once per batch entry")
    if not is_whole(offset) or abs(offset) > LARGEST_POSITION:
        expected = f"a whole number between -{LARGEST_POSITION} and {LARGEST_POSITION}"
        raise HeadwiseError(
            "query_offset", expected, shown(offset), "it is the position of query 0 among the keys"
        )
    return int(offset)


def _tokens(
    matches: Any, lead: Shape, n_q: int, n_k: int, offset: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids of the keys and of the queries, seen as (*lead, n_k) and (*lead, n_q)."""
    if isinstance(matches, tuple):
        return _ids("matches", matches[0], lead, n_k, "key"), _ids("matches", matches[1], lead, n_q, "query")
    keys = _ids("matches", matches, lead, n_k, "key")
    positions = np.arange(offset, offset + n_q)
    inside = (positions >= 0) & (positions < n_k)
    # A query that stands outside the keys has no token: it gets an id that no key has.
    absent = 0 if inside.all() else np.setdiff1d(np.arange(matches.size + 1), matches)[0]
    queries = np.full((*lead, n_q), absent)
    queries[..., inside] = keys[..., positions[inside]]
    return keys, queries


def _segments(request: AuxRequest, lead: Shape, n_k: int) -> NDArray[np.int64]:
    segments = _ids("segments", request.segments, lead, n_k, "key")
    limit = max(n_k, FEW_CLASSES)
    if request.classes > limit:
        hint = "number the classes without gaps: np.unique(segments, return_inverse=True)[1]"
        raise HeadwiseError("segments", f"classes below {limit}", f"class {request.classes - 1}", hint)
    return segments


def _ids(name: str, ids: NDArray[np.int64], lead: Shape, n: int, what: str) -> NDArray[np.int64]:
    full = (*lead, n)
    if ids.ndim and ids.shape[-1] == n and ids.ndim <= len(full):
        try:
            return np.broadcast_to(ids, full)
        except ValueError:
            pass
    expected = f"one number per {what}, shape {(n,)}" + (f" or {full}" if lead else "")
    raise ShapeError(name, expected, f"shape {ids.shape}", f"there are {n} {what} positions")


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Sizes of a multi-head block: heads, key/value heads and the widths of one head."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int


def check_block(arrays: dict[str, NDArray[Any] | None], num_heads: Any, num_kv_heads: Any) -> BlockSizes:
    """Check that every weight fits its input, and that the heads divide the projected widths.

    Args:
        arrays: the arrays of ``multi_head_attention`` under their names; ``context`` and biases may be None.
        num_heads, num_kv_heads: as given.
    """
    shapes = {name: array.shape for name, array in arrays.items() if array is not None}
    x = shapes["x"]
    if len(x) < 2:
        raise ShapeError("x", "(..., n, d_in)", f"shape {x}", "x[None] makes a sequence of one token")
    context = shapes.get("context", x)
    if len(context) != len(x) or context[:-2] != x[:-2]:
        hint = "np.broadcast_to repeats an array along an axis without a copy"
        raise ShapeError("context", f"leading axes {x[:-2]}, as x {x} has", f"shape {context}", hint)
    source = "context" if "context" in shapes else "x"
    inputs = {"w_q": ("x", x), "w_k": (source, context), "w_v": (source, context)}
    for name in ("w_q", "w_k", "w_v", "w_o"):
        if len(shapes[name]) != 2:
            hint = "head i owns its own columns of one weight that all heads share"
            raise ShapeError(name, "2 axes, (width in, width out)", f"shape {shapes[name]}", hint)
    for name, (from_name, from_shape) in inputs.items():
        shape = shapes[name]
        if shape[0] != from_shape[-1]:
            hint = f"the projection is {from_name} @ {name}"
            if shape[1] == from_shape[-1]:
                hint += f"; a weight stored as (width out, width in) goes in as {name}.T"
            raise ShapeError(
                name, f"{from_shape[-1]} rows, the width of {from_name} {from_shape}", f"shape {shape}", hint
            )
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    for name, number in (("num_heads", num_heads), ("num_kv_heads", kv_heads)):
        if not is_whole(number) or number < 1:
            raise HeadwiseError(name, "a whole number >= 1", shown(number), f"{name}=1 is a single head")
    if num_heads % kv_heads:
        hint = f"{num_heads} query heads go with {_listed(divisors(num_heads))} key/value heads"
        raise ShapeError("num_kv_heads", f"a divisor of num_heads = {num_heads}", str(kv_heads), hint)
    d_k = _head_width("w_q", shapes["w_q"], "num_heads", num_heads)
    kv_name = "num_heads" if num_kv_heads is None else "num_kv_heads"
    if _head_width("w_k", shapes["w_k"], kv_name, kv_heads) != d_k:
        expected = f"{kv_heads * d_k} columns ({kv_heads} heads of width {d_k}, as w_q gives)"
        fitting = shapes["w_k"][1] // d_k if shapes["w_k"][1] % d_k == 0 else 0
        grouped = (
            f"; for grouped heads, num_kv_heads={fitting}" if fitting and num_heads % fitting == 0 else ""
        )
        hint = f"queries and keys meet in dot products{grouped}"
        raise ShapeError("w_k", expected, f"shape {shapes['w_k']}", hint)
    d_v = _head_width("w_v", shapes["w_v"], kv_name, kv_heads)
    if shapes["w_o"][0] != num_heads * d_v:
        expected = f"{num_heads * d_v} rows ({num_heads} heads of width d_v = {d_v}, side by side)"
        raise ShapeError("w_o", expected, f"shape {shapes['w_o']}", "heads are concatenated, not added")
    for letter in "qkvo":
        bias = shapes.get(f"b_{letter}")
        width = shapes[f"w_{letter}"][1]
        if bias is not None and bias != (width,):
            expected = f"shape ({width},), one number per column of w_{letter}"
            raise ShapeError(f"b_{letter}", expected, f"shape {bias}", "None means no bias")
    return BlockSizes(int(num_heads), int(kv_heads), d_k, d_v)


def _head_width(name: str, shape: Shape, number_name: str, number: int) -> int:
    width = shape[1]
    if width == 0:
        raise ShapeError(name, "at least one column", f"shape {shape}", "each head owns d columns")
    if width % number:
        below = [d for d in divisors(width) if d < number][-1:]
        above = [d for d in divisors(width) if d > number][:1]
        hint = f"the nearest numbers that divide it: {_listed(below + above)}"
        raise ShapeError(number_name, f"a divisor of {width}, the width of {name} {shape}", str(number), hint)
    return width // number


def divisors(n: int) -> list[int]:
    """Whole numbers that divide n, smallest first."""
    return [d for d in range(1, n + 1) if n % d == 0]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
