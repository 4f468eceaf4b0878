"""One pass of a layer: project, place, attend; and the projections alone, kept for many passes."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.compute.request import AuxRequest
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.values import shown
from headwise.torch.arguments import check_key_mask
from headwise.torch.caches.cache import Cache, Offset, Place
from headwise.torch.functional import attention
from headwise.torch.layer.heads import Heads, KeysValues
from headwise.torch.layer.inputs import (
    check_cache,
    check_input,
    check_kept,
    merge_masks,
    offset_of,
    seen_columns,
)
from headwise.torch.positions.embeddings import check_positions

if TYPE_CHECKING:
    from headwise.torch.layer.multi_head import MultiHeadAttention


def attend_heads(
    layer: "MultiHeadAttention",
    query: Tensor,
    key: Tensor | KeysValues | None = None,
    value: Tensor | None = None,
    *,
    attn_mask: Tensor | None = None,
    attn_bias: Tensor | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Any = None,
    is_causal: bool | None = None,
    causal_alignment: str | None = None,
    query_offset: Any = None,
    positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    head_mask: Any = None,
    cache: Cache | None = None,
    rng: Any = None,
    return_aux: AuxRequest | None = None,
    implementation: str = "auto",
) -> Heads:
    """Everything up to the outputs of the heads; the arguments are those of the layer's ``forward``."""
    check_input("query", query, layer.embed_dim, layer.q_proj)
    lead, n_q = tuple(query.shape[:-2]), query.shape[-2]
    _check_roles(layer, key, value, positions, key_positions)
    place: Place | None = None
    if cache is not None:
        placed = query_offset is not None or causal_alignment is not None
        check_cache(cache, layer, key is None, is_causal, placed)
        place, key_mask = cache.place(lead, n_q, key_mask), None
    if isinstance(key, KeysValues):
        if key_mask is not None:
            hint = "keys_and_values(memory, key_mask=...)"
            raise HeadwiseError("key_mask", "None beside a KeysValues, which holds its own", "a mask", hint)
        check_kept(key, lead, layer.num_kv_heads, (layer.head_dim, layer.v_head_dim))
        k, v, key_mask = key.key, key.value, key.key_mask
    else:
        if key is None and layer.kdim != layer.embed_dim:
            expected = (
                f"a tensor (..., n, {layer.kdim}): this layer reads another width than its queries have"
            )
            raise ShapeError("key", expected, "None", "layer(x, memory)")
        k, v = _project(layer, query if key is None else key, value, lead)
    q = _split(layer.q_proj(query), layer.num_heads)
    if layer.q_norm is not None:
        q = _normed(layer.q_norm, q)
    n_k = k.shape[-2]
    if layer.rope is not None:
        start: Offset = 0
        if place is not None:
            start = place.position
        elif positions is None:
            start = offset_of("rope", n_q, n_k, key is None, query_offset, causal_alignment)
        check_positions("positions", positions, (*lead, n_q))
        q = layer.rope(q, positions, offset=start)
        if not isinstance(key, KeysValues):
            own_positions = positions if key is None and key_positions is None else key_positions
            check_positions("key_positions", own_positions, (*lead, n_k))
            k = layer.rope(k, own_positions, offset=0 if place is None else start)

    options: dict[str, Any] = {"query_offset": query_offset, "causal_alignment": causal_alignment}
    if cache is not None and place is not None:
        seen = cache.write(k, v, place)
        k, v = seen.key, seen.value
        attn_mask = seen_columns("attn_mask", attn_mask, seen)
        attn_bias = seen_columns("attn_bias", attn_bias, seen)
        options = {"query_offset": seen.query_offset, "kv_lengths": seen.kv_lengths}
    if key_mask is not None:
        check_key_mask(key_mask, (*lead, n_k))
        attn_mask, segment_ids = merge_masks(attn_mask, key_mask, segment_ids, n_q)
    if layer.rel_bias is not None:
        offset = options["query_offset"]
        if place is None:
            offset = offset_of("rel_bias", n_q, n_k, key is None, query_offset, causal_alignment)
        relative = layer.rel_bias(n_q, k.shape[-2], offset=offset)
        attn_bias = relative if attn_bias is None else relative + attn_bias
    if layer.training and layer.dropout > 0:
        options["dropout_p"] = layer.dropout
        options["rng"] = torch.randint(2**63 - 1, (), device="cpu") if rng is None else rng
    options |= {
        "attn_mask": attn_mask,
        "attn_bias": attn_bias,
        "segment_ids": segment_ids,
        "is_causal": layer.is_causal if is_causal is None else is_causal,
        "scale": layer.scale,
        "window_size": None if layer.window_size == (None, None) else layer.window_size,
        "softcap": layer.softcap,
        "alibi_slopes": None if layer.alibi is None else layer.alibi(query.device),
        "sinks": layer.sinks,
        "head_mask": head_mask,
        "implementation": implementation,
    }
    options = {name: option for name, option in options.items() if option is not None}
    result = attention(q, k, v, return_aux=return_aux, **options)
    if cache is not None and place is not None:
        cache.commit(place)
    output, aux = (result, None) if return_aux is None else result
    return Heads(q, k, v, output, aux, options)


