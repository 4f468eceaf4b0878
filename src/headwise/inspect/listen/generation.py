"""The steps of a model that writes with a cache, put together: every layer as one call over the whole text.

In its first step an attention sees the prompt, in each later one a new token beside the cached keys. The rows
of all steps together are those of one pass over the whole text, and are scored as such.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen.attachment import Seams
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.inputs import TARGET, Inputs, Sequence

GREEDY = {"do_sample": False, "num_beams": 1}
OF_ROWS = ("segment_ids", "attn_mask")  # options that say something else in every step


@dataclass(frozen=True, eq=False)
class Written:
    """What a model read and wrote, all steps together.

    Attributes:
        inputs: the inputs with every token that it read.
        calls: every layer as one call over all its rows.
        prompt: how many tokens it had read before it wrote the first one.
        tokens: ids of the tokens that it wrote, after row prompt − 1, prompt, …; the last was never read.
    """

    inputs: Inputs
    calls: list[AttentionCall]
    prompt: int
    tokens: npt.NDArray[np.int64]


def write(
    model: Any, given: Inputs, generate: int | Mapping[str, Any], seams: Seams, compute: str = "torch"
) -> Written:
    """Let the model write, greedily and with its cache, and listen.

    Args:
        generate: how many tokens, or keywords of ``model.generate``.
        seams, compute: as for ``attached``.

    Raises:
        HeadwiseError: a model that does not write, or no number of tokens.
        CapabilityError: steps that cannot be put together.
    """
    if not callable(getattr(model, "generate", None)):
        hint = "leave generate out: the forward pass reads the whole text"
        raise HeadwiseError("generate", "None for a model that does not write", repr(generate), hint)
    wished = dict(generate) if isinstance(generate, Mapping) else {"max_new_tokens": generate}
    new = wished.get("max_new_tokens", 1)
    if isinstance(new, bool) or not isinstance(new, int) or new < 1:
        raise HeadwiseError("generate", "a number of tokens from 1, or keywords", repr(generate)[:60])
    steps = Steps()
    prompt = {key: value for key, value in given.keywords.items() if key != "use_cache"}
    with (
        attached(model, steps.observe, compute=compute, seams=seams),
        read_by(model) as read,
        torch.no_grad(),
    ):
        found = model.generate(**prompt, **{**GREEDY, **wished})
    inputs = given.with_read(read)
    ids = (
        inputs.main.ids if inputs.main is not None and inputs.main.ids is not None else np.zeros(0, np.int64)
    )
    started_with = max(given.main.n if given.main else 0, read[0][1].shape[1] if read else 0)
    whole = getattr(found, "sequences", found)[0].cpu().numpy()
    known = whole if len(whole) == len(ids) + 1 and np.array_equal(whole[:-1], ids) else ids
    return Written(inputs, steps.calls(), started_with, known[started_with:].astype(np.int64))


class Steps:
    """Keeps of each step what is new: its queries and, in self-attention, its own keys and values.

    These are copies, together as large as the model's own cache, which may move or overwrite what it holds.
    """

    def __init__(self) -> None:
        self._steps: dict[int, list[AttentionCall]] = {}

    def observe(self, call: AttentionCall) -> None:
        """Take one step.

        Raises:
            CapabilityError: a step that does not continue the ones before it.
        """
        steps = self._steps.setdefault(call.layer, [])
        _check(call, steps)
        n_q = call.query.shape[2]
        parts: dict[str, Any] = {}
        if call.kind == "self":
            new = slice(call.offset, call.offset + n_q)
            parts["key"] = call.key[:, :, new].clone()
            if call.value is not None:
                parts["value"] = call.value[:, :, new].clone()
            window = _window(call)
            if window is not None:
                parts["options"] = {**call.options, "window_size": (window, 0)}
        elif steps:
            parts = {"key": steps[0].key, "value": steps[0].value}
        output = None if call.output is None else call.output.clone()
        steps.append(replace(call, query=call.query.clone(), output=output, runner=None, **parts))

    def calls(self) -> list[AttentionCall]:
        """Every layer as one call over all its rows, in order."""
        return [_joined(self._steps[layer]) for layer in sorted(self._steps)]


def _check(call: AttentionCall, steps: list[AttentionCall]) -> None:
    if call.query.shape[0] != 1:
        received = f"{call.name} with {call.query.shape[0]}"
        raise CapabilityError("generate", "one sequence in every step", received, "num_beams=1")
    if not steps:
        return
    if call.kind == "cross" and steps[0].key.shape[2] != call.key.shape[2]:
        received = f"{call.name}: {steps[0].key.shape[2]} keys, then {call.key.shape[2]}"
        raise CapabilityError("generate", "cross-attention to one sequence", received)
    n_q, n_k = call.query.shape[2], call.key.shape[2]
    slides = n_q == 1 and n_k < call.first_row + n_q  # a cache that keeps only the last keys
    if call.kind == "self" and call.offset != call.first_row and not slides:
        received = f"{call.name}: a query at {call.offset} after {call.first_row} rows"
        hint = "use_cache=True, one prompt"
        raise CapabilityError("generate", "steps that go on where the last one ended", received, hint)
    for name in OF_ROWS:
        if call.options.get(name) is not None:
            expected = "a text without padding, whose tokens see all that came before"
            raise CapabilityError(
                "generate", expected, f"{call.name} with {name}", "give one unpadded prompt"
            )


def _window(call: AttentionCall) -> int | None:
    """How many keys before its own a query of this step sees at most; None: all.

    A cache that slides holds no more than the window, and then the step needs no other mask.
    """
    n_k, rows = call.key.shape[2], call.first_row + call.query.shape[2]
    left = call.options.get("window_size", (None, None))[0]
    slides = n_k - 1 if n_k < rows else None
    return min((side for side in (left, slides) if side is not None), default=None)


def _joined(steps: list[AttentionCall]) -> AttentionCall:
    first = steps[0]
    if len(steps) == 1:
        return first
    query = torch.cat([step.query for step in steps], dim=2)
    fields: dict[str, Any] = {"query": query}
    if all(step.output is not None for step in steps):
        fields["output"] = torch.cat([step.output for step in steps], dim=2)
    options = {name: first.options[name] for name in ("scale", "softcap", "sinks") if name in first.options}
    if first.kind == "self":
        fields["key"] = torch.cat([step.key for step in steps], dim=2)
        if first.value is not None:
            fields["value"] = torch.cat([step.value for step in steps], dim=2)
        options |= {"is_causal": True, "query_offset": 0}
        windows = [step.options["window_size"] for step in steps if "window_size" in step.options]
        if windows:
            options["window_size"] = min(windows)
    if first.options.get("attn_bias") is not None:
        n_k = fields.get("key", first.key).shape[2]
        options["attn_bias"] = _joined_bias([step.options["attn_bias"] for step in steps], n_k)
    return replace(first, options=options, **fields)


def _joined_bias(parts: list[torch.Tensor], n_k: int) -> torch.Tensor:
    """(B, H, rows of all steps, n_k); what a step had no keys for is hidden by causality."""
    wide = [torch.nn.functional.pad(part[..., :n_k], (0, n_k - min(n_k, part.shape[-1]))) for part in parts]
    return torch.cat(wide, dim=2)


def started(model: Any, inputs: Inputs) -> Inputs:
    """The inputs of the first step of a model that writes: the decoder of two begins with its start token."""
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    config = getattr(model, "config", None)
    start = getattr(config, "decoder_start_token_id", None) if start is None else start
    if (
        not getattr(config, "is_encoder_decoder", False)
        or TARGET in inputs.texts
        or not isinstance(start, int)
    ):
        return inputs
    target = Sequence("decoder_input_ids", np.array([start]), np.ones(1, bool))
    keywords = {**inputs.keywords, "decoder_input_ids": torch.tensor([[start]])}
    return replace(inputs, keywords=keywords, texts={**inputs.texts, TARGET: target})


@contextmanager
def read_by(model: torch.nn.Module) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """The ids that a model reads in each step while it writes: (keyword, ids)."""
    read: list[tuple[str, torch.Tensor]] = []

    def keep(_: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        for name in ("decoder_input_ids", "input_ids"):
            if isinstance(keywords.get(name), torch.Tensor):
                read.append((name, keywords[name].clone()))
                return

    hook = model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        yield read
    finally:
        hook.remove()
