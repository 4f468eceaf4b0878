"""The test at attach time: listening changes no output, and no later token reaches back in a causal model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headwise.errors import CapabilityError
from headwise.inspect.capture import AttentionCall, attached
from headwise.inspect.inputs import first_tokens, forward

PROBE_TOKENS = 32
OUTPUT_TOLERANCE = (
    1e-3  # relative to the largest output: a model that ran eager attention differs by rounding
)
LEAK_TOLERANCE = 1e-5  # relative to the largest output of the layer


@dataclass(frozen=True)
class SelfTest:
    """What the probe of at most 32 tokens found.

    Attributes:
        tokens: length of the probe.
        max_abs_difference: largest |Δ| between the model's outputs with and without the listener.
        causal_leak: for a causal model, the largest |Δ| of an attention output at an earlier token after the
            last token was exchanged; None where there is no later token or the model is not causal.
        layers, heads, kv_heads, head_dim, is_causal: what the attention calls showed.
    """

    tokens: int
    max_abs_difference: float
    causal_leak: float | None
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    is_causal: bool


def self_test(model: torch.nn.Module, inputs: dict[str, Any]) -> SelfTest:
    """Compare the model with and without the listener on the first tokens of the text.

    Raises:
        CapabilityError: the model never calls transformers' attention registry; some layers are causal and
            some not; its outputs change or are not finite; a later token changes an earlier attention output.
    """
    n = min(PROBE_TOKENS, inputs["input_ids"].shape[1])
    probe = first_tokens(inputs, n)
    plain = forward(model, probe)
    calls: list[AttentionCall] = []
    with attached(model, n, calls.append):
        listened = forward(model, probe)
    if not calls:
        raise CapabilityError(
            "model",
            "a model whose attention goes through transformers' attention registry",
            f"{type(model).__name__}: no attention call seen",
            "architectures with an attention of their own are not yet served",
        )
    causal = {call.is_causal for call in calls}
    if len(causal) > 1:
        kind = type(model).__name__
        raise CapabilityError("model", "layers that are all causal or all not", f"{kind}, which has both")
    difference = _difference(plain, listened)
    is_causal = causal.pop()
    leak = _leak(model, probe, calls) if is_causal and n > 1 else None
    return SelfTest(
        tokens=n,
        max_abs_difference=difference,
        causal_leak=leak,
        layers=len(calls),
        heads=max(call.query.shape[1] for call in calls),
        kv_heads=max(call.key.shape[1] for call in calls),
        head_dim=calls[0].query.shape[-1],
        is_causal=is_causal,
    )


def _difference(plain: Any, listened: Any) -> float:
    pairs = list(zip(_tensors(plain), _tensors(listened), strict=True))
    largest = max((float(before.abs().max()) for before, _ in pairs), default=0.0)
    difference = max((float((before - after).abs().max()) for before, after in pairs), default=0.0)
    if not difference <= OUTPUT_TOLERANCE * largest:  # written so that NaN is refused too
        raise CapabilityError(
            "model",
            "outputs that are finite and stay the same while headwise listens",
            f"a largest output of {largest:.3g} and a difference of {difference:.3g}",
            "load it with attn_implementation='sdpa'",
        )
    return difference


def _leak(model: torch.nn.Module, probe: dict[str, Any], calls: list[AttentionCall]) -> float:
    ids = probe["input_ids"]
    last = ids[0, -1]
    others = ids[0][ids[0] != last]
    changed = ids.clone()
    changed[0, -1] = others[0] if len(others) else (1 if int(last) == 0 else 0)
    again: list[AttentionCall] = []
    with attached(model, ids.shape[1], again.append):
        forward(model, {**probe, "input_ids": changed})
    leak = 0.0
    for before, after in zip(calls, again, strict=True):
        earlier = before.output[:, :-1]
        moved = float((earlier - after.output[:, :-1]).abs().max())
        if not moved <= LEAK_TOLERANCE * float(earlier.abs().max()):
            raise CapabilityError(
                "model",
                "a causal model, in which a later token cannot change an earlier output",
                f"{before.name}: an earlier output moved by {moved:.3g}",
            )
        leak = max(leak, moved)
    return leak


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every floating tensor in a model output, in a fixed order."""
    if isinstance(output, torch.Tensor):
        if output.is_floating_point() and output.numel():
            yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from _tensors(value)
