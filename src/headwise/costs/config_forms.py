"""How the configs of one family after another are read: which of their fields are sizes of attention."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headwise.costs.sizes import Layer, LayerKind, make_layer, whole
from headwise.errors import CapabilityError, HeadwiseError
from headwise.plain.values import shown

Kinds = list[LayerKind]


class Fields:
    """The fields of a config; every one that is read is remembered, so that what is left over can be
    refused."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data, self.read = data, {"model_type"}

    def number(self, name: str, default: int | None = None) -> int:
        self.read.add(name)
        value: Any = self.data.get(name)
        value = default if value is None else value
        whole(name, value)
        return int(value)

    def optional(self, name: str) -> int | None:
        self.read.add(name)
        return None if self.data.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool = False) -> bool:
        self.read.add(name)
        value = self.data.get(name)
        value = default if value is None else value
        if type(value) is not bool:
            raise HeadwiseError(name, "true or false", shown(value))
        return value

    def anything(self, name: str) -> Any:
        self.read.add(name)
        return self.data.get(name)


def encoder(fields: Fields) -> Kinds:
    causal = fields.flag("is_decoder")
    positions = fields.anything("position_embedding_type")
    if positions not in (None, "absolute"):
        raise CapabilityError(
            "config", "position_embedding_type 'absolute'", shown(positions), "give sizes instead"
        )
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias=True,
        causal=causal,
    )
    return [LayerKind("attention", fields.number("num_hidden_layers"), layer)]


def distilbert(fields: Fields) -> Kinds:
    layer = make_layer(d_model=fields.number("dim"), heads=fields.number("n_heads"), bias=True)
    return [LayerKind("attention", fields.number("n_layers"), layer)]


def gpt2(fields: Fields) -> Kinds:
    layer = make_layer(d_model=fields.number("n_embd"), heads=fields.number("n_head"), bias=True, causal=True)
    return [LayerKind("attention", fields.number("n_layer"), layer)]


def causal(bias: str) -> Callable[[Fields], Kinds]:
    """Decoders of plain heads, whose field ``bias`` says whether the projections have biases."""

    def read(fields: Fields) -> Kinds:
        layer = make_layer(
            d_model=fields.number("hidden_size"),
            heads=fields.number("num_attention_heads"),
            bias=fields.flag(bias, True),
            causal=True,
        )
        return [LayerKind("attention", fields.number("num_hidden_layers"), layer)]

    return read


def vit(fields: Fields) -> Kinds:
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias="qkvo" if fields.flag("qkv_bias", True) else "o",
    )
    return [LayerKind("attention", fields.number("num_hidden_layers"), layer)]


def decoder(bias: bool | str | None, norms: bool = False, windows: str = "none") -> Callable[[Fields], Kinds]:
    """Readers of the Llama-like families.

    Args:
        bias: what the code of the family fixes; None: the field ``attention_bias`` says it.
        norms: queries and keys have a norm over the width of a head.
        windows: which layers slide: "none", "all", "later" (from ``max_window_layers`` on) or "alternate".
    """

    def read(fields: Fields) -> Kinds:
        d_model, heads = fields.number("hidden_size"), fields.number("num_attention_heads")
        head_dim = fields.optional("head_dim")
        if fields.flag("use_bidirectional_attention"):
            raise CapabilityError(
                "config", "causal attention", "use_bidirectional_attention = true", "give sizes"
            )
        has = fields.flag("attention_bias") if bias is None else bias
        if head_dim is None and d_model % heads == 0:
            head_dim = d_model // heads

        def layer(window: tuple[int | None, int | None] | None) -> Layer:
            return make_layer(
                d_model=d_model,
                heads=heads,
                kv_heads=fields.number("num_key_value_heads", heads),
                head_dim=head_dim,
                bias=has,
                causal=True,
                window=window,
                norms=2 * (head_dim or 0) if norms else 0,
            )

        count = fields.number("num_hidden_layers")
        sliding, size = _sliding(fields, windows, count)
        kinds = [LayerKind("full attention", count - sliding, layer(None))]
        if sliding:
            # A sliding window of w keys counts the query's own, so it reaches w - 1 back.
            kinds.append(LayerKind("windowed attention", sliding, layer((size - 1, 0))))
        kinds = [kind for kind in kinds if kind.count]
        return kinds if len(kinds) > 1 else [replace(kinds[0], name="attention")]

    return read


