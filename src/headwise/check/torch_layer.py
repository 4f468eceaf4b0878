"""A torch layer under test: its heads from its attributes, its call from its signature."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headwise.check.rules.inquiry import Progress, run
from headwise.check.rules.layer_rules import LAYER_RULES, choose_layer, judge_weights
from headwise.check.rules.rule import Rule
from headwise.check.subjects.contract import Contract, Function
from headwise.check.subjects.layer_weights import LayerWeights
from headwise.check.subjects.presets import preset
from headwise.check.subjects.signature import Signature, signature_of
from headwise.check.subjects.subject import TIME_LIMIT, LayerCall, Subject
from headwise.check.verdict.findings import CheckReport
from headwise.errors import HeadwiseError
from headwise.plain.types import AnyArray
from headwise.plain.values import shown

HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "h", "nh")
KV_HEADS = ("num_kv_heads", "n_kv_heads", "kv_heads", "num_key_value_heads", "n_kv_head", "num_groups")


def check_layer(
    module: Any,
    contract: Contract | str | None = None,
    *,
    num_heads: int | None = None,
    weights: Mapping[str, str] | None = None,
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    name: str | None = None,
) -> CheckReport:
    """Checks a multi-head layer of torch, and names the mistake where it is wrong.

        output = concatenate(head_1, ..., head_H) w_o^T + b_o,
        head_h = attention(x w_q^T + b_q, x w_k^T + b_k, x w_v^T + b_v), each with the rows of head h

    A copy of the layer, in evaluation mode and with random weights, runs on random inputs; its answer is
    compared with the specification in float64 on the same weights. The layer itself is left alone.

    Args:
        module: a ``torch.nn.Module`` whose forward takes x (B, n, d_model), or query, key and value.
        contract: a `Contract`, a preset ("torch-mha": True in a mask hides), or None: that of
            ``torch.nn.MultiheadAttention`` for that class, else the default.
        num_heads: H; None: an attribute of the layer, as ``num_heads``.
        weights: role -> parameter, as {"q": "wq.weight", "o": "proj.weight"}; roles q, k, v, o, qkv. None: by
            their names.
        seed, time_limit, progress, name: as for `check_attention`.

    Returns:
        `CheckReport`.

    Raises:
        HeadwiseError: not a layer of torch, or no heads or weights were found in it.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        hint = "a function goes to check_attention"
        raise HeadwiseError("module", "a torch.nn.Module", shown(module), hint)
    is_mha = isinstance(module, torch.nn.MultiheadAttention)
    chosen = preset(("torch-mha" if is_mha else "default") if contract is None else contract)
    heads = num_heads if num_heads is not None else _number(module, HEADS)
    if heads is None:
        raise HeadwiseError(
            "num_heads",
            "the number of heads",
            "a layer without " + ", ".join(HEADS[:4]),
            "check_layer(module, num_heads=8)",
        )
    kv_heads = _number(module, KV_HEADS) or heads
    layer = LayerWeights(module, heads, kv_heads, weights)
    subject = Subject(
        layer.copy, _complete(chosen, layer, is_mha), seed, time_limit=time_limit, dtype="float64"
    )
    subject.layers = layer.case
    first = Rule("called", "called", "the layer runs and returns a tensor", choose_layer)
    structure = Rule(
        "weights",
        "layer",
        "every head has weights of its own, and W_O mixes them",
        partial(judge_weights, layer),
    )
    own = type(module).__name__ if name is None else name
    return run(subject, [first, LAYER_RULES[0], structure, *LAYER_RULES[1:]], own, progress)


def _number(module: Any, names: tuple[str, ...]) -> int | None:
    for holder in (module, *module.children(), getattr(module, "config", None)):
        for name in names:
            found = getattr(holder, name, None)
            if found is not None and type(found).__name__ == "ModuleList":
                return len(found)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
    return None


def _complete(contract: Contract, layer: LayerWeights, is_mha: bool) -> Contract:
    """The contract with the call that the layer's signature asks for."""
    found = signature_of(layer.copy.forward)
    served = (
        found.features & {"mask", "padding", "causal"} if contract.features is None else contract.features
    )
    call = contract.call or (_call_mha if is_mha else _caller(found))
    return contract.but(call=call, features=frozenset(served) | {"layer"}, kind="torch")


def _call_mha(fn: Any, case: LayerCall) -> AnyArray:
    """torch.nn.MultiheadAttention: masks (B H, n, n), padding (B, n), its own axis order."""
    x = case.x if fn.batch_first else case.x.transpose(0, 1)
    mask = case.mask
    if mask is not None:
        mask = mask.expand(-1, fn.num_heads, -1, -1).reshape(-1, *mask.shape[-2:])
    found = fn(x, x, x, attn_mask=mask, key_padding_mask=case.padding, need_weights=False)[0]
    return found if fn.batch_first else found.transpose(0, 1)


def _caller(found: Signature) -> Callable[[Function, LayerCall], AnyArray]:
    """forward(x), forward(query, key, value), with the masks under their own names."""
    own, count = found.options, max(found.positional, 1)

    def call(fn: Function, case: LayerCall) -> AnyArray:
        keywords = {
            own[n]: v
            for n, v in (("mask", case.mask), ("padding", case.padding))
            if n in own and v is not None
        }
        if "causal" in own:
            keywords[own["causal"]] = case.is_causal
        return fn(*[case.x] * min(count, 3), **keywords)

    return call
