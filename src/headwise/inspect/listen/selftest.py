"""The test at attach time: listening changes no output, and no later token reaches back in a causal layer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

import torch

from headwise.errors import CapabilityError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen.attachment import Seams
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.inputs import Inputs, Sequence, forward
from headwise.inspect.listen.seams import listen

PROBE_TOKENS = 32
# Relative to the largest output: a model that ran eager attention differs by rounding.
OUTPUT_TOLERANCE = {torch.float16: 0.05, torch.bfloat16: 0.2}
EXACT_TOLERANCE = 1e-3
LEAK_TOLERANCE = 1e-5  # relative to the largest output of the layer


@dataclass(frozen=True)
class SelfTest:
    """What the probe of at most 32 tokens found.

    Attributes:
        seams: where the model's attention is heard.
        tokens: length of the probe.
        max_abs_difference: largest |Δ| between the model's outputs with and without the listener.
        causal_leak: largest |Δ| of an attention output of a causal layer at an earlier token after the last
            token was exchanged; None where there is no later token or no causal layer.
        layers, heads, kv_heads, head_dim: of the attention calls; the largest where they differ.
        all_heads: heads of all layers together.
        is_causal: True where every layer of self-attention is.
    """

    seams: Seams
    tokens: int
    max_abs_difference: float
    causal_leak: float | None
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    all_heads: int
    is_causal: bool


def self_test(model: torch.nn.Module, inputs: Inputs, compute: str = "torch") -> SelfTest:
    """Compare the model with and without the listener on the first tokens of the text.

    Raises:
        CapabilityError: no attention is heard anywhere; the outputs change or are not finite; a later token
            changes an earlier attention output.
    """
    probe = inputs.first(PROBE_TOKENS)
    plain = forward(model, probe)
    heard = listen(model, lambda: forward(model, probe), compute)
    seams, calls = heard.seams, heard.calls
    if not calls:
        raise CapabilityError(
            "model",
            "attention by transformers' registry, by torch's scaled_dot_product_attention, or by a softmax "
            "in a module named attention",
            f"{type(model).__name__}: no attention call seen",
            "headwise.inspect_qk(query, key) takes the arrays themselves",
        )
    difference = _difference(plain, heard.output)
    itself = [call for call in calls if call.kind == "self"]
    main = probe.main
    leak = None
    if any(call.is_causal for call in itself) and main is not None and _is_plain(main):
        leak = _leak(model, probe, seams, compute, itself)
    return SelfTest(
        seams=seams,
        tokens=0 if main is None else main.n,
        max_abs_difference=difference,
        causal_leak=leak,
        layers=len({call.layer for call in calls}),
        heads=max(call.query.shape[1] for call in calls),
        kv_heads=max(call.key.shape[1] for call in calls),
        head_dim=calls[0].query.shape[-1],
        all_heads=sum(call.query.shape[1] for call in calls),
        is_causal=bool(itself) and all(call.is_causal for call in itself),
    )


def _difference(plain: Any, listened: Any) -> float:
    pairs = list(zip(_tensors(plain), _tensors(listened), strict=True))
    largest = max((float(before.abs().max()) for before, _ in pairs), default=0.0)
    difference = max((float((before - after).abs().max()) for before, after in pairs), default=0.0)
    tolerance = max((OUTPUT_TOLERANCE.get(t.dtype, EXACT_TOLERANCE) for t, _ in pairs), default=0.0)
    if not difference <= tolerance * largest:  # written so that NaN is refused too
        raise CapabilityError(
            "model",
            "outputs that are finite and stay the same while headwise listens",
            f"a largest output of {largest:.3g} and a difference of {difference:.3g}",
            "load it with attn_implementation='sdpa'",
        )
    return difference


def _leak(
    model: torch.nn.Module, probe: Inputs, seams: Seams, compute: str, calls: list[AttentionCall]
) -> float | None:
    main = probe.main
    assert main is not None
    ids = probe.keywords[main.argument] if main.argument in probe.keywords else probe.args[0]
    last = ids[0, -1]
    others = ids[0][ids[0] != last]
    changed = ids.clone()
    changed[0, -1] = others[0] if len(others) else (1 if int(last) == 0 else 0)
    if main.argument in probe.keywords:
        probe = replace(probe, keywords={**probe.keywords, main.argument: changed})
    else:
        probe = replace(probe, args=(changed, *probe.args[1:]))
    again: dict[int, AttentionCall] = {}
    with attached(model, lambda call: again.update({call.layer: call}), compute=compute, seams=seams):
        forward(model, probe)
    pairs = [(call, again[call.layer]) for call in calls if call.output is not None]
    if any(_moved(*pair)[0] for pair in pairs if not pair[0].is_causal):
        return None  # a layer looks ahead by itself: what comes after it may move
    leak = 0.0
    for before, after in pairs:
        if not before.is_causal:
            continue
        moved, largest = _moved(before, after)
        if not moved <= LEAK_TOLERANCE * largest:
            raise CapabilityError(
                "model",
                "a causal model, in which a later token cannot change an earlier output",
                f"{before.name}: an earlier output moved by {moved:.3g}",
            )
        leak = max(leak, moved)
    return leak


def _is_plain(text: Sequence) -> bool:
    return text.ids is not None and text.n > 1 and bool(text.real.all())


def _moved(before: AttentionCall, after: AttentionCall) -> tuple[float, float]:
    """By how much the outputs before the last token moved, and the largest of them."""
    earlier = before.output[:, :, :-1]
    if not earlier.numel():
        return 0.0, 0.0
    return float((earlier - after.output[:, :, :-1]).abs().max()), float(earlier.abs().max())


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
    elif is_dataclass(output):
        yield from _tensors(vars(output))