def _sliding(fields: Fields, windows: str, count: int) -> tuple[int, int]:
    """How many layers slide, and over how many keys."""
    if windows == "none":
        return 0, 0
    size = fields.optional("sliding_window")
    if windows == "later":
        used, start = fields.flag("use_sliding_window"), fields.anything("max_window_layers")
        if not used or size is None:
            fields.anything("layer_types")
            return 0, 0
    kinds = fields.anything("layer_types") if windows != "all" else None
    if size is None:
        return 0, 0
    if kinds is not None:
        listed = kinds if isinstance(kinds, list | tuple) else []
        unknown = [kind for kind in listed if kind not in ("full_attention", "sliding_attention")]
        if unknown or len(listed) != count:
            expected = f"{count} entries, full_attention or sliding_attention"
            raise CapabilityError(
                "config", f"layer_types of {expected}", shown(unknown or kinds), "give sizes instead"
            )
        return kinds.count("sliding_attention"), size
    if windows == "all":
        return count, size
    if windows == "alternate":
        return (count + 1) // 2, size
    whole("max_window_layers", start)
    return max(0, count - start), size


def latent(fields: Fields) -> Kinds:
    rank = fields.optional("q_lora_rank")
    heads, kv_rank = fields.number("num_attention_heads"), fields.number("kv_lora_rank")
    fields.anything("num_key_value_heads")
    bias = ("qko" if rank else "ko") if fields.flag("attention_bias") else False
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=heads,
        head_dim=fields.number("qk_nope_head_dim"),
        v_head_dim=fields.number("v_head_dim"),
        kv_rank=kv_rank,
        rope_dim=fields.number("qk_rope_head_dim"),
        q_rank=rank,
        bias=bias,
        causal=True,
        norms=kv_rank + (rank or 0),
    )
    return [LayerKind("latent attention", fields.number("num_hidden_layers"), layer)]


def falcon(fields: Fields) -> Kinds:
    heads, kv_heads = fields.number("num_attention_heads"), fields.optional("num_kv_heads")
    one = fields.flag("multi_query", True)
    if not fields.flag("new_decoder_architecture"):  # there the projection has room for one key head or all
        kv_heads = 1 if one else heads
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
        bias=fields.flag("bias"),
        causal=True,
    )
    return [LayerKind("attention", fields.number("num_hidden_layers"), layer)]


def phi(fields: Fields) -> Kinds:
    d_model, heads = fields.number("hidden_size"), fields.number("num_attention_heads")
    layer = make_layer(
        d_model=d_model,
        heads=heads,
        kv_heads=fields.number("num_key_value_heads", heads),
        bias=True,
        causal=True,
        norms=4 * (d_model // heads) if fields.flag("qk_layernorm") else 0,  # gains and biases of both
    )
    return [LayerKind("attention", fields.number("num_hidden_layers"), layer)]


def t5(fields: Fields) -> Kinds:
    heads, encoders = fields.number("num_heads"), fields.number("num_layers")
    decoders = fields.number("num_decoder_layers", encoders)
    sizes: dict[str, Any] = {
        "d_model": fields.number("d_model"),
        "heads": heads,
        "head_dim": fields.number("d_kv"),
    }
    # The first layer of each side holds the relative bias that all layers of that side add.
    bias = heads * fields.number("relative_attention_num_buckets")

    def side(name: str, count: int, part: str, causal: bool) -> Kinds:
        first = LayerKind(f"first {name}", 1, make_layer(**sizes, causal=causal, norms=bias), part)
        return [first, LayerKind(name, count - 1, make_layer(**sizes, causal=causal), part)]

    kinds = [
        *side("encoder self-attention", encoders, "other", False),
        *side("decoder self-attention", decoders, "self", True),
        LayerKind("cross-attention", decoders, make_layer(**sizes, cross=True), "cross"),
    ]
    return [kind for kind in kinds if kind.count]


def _two_sided(bias: str) -> Callable[[Fields], Kinds]:
    """Readers of encoder-decoders whose heads share d_model.

    Args:
        bias: the projections that have one.
    """

    def read(fields: Fields) -> Kinds:
        d_model = fields.number("d_model")

        def kind(name: str, side: str, part: str, causal: bool = False) -> LayerKind:
            heads = fields.number(f"{side}_attention_heads")
            layer = make_layer(d_model=d_model, heads=heads, bias=bias, causal=causal, cross=part == "cross")
            return LayerKind(name, fields.number(f"{side}_layers"), layer, part)

        return [
            kind("encoder self-attention", "encoder", "other"),
            kind("decoder self-attention", "decoder", "self", causal=True),
            kind("cross-attention", "decoder", "cross"),
        ]

    return read


bart, whisper = _two_sided("qkvo"), _two_sided("qvo")
