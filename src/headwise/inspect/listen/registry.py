"""The first seam: transformers' own attention registry.

While registered, each (sub)config of the model names the implementation "headwise". That function gives the
model its output and shows query and key to the observer; the mask side of the registry carries the same name.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from headwise.errors import CapabilityError
from headwise.inspect.call.call import Span
from headwise.inspect.listen.attachment import Attachment, hidden_out, shown
from headwise.inspect.listen.mask import LazyMask, mask_function
from headwise.inspect.listen.output import blockwise

KEY = "headwise"
INTERNAL = "_attn_implementation_internal"

# What a model may hand to its attention function and we do not serve: keyword -> its name in a message.
REFUSED_KEYWORDS = {
    "indices": "sparse attention over chosen keys",
    "block_indices": "sparse attention over chosen blocks",
    "cu_seq_lens_q": "sequences packed by cumulative lengths",
    "cu_seq_lens_k": "sequences packed by cumulative lengths",
    "read_index": "a paged cache",
    "write_index": "a paged cache",
}

_BY_MODULE: dict[int, Attachment] = {}
_NAMED: dict[int, tuple[Any, int]] = {}  # id of a config -> its own implementation, and who listens
_NAMING = Lock()


@contextmanager
def registered(attachment: Attachment) -> Iterator[None]:
    """Hear the registry's calls of a model while the block runs; its configs are put back at the end."""
    AttentionInterface.register(KEY, _attention)
    AttentionMaskInterface.register(KEY, mask_function)
    listed = attachment.seams.registry
    configs = [config for config in _configs(attachment.model) if listed is None or id(config) in listed]
    with ExitStack() as put_back:
        put_back.callback(_forget, attachment)
        _BY_MODULE.update(dict.fromkeys(attachment.names, attachment))
        for config in configs:
            put_back.enter_context(_named(config))
        yield


def _forget(attachment: Attachment) -> None:
    for module in attachment.names:
        _BY_MODULE.pop(module, None)


@contextmanager
def _named(config: Any) -> Iterator[None]:
    """Let a config name our implementation; models of several threads may have one config together, and the
    last one gives it its own back."""
    with _NAMING:
        before, users = _NAMED.get(id(config), (config.__dict__[INTERNAL], 0))
        _NAMED[id(config)] = before, users + 1
    try:
        config.__dict__[INTERNAL] = KEY
        yield
    finally:
        with _NAMING:
            before, users = _NAMED.pop(id(config))
            if users > 1:
                _NAMED[id(config)] = before, users - 1
            else:
                config.__dict__[INTERNAL] = before


def _configs(model: torch.nn.Module) -> list[Any]:
    """Every config in which a module may look its implementation up, with sub-configs, each once."""
    found: dict[int, Any] = {}
    waiting = [module.config for module in model.modules() if hasattr(module, "config")]
    while waiting:
        config = waiting.pop()
        if id(config) in found or INTERNAL not in getattr(config, "__dict__", {}):
            continue
        found[id(config)] = config
        waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", {})]
    return list(found.values())


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Our attention function, by the contract of transformers' registry."""
    attachment = _BY_MODULE.get(id(module))
    if attachment is None:
        raise CapabilityError(
            "model",
            "an attention implementation that runs on its own",
            f"{KEY!r}, which only listens during an inspection",
            "headwise.inspect_heads(model, inputs) on a model with attn_implementation='sdpa'",
        )
    attachment.heard["registry"].add(id(module))
    where = attachment.name(module)
    for keyword, what in REFUSED_KEYWORDS.items():
        if keywords.get(keyword) is not None:
            hint = "this is not yet served"
            raise CapabilityError("model", f"attention without {what}", f"{where} with {what}", hint)
    if dropout > 0:
        raise CapabilityError("model", "no dropout", f"{where} with dropout {dropout}", "model.eval()")

    n_q, n_k = query.shape[2], key.shape[2]
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    kind = "cross" if attachment.is_cross(module) or (n_q != n_k and not causal) else "self"
    seen_keys = key
    if attention_mask is None and causal and 1 < n_q < n_k:  # an empty static cache: later keys are unused
        seen_keys, value = key[:, :, :n_q], value[:, :, :n_q]
        position_bias = None if position_bias is None else position_bias[..., :n_q]
    options = _options(attention_mask, causal, kind, n_q, seen_keys.shape[2])
    if scaling is not None:
        options["scale"] = float(scaling)
    if softcap is not None:
        options["softcap"] = float(softcap)
    if s_aux is not None:
        options["sinks"] = shown(s_aux)
    if position_bias is not None:
        added = hidden_out(position_bias)
        options["attn_bias"] = added if "attn_bias" not in options else options["attn_bias"] + added

    def own() -> torch.Tensor:
        if softcap is None and s_aux is None and not isinstance(attention_mask, LazyMask):
            found, _ = AttentionInterface()["sdpa"](
                module, query, seen_keys, value, attention_mask, dropout=dropout, scaling=scaling,
                is_causal=is_causal, position_bias=position_bias, **keywords,
            )  # fmt: skip
            output: torch.Tensor = found.transpose(1, 2)
            return output
        return _by_blocks(query, seen_keys, value, attention_mask, options)

    output = attachment.hear(module, (query, seen_keys, value), options, kind, own)
    assert output is not None
    return output.to(query.dtype).transpose(1, 2).contiguous(), None


