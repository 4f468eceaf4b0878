"""Sizes of a multi-head block: every weight against its input, heads against widths."""

from dataclasses import dataclass
from typing import Any

from headwise.compute.problem.sizes import Shape, divisors, listed
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.types import Array
from headwise.plain.values import is_whole, shown


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """Sizes of a multi-head block: heads, key/value heads and the widths of one head."""

    heads: int
    kv_heads: int
    d_k: int
    d_v: int


def check_block(arrays: dict[str, Array | None], num_heads: Any, num_kv_heads: Any) -> BlockSizes:
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
        hint = f"{num_heads} query heads go with {listed(divisors(num_heads))} key/value heads"
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
        hint = f"the nearest numbers that divide it: {listed(below + above)}"
        raise ShapeError(number_name, f"a divisor of {width}, the width of {name} {shape}", str(number), hint)
    return width // number