def project_once(
    layer: "MultiHeadAttention",
    key: Tensor,
    value: Tensor | None,
    key_mask: Tensor | None,
    key_positions: Tensor | None,
) -> KeysValues:
    """Keys and values for many passes; the arguments are those of the layer's ``keys_and_values``."""
    if not isinstance(key, Tensor):
        hint = "the sequence that the queries will read"
        raise HeadwiseError("key", f"a tensor (..., n_k, {layer.kdim})", shown(key), hint)
    _check_roles(layer, key, value, None, key_positions)
    k, v = _project(layer, key, value, tuple(key.shape[:-2]))
    if layer.rope is not None:
        k = layer.rope(k, key_positions)
    if key_mask is not None:
        check_key_mask(key_mask, tuple(key.shape[:-1]))
    return KeysValues(k, v, key_mask)


def _check_roles(
    layer: "MultiHeadAttention", key: Any, value: Any, positions: Any, key_positions: Any
) -> None:
    """Arguments that do not go together.

    Raises:
        HeadwiseError: with the name of the one that has to go.
    """
    if value is not None and not isinstance(key, Tensor):
        received = "a value without a key" if key is None else "a value beside a KeysValues"
        raise HeadwiseError("value", "None without a key tensor", received, "layer(x, memory, values)")
    for name, given in (("positions", positions), ("key_positions", key_positions)):
        if given is None:
            continue
        if layer.rope is None:
            hint = "rope=True turns queries and keys by their positions; ALiBi and T5 go by query_offset"
            raise HeadwiseError(name, "None: this layer has no rotary positions", shown(given), hint)
        if isinstance(key, KeysValues) and name == "key_positions":
            hint = "give them to keys_and_values"
            raise HeadwiseError(name, "None beside a KeysValues, whose keys are turned", "positions", hint)


def _project(
    layer: "MultiHeadAttention", key: Tensor, value: Tensor | None, lead: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Keys, normed, and values, per head."""
    value = key if value is None else value
    check_input("key", key, layer.kdim, layer.k_proj, lead)
    check_input("value", value, layer.vdim, layer.v_proj, lead)
    if value.shape[-2] != key.shape[-2]:
        expected = f"{key.shape[-2]} rows, one per row of key {tuple(key.shape)}"
        raise ShapeError("value", expected, f"shape {tuple(value.shape)}", "value j belongs to key j")
    k = _split(layer.k_proj(key), layer.num_kv_heads)
    v = _split(layer.v_proj(value), layer.num_kv_heads)
    return (k if layer.k_norm is None else _normed(layer.k_norm, k)), v


def _normed(norm: nn.Module, heads: Tensor) -> Tensor:
    """The norm, in the dtype of its gains: under autocast features arrive in half precision."""
    gains = getattr(norm, "weight", None)
    if not isinstance(gains, Tensor) or gains.dtype == heads.dtype:
        return norm(heads)
    return norm(heads.to(gains.dtype)).to(heads.dtype)


def _split(x: Tensor, heads: int) -> Tensor:
    """(..., n, H * d) -> (..., H, n, d): a view."""
    *lead, width = x.shape
    return x.reshape(*lead, heads, width // heads).transpose(-2, -3)