def _options(mask: torch.Tensor | None, causal: bool, kind: str, n_q: int, n_k: int) -> dict[str, Any]:
    """Who sees whom, as options of ``headwise.attention``."""
    if isinstance(mask, LazyMask):
        rule = mask.rule
        if (rule.n_q, rule.n_k) != (n_q, n_k):
            sizes = f"a mask of {rule.n_q} x {rule.n_k} for {n_q} queries and {n_k} keys"
            raise CapabilityError("model", "a mask of the size of the attention", sizes)
        return rule.options(kind)
    if mask is None:  # the rule of the "sdpa" function: one single query is never masked
        if n_q > 1:
            return {"is_causal": True, "query_offset": 0} if causal else {}
        return {"is_causal": True, "query_offset": n_k - 1} if causal and kind == "self" else {}
    name = "attn_mask" if mask.dtype == torch.bool else "attn_bias"
    found: dict[str, Any] = {name: mask.detach() if name == "attn_mask" else hidden_out(mask)}
    if kind == "self":
        found["query_offset"] = n_k - n_q
    return found


def _by_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, options: dict[str, Any]
) -> torch.Tensor:
    n_k, offset = key.shape[2], options.get("query_offset", 0)
    left, right = options.get("window_size", (None, None))
    if options.get("is_causal"):
        right = 0
    bias = options.get("attn_bias")

    def reach(queries: Span) -> Span:
        first, last = queries[0] + offset, queries[1] - 1 + offset
        start = 0 if left is None else min(n_k, max(0, first - left))
        return start, n_k if right is None else max(start, min(n_k, last + right + 1))

    def visible(queries: Span, keys: Span) -> torch.Tensor:
        if isinstance(mask, LazyMask):
            return mask.rule.block(queries, keys)
        return _part(mask, queries, keys)

    def causal(queries: Span, keys: Span) -> torch.Tensor:
        return torch.arange(*keys) <= torch.arange(*queries)[:, None] + offset

    blocks: Callable[[Span, Span], torch.Tensor] | None = causal if right == 0 else None
    if mask is not None and (isinstance(mask, LazyMask) or mask.dtype == torch.bool):
        blocks = visible
    return blockwise(
        query, key, value,
        scale=options.get("scale", query.shape[-1] ** -0.5),
        softcap=options.get("softcap"),
        sinks=options.get("sinks"),
        bias=None if bias is None else lambda queries, keys: _part(bias, queries, keys),
        visible=blocks,
        reach=reach,
    )  # fmt: skip


def _part(mask: torch.Tensor, queries: Span, keys: Span) -> torch.Tensor:
    if mask.shape[-2] > 1:
        mask = mask[..., slice(*queries), :]
    return mask[..., slice(*keys)] if mask.shape[-1] > 1 else mask
