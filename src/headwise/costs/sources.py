"""``cost``: what attention costs, before anything is run: of sizes, of a config.json, or of a live model."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headwise.costs.config import read_config
from headwise.costs.data import Cost
from headwise.costs.sizes import Layer, LayerKind, make_layer, sizes_in_words, whole
from headwise.costs.stack import check_two_sided, cost_of_layers
from headwise.errors import HeadwiseError
from headwise.plain.values import shown


def cost(
    model: Any = None,
    *,
    d_model: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    v_head_dim: int | None = None,
    d_context: int | None = None,
    d_out: int | None = None,
    kv_rank: int | None = None,
    rope_dim: int | None = None,
    q_rank: int | None = None,
    bias: bool | str | None = None,
    layers: int | None = None,
    causal: bool | None = None,
    window: Any = None,
    seq: int | None = None,
    kv_seq: int | None = None,
    cached: int = 0,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    batch: int = 1,
    dtype_bytes: float | None = None,
    cache_bytes: float | None = None,
    ignore: Sequence[str] = (),
) -> Cost:
    """Parameters, FLOPs, bytes, key/value cache and activations of attention, each with its formula.

    A multiply-add counts as 2 FLOPs. Matrix products count visible query-key pairs only; softmax, scale and
    biases stand apart. Attention only: embeddings and feed-forward layers are not counted.

    Args:
        model: None (sizes as keywords), a Hugging Face ``config.json`` (its path, its folder, or a dict),
            or a live torch model.
        d_model, heads: width of the input, and h. kv_heads: h_kv, None = h.
        head_dim: d_k, None = d_model / h. v_head_dim: d_v, None = d_k. d_context, d_out: None = d_model.
        kv_rank, rope_dim, q_rank: latent attention (MLA): widths of the latent of keys and values, of the
            shared rotary key, and of the latent of queries (None: not compressed); ``head_dim`` is then the
            part without positions.
        bias: True, False, or the projections that have one, letters of "qkvo"; None = False, or what the
            model says.
        layers: how many; None = 1, or what the model says.
        causal: None = False, or what the model says. window: (left, right), counts exclude the query itself.
        seq: new tokens n_q; None counts only what depends on no length.
        kv_seq: length of another sequence, for cross-attention; of an encoder-decoder the encoder's, beside
            which ``seq`` is the decoder's. cached: tokens in the cache already
            (decoding).
        causal_alignment, query_offset: as for ``attention``, where causal or window meets kv_seq other than
            seq.
        batch: sequences. dtype_bytes: bytes of a number (None = 2, or what the model says); cache_bytes: of
            a number in the cache (None = dtype_bytes).
        ignore: fields of a config that are known to leave the attention alone.

    Returns:
        A :class:`headwise.costs.data.Cost`. Print it, or ask it: ``cost(...)["flops.scores"]``.

    Raises:
        HeadwiseError: an impossible configuration (the hint names the nearest valid ones), or a config with
            unknown fields.
        CapabilityError: a config of an unknown family, or a model with attention of an unknown form.

    >>> cost(d_model=512, heads=8).parameters
    1048576
    >>> cost(d_model=4096, heads=32, kv_heads=8, layers=32).kv_bytes_per_token
    131072
    """
    sizes: dict[str, Any] = {
        "d_model": d_model, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim,
        "v_head_dim": v_head_dim, "d_context": d_context, "d_out": d_out,
        "kv_rank": kv_rank, "rope_dim": rope_dim, "q_rank": q_rank,
    }  # fmt: skip
    work: dict[str, Any] = {
        "seq": seq, "kv_seq": kv_seq, "cached": cached, "causal_alignment": causal_alignment,
        "query_offset": query_offset, "batch": batch, "dtype_bytes": dtype_bytes, "cache_bytes": cache_bytes,
    }  # fmt: skip
    if model is None:
        for name in ("d_model", "heads"):
            if sizes[name] is None:
                hint = "cost(d_model=768, heads=12, seq=4096), or cost of a config.json or a torch model"
                raise HeadwiseError(name, "a whole number >= 1", "None", hint)
        if ignore:
            raise HeadwiseError("ignore", "nothing without a config", shown(ignore))
        count = 1 if layers is None else layers
        whole("layers", count)
        layer = make_layer(
            **sizes,
            bias=bias is not None and bias,
            causal=causal is not None and causal,
            window=window,
            cross=kv_seq is not None,
        )
        part = "self" if kv_seq is None else "cross"
        return cost_of_layers([LayerKind("attention", count, layer, part)], _title(layer, count), work)
    described = {**sizes, "bias": bias, "layers": layers, "window": window}
    for name, size in described.items():
        if size is not None:
            expected = "None beside a model, which says it itself"
            raise HeadwiseError(name, expected, shown(size), "or give sizes only, without the model")
    nn = getattr(sys.modules.get("torch"), "nn", None)  # torch is a guest: no model of it without its import
    if nn is not None and isinstance(model, nn.Module):
        from headwise.costs.torch_model import cost_of_model

        if ignore:
            raise HeadwiseError("ignore", "nothing beside a live model", shown(ignore))
        return cost_of_model(model, causal=causal, work=work)
    if not isinstance(model, Mapping | str | Path):
        expected = "a config.json (path, folder or dict) or a torch model"
        raise HeadwiseError("model", expected, type(model).__name__, "or sizes: cost(d_model=768, heads=12)")
    config = read_config(model, tuple(ignore))
    if causal is not None and causal != config.causal:
        raise HeadwiseError("causal", f"None or {config.causal}, as {config.name} is", shown(causal))
    check_two_sided(work, any(kind.part == "cross" for kind in config.layers), config.name)
    work["dtype_bytes"] = config.dtype_bytes if dtype_bytes is None else dtype_bytes
    return cost_of_layers(config.layers, config.title, work, config.notes)


def _title(layer: Layer, count: int) -> str:
    stack = "one attention layer" if count == 1 else f"{count} attention layers"
    return f"{stack}: {sizes_in_words(layer)}"
