"""Listening to every attention call of a Hugging Face model, through transformers' own attention registry.

While attached, each (sub)config names the implementation "headwise". That function hands the work to
transformers' "sdpa" function, so the model's output stays its own, and shows query and key to an observer.
The mask side of the registry carries the same name: without it transformers would drop padding, windows and
causality in silence. Our mask function never builds n x n; it knows plain causal and plain full attention and
refuses everything else by name.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from headwise.errors import CapabilityError

KEY = "headwise"
NOT_YET = "this is not yet served"
INTERNAL = "_attn_implementation_internal"

# What a model may hand to its attention function and we do not serve: keyword -> its name in a message.
REFUSED_KEYWORDS = {
    "softcap": "a soft cap on the scores",
    "s_aux": "learned sink logits",
    "position_bias": "a position bias on the scores",
    "indices": "sparse attention over chosen keys",
    "block_indices": "sparse attention over chosen blocks",
    "cu_seq_lens_q": "packed sequences",
    "cu_seq_lens_k": "packed sequences",
    "read_index": "a paged cache",
    "write_index": "a paged cache",
}


@dataclass(frozen=True)
class AttentionCall:
    """One call of attention inside the model, as the observer sees it.

    Attributes:
        layer: number of the call in this forward pass, from 0.
        name: qualified name of the attention module; "(call 2)" is added where it is called again.
        query: (1, H, n, d_k); key: (1, H_kv, n, d_k); output: (1, n, H, d_v). Views of the model's own
            tensors.
        scale: the factor on the scores.
        is_causal: True where query i sees the keys 0 … i only.
    """

    layer: int
    name: str
    query: torch.Tensor
    key: torch.Tensor
    output: torch.Tensor
    scale: float
    is_causal: bool


Observer = Callable[[AttentionCall], None]


@dataclass
class _Attachment:
    """One model under observation. The modules are held, so that an id cannot be reused meanwhile."""

    modules: dict[int, tuple[str, torch.nn.Module]]
    n_tokens: int
    observe: Observer
    masks: set[bool] = field(default_factory=set)  # the kinds of mask the model asked for: True = causal
    calls: int = 0
    seen: dict[int, int] = field(default_factory=dict)


_BY_MODULE: dict[int, _Attachment] = {}
_BY_CONFIG: dict[int, _Attachment] = {}


@contextmanager
def attached(model: torch.nn.Module, n_tokens: int, observe: Observer) -> Iterator[None]:
    """Show every attention call of ``model`` to ``observe`` while the block runs.

    The block runs forward passes over one sequence of ``n_tokens`` tokens without gradients and without a
    cache. Each (sub)config gets its own implementation back at the end, also after an exception or Ctrl-C.
    ``observe`` runs under ``torch.no_grad`` and may raise.

    Raises:
        CapabilityError: the model is attached already; inside the block: an attention that is not served.
    """
    AttentionInterface.register(KEY, _attention)
    AttentionMaskInterface.register(KEY, _mask)
    modules = {id(module): (name, module) for name, module in model.named_modules()}
    configs = _configs(model)
    if any(config.__dict__.get(INTERNAL) == KEY for config in configs):
        raise CapabilityError("model", "a model at rest", "one that is being inspected already")
    before = [(config, config.__dict__[INTERNAL]) for config in configs]
    attachment = _Attachment(modules, n_tokens, observe)
    try:
        for config in configs:
            config.__dict__[INTERNAL] = KEY
            _BY_CONFIG[id(config)] = attachment
        _BY_MODULE.update(dict.fromkeys(modules, attachment))
        with torch.no_grad():
            yield
    finally:
        for config, implementation in before:
            config.__dict__[INTERNAL] = implementation
            _BY_CONFIG.pop(id(config), None)
        for module in modules:
            _BY_MODULE.pop(module, None)


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


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    config: Any = None,
    **_: Any,
) -> None:
    """Our mask function: None (attention that is plainly causal or plainly full), or a refusal.

    It returns None exactly where transformers' own "sdpa" mask function would: the output stays the model's.
    """
    if attention_mask is not None and not bool(attention_mask.all()):
        hidden = int((~attention_mask.bool()).sum())
        raise CapabilityError(
            "attention_mask",
            "a text without padding",
            f"{hidden} masked positions of {attention_mask.numel()}",
            "pass one text of its own length; padding is not yet served",
        )
    if q_length != kv_length or q_offset or kv_offset:
        raise _several_lengths(q_length, kv_length)
    if local_size is not None and kv_length >= local_size:
        raise _window(local_size, kv_length)
    plain = mask_function in (causal_mask_function, bidirectional_mask_function) or local_size is not None
    if not plain or not (allow_is_causal_skip or allow_is_bidirectional_skip):
        raise CapabilityError(
            "model",
            "attention that is plainly causal or sees the whole text",
            "a mask of packed, blockwise or otherwise combined parts",
            "inspect one plain text; such masks are not yet served",
        )
    attachment = _BY_CONFIG.get(id(config))
    if attachment is not None:
        attachment.masks.add(bool(allow_is_causal_skip))


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    """Our attention function: transformers' "sdpa" for the output, and the observer for query and key."""
    attachment = _BY_MODULE.get(id(module))
    if attachment is None:
        raise CapabilityError(
            "model",
            "an attention implementation that runs on its own",
            f"{KEY!r}, which only listens during an inspection",
            "headwise.inspect_heads(model, inputs) on a model with attn_implementation='sdpa'",
        )
    _refuse(module, query, key, attention_mask, dropout, keywords, attachment)
    output, _ = AttentionInterface()["sdpa"](
        module,
        query,
        key,
        value,
        attention_mask,
        dropout=dropout,
        scaling=scaling,
        is_causal=is_causal,
        **keywords,
    )
    # The rule of the "sdpa" function: the keyword decides, else the module; one single query is never masked.
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if query.shape[2] > 1 and attachment.masks and causal not in attachment.masks:
        raise CapabilityError(
            "model",
            "one answer to whether attention is causal",
            f"{_name(module, attachment)}: is_causal={causal}, but the model's mask says {not causal}",
        )
    count = attachment.seen[id(module)] = attachment.seen.get(id(module), 0) + 1
    name = _name(module, attachment)
    call = AttentionCall(
        layer=attachment.calls,
        name=name if count == 1 else f"{name} (call {count})",
        query=query.detach(),
        key=key.detach(),
        output=output.detach(),
        scale=float(scaling) if scaling is not None else query.shape[-1] ** -0.5,
        is_causal=causal,
    )
    attachment.calls += 1
    attachment.observe(call)
    return output, None


