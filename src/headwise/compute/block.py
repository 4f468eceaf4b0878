"""The multi-head block on plain arrays: project, split into heads, attend, concatenate, project back."""

from typing import Any

import numpy as np

from headwise.compute.arrays import take
from headwise.compute.functional import attention
from headwise.compute.problem import check_block
from headwise.compute.request import AuxRequest
from headwise.plain.types import AnyArray, Array

OPTIONAL = ("context", "b_q", "b_k", "b_v", "b_o", "attn_mask")


def multi_head_attention(
    x: AnyArray,
    context: AnyArray = None,
    *,
    w_q: AnyArray,
    w_k: AnyArray,
    w_v: AnyArray,
    w_o: AnyArray,
    num_heads: int,
    num_kv_heads: int | None = None,
    b_q: AnyArray = None,
    b_k: AnyArray = None,
    b_v: AnyArray = None,
    b_o: AnyArray = None,
    attn_mask: AnyArray = None,
    is_causal: bool = False,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    scale: float | None = None,
    return_aux: AuxRequest | None = None,
    implementation: str = "auto",
    num_threads: int | None = None,
) -> Any:
    """Multi-head attention of ``x`` over ``context`` (or over itself).

        head_i = attention(x w_q[:, i], context w_k[:, i], context w_v[:, i])
        result = concatenate(head_1, ..., head_h) w_o

    (Vaswani et al. 2017, section 3.2.2.) Here [:, i] are the columns of head i: i * d_k up to (i + 1) * d_k
    of ``w_q``; key/value heads own theirs likewise. All arrays are of one kind (NumPy, torch, JAX) and one
    dtype.

    Args:
        x: ``(..., n, d_in)``.
        context: ``(..., n_k, d_context)`` for cross-attention; None for self-attention.
        w_q: ``(d_in, h * d_k)``.
        w_k: ``(d_context, h_kv * d_k)``.
        w_v: ``(d_context, h_kv * d_v)``.
        w_o: ``(h * d_v, d_out)``.
        num_heads: h; divides the width of ``w_q``.
        num_kv_heads: h_kv; divides h and the widths of ``w_k`` and ``w_v``; None means h.
        b_q, b_k, b_v, b_o: biases, one number per column of the weight, or None.
        attn_mask, is_causal, causal_alignment, query_offset, scale, return_aux, implementation, num_threads:
            as for ``headwise.attention``, over heads ``(..., h, n, n_k)``.

    Returns:
        ``(..., n, d_out)``, or that and the ``Aux`` when ``return_aux`` is given.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: as ``headwise.attention``.

    >>> import numpy as np
    >>> one = np.eye(4)
    >>> multi_head_attention(np.array([[1.0, 2, 3, 4]]), w_q=one, w_k=one, w_v=one, w_o=one, num_heads=2)
    array([[1., 2., 3., 4.]])
    """
    arrays = {"x": x, "context": context, "w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o}
    arrays |= {"b_q": b_q, "b_k": b_k, "b_v": b_v, "b_o": b_o, "attn_mask": attn_mask}
    views, restore = take(arrays, OPTIONAL)
    arrays = dict(zip(arrays, views, strict=True))
    mask = arrays.pop("attn_mask")
    sizes = check_block(arrays, num_heads, num_kv_heads)

    x, context = arrays["x"], arrays["x"] if context is None else arrays["context"]
    heads, aux = attention(
        _split(_project(x, arrays["w_q"], arrays["b_q"]), sizes.heads),
        _split(_project(context, arrays["w_k"], arrays["b_k"]), sizes.kv_heads),
        _split(_project(context, arrays["w_v"], arrays["b_v"]), sizes.kv_heads),
        mask,
        is_causal=is_causal,
        causal_alignment=causal_alignment,
        query_offset=query_offset,
        scale=scale,
        return_aux=AuxRequest() if return_aux is None else return_aux,
        implementation=implementation,
        num_threads=num_threads,
    )
    result = restore(_project(_join(heads), arrays["w_o"], arrays["b_o"]))
    return result if return_aux is None else (result, aux.map(restore))


def _project(x: Array, weight: Array, bias: Array | None) -> Array:
    projected = x @ weight
    return projected if bias is None else projected + bias


def _split(x: Array, heads: int) -> Array:
    """(..., n, h * d) -> (..., h, n, d)."""
    return np.moveaxis(x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads), -2, -3)


def _join(heads: Array) -> Array:
    """(..., h, n, d) -> (..., n, h * d)."""
    rows = np.moveaxis(heads, -3, -2)
    return rows.reshape(*rows.shape[:-2], rows.shape[-2] * rows.shape[-1])
