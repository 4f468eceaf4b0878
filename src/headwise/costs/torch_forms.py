"""The forms of attention modules whose cost can be counted, each with what it looks like and how it is read.

A module is known by the projections that it holds, whatever its class is called.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from headwise.costs.sizes import Layer, make_layer
from headwise.errors import CapabilityError

# Places in a model where keys and values come from the other sequence.
_CROSS = {
    "multihead_attn",
    "encoder_attn",
    "crossattention",
    "cross_attn",
    "cross_attention",
    "encdecattention",
}
# Families whose attention modules read the window from their config.
_WINDOW_IN_CONFIG = {"mistral", "mixtral", "phi3"}


@dataclass(frozen=True)
class Found:
    """One attention module: where it is, its sizes, and its parameters that no size explains."""

    path: str
    module: nn.Module
    layer: Layer
    others: tuple[str, ...]


@dataclass(frozen=True)
class Projection:
    """A linear map as the counting sees it."""

    width_in: int
    width_out: int
    has_bias: bool


def _torch_attention(path: str, module: nn.Module, causal: bool | None, kv_seq: int | None) -> Found:
    """nn.MultiheadAttention: one packed weight, or three where keys or values have a width of their own."""
    held: Any = module
    width = held.embed_dim
    bias = ("qkv" if held.in_proj_bias is not None else "") + ("o" if held.out_proj.bias is not None else "")
    extra = sum(p.numel() for p in (held.bias_k, held.bias_v) if p is not None)
    layer = make_layer(
        d_model=width,
        heads=held.num_heads,
        head_dim=held.head_dim,
        d_context=held.kdim,
        d_context_v=held.vdim,
        bias=bias,
        causal=bool(causal) and not _is_cross(path, module),
        cross=_is_cross(path, module) or (kv_seq is not None and path.rpartition(".")[2] != "self_attn"),
        extra_keys=(held.bias_k is not None) + bool(held.add_zero_attn),
        extra=extra,
    )
    return Found(path, module, layer, ())


def _separate(
    q: str, k: str, v: str, outs: tuple[str, ...]
) -> tuple[Callable[[nn.Module], bool], Callable[..., Found]]:
    """Modules with one projection each for queries, keys, values and output."""

    def fits(module: nn.Module) -> bool:
        return (
            all(_is_linear(getattr(module, name, None)) for name in (q, k, v))
            and _out(module, outs) is not None
        )

    def read(path: str, module: nn.Module, causal: bool | None, kv_seq: int | None) -> Found:
        names = (q, k, v, _out(module, outs) or "")
        parts = [_projection(getattr(module, name)) for name in names]
        return _made(path, module, causal, parts, names)

    return fits, read


def _packed(packed: str, out: str) -> tuple[Callable[[nn.Module], bool], Callable[..., Found]]:
    """Modules with one projection for queries, keys and values together."""

    def fits(module: nn.Module) -> bool:
        return _is_linear(getattr(module, packed, None)) and _is_linear(getattr(module, out, None))

    def read(path: str, module: nn.Module, causal: bool | None, kv_seq: int | None) -> Found:
        whole, last = _projection(getattr(module, packed)), _projection(getattr(module, out))
        separate = getattr(module, "q_attn", None)  # GPT-2 cross-attention keeps its queries apart
        if _is_linear(separate):
            query = _projection(separate)
            keys = Projection(whole.width_in, whole.width_out // 2, whole.has_bias)
            return _made(path, module, causal, [query, keys, keys, last], ("q_attn", packed, out))
        query_width = last.width_in
        kv_width = (whole.width_out - query_width) // 2
        query, keys = (Projection(whole.width_in, width, whole.has_bias) for width in (query_width, kv_width))
        return _made(path, module, causal, [query, keys, keys, last], (packed, out))

    return fits, read


def _bert(path: str, module: nn.Module, causal: bool | None, kv_seq: int | None) -> Found:
    """BERT and its kin: the projections lie in ``self``, W_O in ``output.dense`` beside a norm of the
    block."""
    names = ("self.query", "self.key", "self.value", "output.dense")
    parts = [_projection(module.get_submodule(name)) for name in names]
    return _made(
        path, module, causal, parts, names, core=module.get_submodule("self"), skip=("output.LayerNorm",)
    )


def _fits_bert(module: nn.Module) -> bool:
    core, out = getattr(module, "self", None), getattr(module, "output", None)
    return all(_is_linear(getattr(core, name, None)) for name in ("query", "key", "value")) and _is_linear(
        getattr(out, "dense", None)
    )


def _latent(path: str, module: nn.Module, causal: bool | None, kv_seq: int | None) -> Found:
    """DeepSeek's latent attention."""
    held: Any = module
    compressed = _is_linear(getattr(held, "q_a_proj", None))
    names = [
        "kv_a_proj_with_mqa",
        "kv_b_proj",
        "o_proj",
        *(("q_a_proj", "q_b_proj") if compressed else ("q_proj",)),
    ]
    biased = {"q": "q_a_proj" if compressed else "q_proj", "k": "kv_a_proj_with_mqa", "o": "o_proj"}
    bias = "".join(letter for letter, name in biased.items() if getattr(held, name).bias is not None)
    down = _projection(held.kv_a_proj_with_mqa)
    norms, others = _rest(module, tuple(names), ())
    layer = make_layer(
        d_model=down.width_in,
        heads=held.num_heads,
        head_dim=held.qk_nope_head_dim,
        v_head_dim=held.v_head_dim,
        kv_rank=held.kv_lora_rank,
        rope_dim=held.qk_rope_head_dim,
        q_rank=held.q_lora_rank,
        bias=bias,
        causal=_is_causal(module, causal),
        norms=norms,
    )
    return Found(path, module, layer, others)


