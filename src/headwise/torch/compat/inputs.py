"""The arguments of a call of the layer in torch's place: checked, and masks with their meaning turned."""

import math

import torch
from torch import Tensor, nn

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.torch.arguments import check_kind
from headwise.torch.operator.call import only_zeros_and_ones


def check_call(layer: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Is there a batch?

    Raises:
        ShapeError, DtypeError, CapabilityError: inputs that do not fit together.
    """
    weight = layer.q_proj_weight if layer.in_proj_weight is None else layer.in_proj_weight
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise DtypeError(name, "a torch tensor", type(x).__name__, "torch.as_tensor makes one")
        if x.is_nested:
            expected = "a dense tensor, padded, with key_padding_mask"
            hint = "encoder.use_nested_tensor = False keeps torch's encoder from making nested tensors"
            raise CapabilityError(name, expected, "a nested tensor", hint)
        check_kind(name, x, weight)
    shapes = {"query": query.shape, "key": key.shape, "value": value.shape}
    if query.ndim not in (2, 3):
        layout = "(B, n, embed_dim)" if layer.batch_first else "(n, B, embed_dim)"
        raise ShapeError("query", f"{layout}, or (n, embed_dim)", f"shape {tuple(query.shape)}")
    place = (0 if layer.batch_first else 1) if query.ndim == 3 else None
    widths = {"query": layer.embed_dim, "key": layer.kdim, "value": layer.vdim}
    for name, shape in shapes.items():
        received = f"shape {tuple(shape)}"
        if len(shape) != query.ndim:
            expected = f"{query.ndim} axes, as query {tuple(query.shape)} has"
            raise ShapeError(name, expected, received, "all three with a batch, or all three without")
        if shape[-1] != widths[name]:
            hint = "kdim= and vdim= give key and value widths of their own"
            raise ShapeError(name, f"a last axis of {widths[name]}", received, hint)
        if place is not None and shape[place] != query.shape[place]:
            expected = f"a batch of {query.shape[place]}, axis {place} of query {tuple(query.shape)}"
            hint = f"this layer has batch_first={layer.batch_first}"
            raise ShapeError(name, expected, received, hint)
    if key.shape[:-1] != value.shape[:-1]:
        expected = f"the leading axes of key {tuple(key.shape)}"
        raise ShapeError("value", expected, f"shape {tuple(value.shape)}", "value j belongs to key j")
    return query.ndim == 3


def as_seen(
    attn_mask: Tensor | None,
    padding: Tensor | None,
    batched: bool,
    heads: int,
    lengths: tuple[int, int, int],
    dtype: torch.dtype,
) -> tuple[Tensor | None, Tensor | None]:
    """Both masks of torch as ``attention`` takes them: a mask with True = attend or floats, and a bias.

    Args:
        attn_mask: ``(n_q, n_k)`` or ``(batch * heads, n_q, n_k)``, True = hidden.
        padding: ``(batch, n_k)``, or ``(n_k,)`` where there is no batch, True = hidden.
        lengths: batch, n_q and n_k.
        dtype: of the queries.

    Raises:
        ShapeError, DtypeError, HeadwiseError: masks of another shape, or of numbers that hide nothing.
    """
    batch, n_q, n_k = lengths
    if attn_mask is not None:
        _check_mask("attn_mask", attn_mask)
        wide = (batch * heads, n_q, n_k)
        if tuple(attn_mask.shape) not in ((n_q, n_k), wide):
            expected = f"shape {(n_q, n_k)}, or {wide} (batch * num_heads, n_q, n_k)"
            hint = "a mask of keys only is key_padding_mask"
            raise ShapeError("attn_mask", expected, f"shape {tuple(attn_mask.shape)}", hint)
        if attn_mask.ndim == 3:
            attn_mask = attn_mask.reshape(batch, heads, n_q, n_k)
        if attn_mask.dtype == torch.bool:
            attn_mask = ~attn_mask
    if padding is None:
        return attn_mask, None
    _check_mask("key_padding_mask", padding)
    fitting = (batch, n_k) if batched else (n_k,)
    if tuple(padding.shape) != fitting:
        expected = f"shape {fitting}, one value per key"
        raise ShapeError("key_padding_mask", expected, f"shape {tuple(padding.shape)}", "True hides a key")
    padding = padding.reshape(batch, 1, 1, n_k)
    if attn_mask is None and padding.dtype == torch.bool:
        return ~padding, None
    if padding.dtype == torch.bool:
        # A bias of one row per batch entry, so that both masks together need no n_q x n_k array each.
        padding = torch.zeros_like(padding, dtype=dtype).masked_fill(padding, -math.inf)
    return attn_mask, padding


def _check_mask(name: str, mask: Tensor) -> None:
    expected = "booleans (True hides the key) or floats (added to the scores)"
    if mask.dtype != torch.bool and not mask.is_floating_point():
        received = str(mask.dtype).removeprefix("torch.")
        raise DtypeError(name, expected, received, f"{name} != 0, if 1 hides a key")
    if mask.is_floating_point() and not torch.compiler.is_compiling() and only_zeros_and_ones(mask):
        received = "floats with nothing but 0 and 1 in them, which would add 1 and hide no key"
        raise HeadwiseError(name, expected, received, f"{name}.bool(), if 1 hides a key")