def _refuse(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float,
    keywords: dict[str, Any],
    attachment: _Attachment,
) -> None:
    """Raise CapabilityError, naming the layer, for anything that the statistics would not be exact for."""
    where = _name(module, attachment)
    for keyword, what in REFUSED_KEYWORDS.items():
        if keywords.get(keyword) is not None:
            raise CapabilityError("model", f"attention without {what}", f"{where} with {what}", NOT_YET)
    if dropout > 0:
        raise CapabilityError("model", "no dropout", f"{where} with dropout {dropout}", "model.eval()")
    if attention_mask is not None:
        raise CapabilityError(
            "model",
            "attention that is plainly causal or sees the whole text",
            f"{where} with a mask of its own, shape {tuple(attention_mask.shape)}",
            "ready-made masks and additive biases are not yet served",
        )
    if query.device.type != "cpu":
        raise CapabilityError("model", "a model on the CPU", f"{where} on {query.device}", "model.to('cpu')")
    if query.dtype not in (torch.float32, torch.float64):
        raise CapabilityError("model", "float32 or float64", f"{where} in {query.dtype}", "model.float()")
    if query.shape[0] != 1:
        raise CapabilityError("model", "one sequence at a time", f"{where} with a batch of {query.shape[0]}")
    if query.shape[2] != key.shape[2]:
        raise _several_lengths(query.shape[2], key.shape[2])
    if query.shape[2] != attachment.n_tokens:
        expected = f"attention over the {attachment.n_tokens} tokens of the text"
        raise CapabilityError("model", expected, f"{where} over {query.shape[2]}")
    window = keywords.get("sliding_window")
    if window is not None and key.shape[2] >= window:
        raise _window(window, key.shape[2])


def _name(module: torch.nn.Module, attachment: _Attachment) -> str:
    return attachment.modules[id(module)][0]


def _several_lengths(n_queries: int, n_keys: int) -> CapabilityError:
    return CapabilityError(
        "model",
        "self-attention without a cache",
        f"{n_queries} queries over {n_keys} keys",
        "caches and cross-attention are not yet served",
    )


def _window(size: int, n_keys: int) -> CapabilityError:
    return CapabilityError(
        "model",
        "attention that sees the whole text",
        f"a sliding window or chunk of {size} tokens over a text of {n_keys}",
        f"cut the text to fewer than {size} tokens (--max-tokens {size - 1}); windows are not yet served",
    )