def _made(
    path: str,
    module: nn.Module,
    causal: bool | None,
    parts: list[Projection],
    names: tuple[str, ...],
    core: nn.Module | None = None,
    skip: tuple[str, ...] = (),
) -> Found:
    """The layer from its four projections: head width from the module, everything else from the widths."""
    query, key, value, out = parts
    core = module if core is None else core
    head_dim = _head_dim(core, query.width_out)
    if query.width_out % head_dim or key.width_out % head_dim:
        received = f"projections {query.width_out} and {key.width_out} wide at {path or 'the top'}"
        raise CapabilityError(
            "model", f"widths that heads of {head_dim} divide", received, "give sizes instead"
        )
    heads, kv_heads = query.width_out // head_dim, key.width_out // head_dim
    norms, others = _rest(module, names, skip)
    cross = _is_cross(path, module)
    causal = _is_causal(core, causal) and not cross
    size = _window(module)
    layer = make_layer(
        d_model=query.width_in,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=value.width_out // kv_heads,
        d_context=key.width_in,
        d_context_v=value.width_in,
        d_out=out.width_out,
        bias="".join(letter for letter, part in zip("qkvo", parts, strict=True) if part.has_bias),
        causal=causal,
        window=None if size is None or cross else (size - 1, 0 if causal else size - 1),
        cross=cross,
        norms=norms,
    )
    return Found(path, module, layer, others)


def _rest(module: nn.Module, names: tuple[str, ...], skip: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    """How many parameters lie outside the projections, and the names of those that are no norm's."""
    numbers, others = 0, []
    for name, parameter in module.named_parameters():
        if any(name.startswith(f"{part}.") for part in (*names, *skip)) and name.rpartition(".")[2] in (
            "weight",
            "bias",
        ):
            owner = name.rpartition(".")[0]
            if owner in names or owner in skip:
                continue
        numbers += parameter.numel()
        if "norm" not in name.lower():
            others.append(name)
    return numbers, tuple(others)


def _head_dim(module: Any, query_width: int) -> int:
    for name in ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim"):
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    config = getattr(module, "config", None)
    for owner in (module, config):
        for name in ("num_heads", "num_attention_heads", "n_heads", "n_head"):
            if isinstance(getattr(owner, name, None), int):
                return query_width // int(getattr(owner, name))
    received = f"{type(module).__name__} without head_dim and num_heads"
    raise CapabilityError(
        "model", "an attention module that says how wide its heads are", received, "give sizes instead"
    )


def _window(module: Any) -> int | None:
    config = getattr(module, "config", None)
    if getattr(config, "model_type", None) in _WINDOW_IN_CONFIG:
        return getattr(config, "sliding_window", None)
    return getattr(module, "sliding_window", None)


def _is_causal(module: Any, causal: bool | None) -> bool:
    return bool(getattr(module, "is_causal", False)) if causal is None else causal


def _is_cross(path: str, module: Any) -> bool:
    return bool(getattr(module, "is_cross_attention", False)) or any(
        part.lower() in _CROSS for part in path.split(".")
    )


def _out(module: nn.Module, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if _is_linear(getattr(module, name, None))), None)


def _is_linear(part: Any) -> bool:
    return isinstance(part, nn.Module) and (
        hasattr(part, "in_features") or (hasattr(part, "nf") and hasattr(part, "nx"))
    )


def _projection(part: Any) -> Projection:
    """nn.Linear and whatever speaks like it, and the transposed Conv1D of GPT-2."""
    widths = (part.in_features, part.out_features) if hasattr(part, "in_features") else (part.nx, part.nf)
    return Projection(int(widths[0]), int(widths[1]), getattr(part, "bias", None) is not None)


def _is_torch_attention(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention)


def _is_latent(module: nn.Module) -> bool:
    return all(
        _is_linear(getattr(module, name, None)) for name in ("kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    )


# What a module looks like, and how it is read; the first that fits is taken.
FORMS: tuple[tuple[Callable[[nn.Module], bool], Callable[..., Found]], ...] = (
    (_is_torch_attention, _torch_attention),
    (_is_latent, _latent),
    (_fits_bert, _bert),
    _separate("q_proj", "k_proj", "v_proj", ("o_proj", "out_proj", "dense")),
    _separate("q", "k", "v", ("o",)),
    _separate("q_lin", "k_lin", "v_lin", ("out_lin",)),
    _packed("c_attn", "c_proj"),
    _packed("qkv_proj", "o_proj"),
    _packed("query_key_value", "dense"),
)
