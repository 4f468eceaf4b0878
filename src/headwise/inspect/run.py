"""The main job from end to end: check, self-test, one listened forward pass, report."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise import __version__
from headwise.errors import HeadwiseError
from headwise.inspect.heads import head_entries
from headwise.inspect.labels import label_table, most_telling, out_of_reach
from headwise.inspect.models import require_frameworks
from headwise.inspect.report import HeadReport
from headwise.inspect.scorecard import score_table
from headwise.inspect.scores import TOP_K, Scorer

ROW_BUDGET = 3_000_000  # single weights that a report holds over all rows of all heads


def inspect_heads(
    model: Any,
    inputs: Any,
    tokens: Sequence[str] | None = None,
    *,
    special: Sequence[int] | None = None,
    name: str | None = None,
    source: str | None = None,
    text_source: str | None = None,
    notes: Sequence[str] = (),
    num_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> HeadReport:
    """Run one forward pass of a Hugging Face model over one text and score every head.

    The model computes its own output (with transformers' "sdpa"); headwise listens to query and key of every
    attention call and computes the statistics from them. No n x n array is made and ``output_attentions`` is
    never asked for. A self-test on the first 32 tokens comes first; the model is left as it was, also after
    an exception.

    A head gets a label where its score passes the threshold of the label and is at least five times what
    uniform attention gives; the induction label also needs at least 5 query rows with a possible match. Where
    the text is too short for a label, the report's notes say so.

    Args:
        model: a loaded Hugging Face torch model in evaluation mode: float32 or float64, on the CPU.
        inputs: token ids, a tensor of shape (n,) or (1, n), or the mapping that the tokenizer returns.
        tokens: n strings to show; None shows the ids.
        special: positions of the special tokens, from 0; None or empty: there are none, and that score is
            missing.
        name, source: what the report calls the model and says it came from; None: the class and the config's
            path.
        text_source: what the report says the text came from.
        notes: sentences to put first among the report's notes.
        num_threads: threads of our kernel; None: its own default.
        progress: called as ``progress(layers done, layers)``, first with 0.

    Returns:
        A HeadReport.

    Raises:
        HeadwiseError: a model in training mode, ids that the model does not have, tokens or special that do
            not fit.
        CapabilityError: what is not served: padding, several sequences, windows, caches, cross-attention,
            half precision, another device, an attention that does not go through transformers' registry. The
            message names it.
    """
    require_frameworks()
    from headwise.inspect.capture import AttentionCall, attached
    from headwise.inspect.inputs import check_model, forward, one_sequence, without_logits
    from headwise.inspect.selftest import self_test

    check_model(model)
    prepared = one_sequence(model, inputs)
    ids = prepared["input_ids"][0].cpu().numpy().astype(np.int64)
    shown = _tokens(tokens, ids)
    positions = _positions(special, len(ids))
    check = self_test(model, prepared)
    is_special = np.isin(np.arange(len(ids)), positions)
    scorer = Scorer(ids, is_special, check.is_causal, num_threads)
    kept = min(TOP_K, ROW_BUDGET // (len(ids) * check.layers * check.heads))
    layers: list[dict[str, Any]] = []

    def observe(call: AttentionCall) -> None:
        scores = scorer.layer(call.query, call.key, scale=call.scale)
        layers.append({"layer": call.layer, "name": call.name, "heads": head_entries(scores, scorer, kept)})
        if progress is not None:
            progress(len(layers), check.layers)

    if progress is not None:
        progress(0, check.layers)
    with attached(model, len(ids), observe):
        forward(model, without_logits(model, prepared))
    return HeadReport(
        headwise=__version__,
        model={
            "name": name or type(model).__name__,
            "source": source if source is not None else str(getattr(model.config, "name_or_path", "")),
            "architecture": type(model).__name__,
            "layers": check.layers,
            "heads": check.heads,
            "kv_heads": check.kv_heads,
            "head_dim": check.head_dim,
            "causal": check.is_causal,
        },
        text={"source": text_source, "n_tokens": len(ids)},
        tokens=shown,
        special=positions,
        check={
            "tokens": check.tokens,
            "max_abs_difference": check.max_abs_difference,
            "causal_leak": check.causal_leak,
        },
        scores=score_table(),
        labels=label_table(scorer.null),
        layers=layers,
        telling=most_telling(layers),
        notes=[*notes, *_notes(kept, positions), *out_of_reach(scorer.null, len(ids))],
    )


def _tokens(tokens: Sequence[str] | None, ids: npt.NDArray[np.int64]) -> list[str]:
    if tokens is None:
        return [str(token) for token in ids]
    if isinstance(tokens, str) or len(tokens) != len(ids):
        received = "one string" if isinstance(tokens, str) else f"{len(tokens)}"
        raise HeadwiseError(
            "tokens", f"{len(ids)} strings, one per id", received, "leave tokens out to show the ids"
        )
    return [str(token) for token in tokens]


def _positions(special: Sequence[int] | None, n: int) -> list[int]:
    """Sorted positions; a tokenizer's ``special_tokens_mask`` is not taken for them."""
    if special is None:
        return []
    expected, hint = (
        f"different positions from 0 to {n - 1}",
        "of a mask: np.flatnonzero(special_tokens_mask)",
    )
    given: Any = special
    found: npt.NDArray[Any] = np.asarray([given] if isinstance(given, str) else given)
    if found.size == 0:
        return []
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise HeadwiseError("special", expected, f"{found.dtype} of shape {found.shape}", hint)
    positions = sorted(found.tolist())
    if len(set(positions)) < len(positions) or not 0 <= positions[0] <= positions[-1] < n:
        raise HeadwiseError("special", expected, f"{found.tolist()}"[:80], hint)
    return positions


def _notes(kept: int, special: Sequence[int]) -> list[str]:
    notes = []
    if kept == 0:
        notes.append("The text is so long that the strongest keys of single queries were left out.")
    elif kept < TOP_K:
        notes.append(
            f"The text is long: of each query the {kept} strongest keys were kept instead of {TOP_K}."
        )
    if not special:
        notes.append("No special tokens were named, so that score is missing.")
    return notes
