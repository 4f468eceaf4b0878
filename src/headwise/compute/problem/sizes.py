"""Sizes of one call: query, key and value against each other, and what the messages list."""

from math import isqrt

from headwise.errors import ShapeError

Shape = tuple[int, ...]


def check_sizes(q: Shape, k: Shape, v: Shape | None, enable_gqa: bool | None) -> None:
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
            f"{heads} query heads go with {listed(divisors(heads))} key heads; the layout is (..., H, n, d)"
        )
        raise ShapeError(
            "key", f"a number of heads that divides query's {heads}", f"{kv_heads} heads, shape {k}", hint
        )
    if enable_gqa is False and heads != kv_heads:
        expected = f"{heads} key heads, as many as query heads, when enable_gqa=False"
        hint = "with enable_gqa=True or None, groups of query heads share a key head"
        raise ShapeError("key", expected, f"{kv_heads} heads, shape {k}", hint)


def divisors(n: int) -> list[int]:
    """Whole numbers that divide n, smallest first."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
