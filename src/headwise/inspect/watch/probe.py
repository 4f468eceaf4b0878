"""The random-token probe: which heads continue a repetition, which look one token back, without any meaning.

Olsson et al. 2022: a block of random tokens, repeated, with the opening token in front. An induction head
looks from a token to what followed it in earlier repeats. Control: the same statistic, at the same places, on
random tokens that never repeat; a head that scores there follows position, not the repetition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.compute.request import Aux, AuxRequest
from headwise.errors import HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.text import Text
from headwise.inspect.load.models import require_frameworks
from headwise.inspect.score.scorer import Scorer
from headwise.inspect.score.tally import Mean, Tally, ratio_over

BLOCK, REPEATS, SEQUENCES = 25, 4, 4
RARE = 0.1  # share of the vocabulary left out at each end: the most and the least common tokens

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Probe:
    """The token ids of the probe.

    Attributes:
        repeated: (sequences, n) blocks of different random tokens, each repeated.
        control: (sequences, n) random tokens, none twice.
        block, repeats, seed: how they were made.
    """

    repeated: Ids
    control: Ids
    block: int
    repeats: int
    seed: int


def make_probe(
    vocabulary: Sequence[int],
    first: int | None,
    *,
    block: int = BLOCK,
    repeats: int = REPEATS,
    sequences: int = SEQUENCES,
    seed: int = 0,
) -> Probe:
    """Draw the ids; ``first`` stands in front of each sequence (None: nothing does).

    Raises:
        HeadwiseError: too small a vocabulary, or numbers that make no probe.
    """
    for name, number, least in (("block", block, 2), ("repeats", repeats, 2), ("sequences", sequences, 1)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise HeadwiseError(name, f"a whole number from {least}", repr(number)[:60])
    tokens = np.unique(np.asarray(vocabulary, np.int64))
    if len(tokens) < block * repeats:
        raise HeadwiseError(
            "vocabulary", f"at least {block * repeats} tokens, so that none stands twice", f"{len(tokens)}",
            "a shorter block, or fewer repeats",
        )  # fmt: skip
    rng = np.random.default_rng(seed)
    control = np.stack([rng.permutation(tokens)[: block * repeats] for _ in range(sequences)])
    repeated = np.tile(control[:, :block], repeats)
    if first is not None:
        opening = np.full((sequences, 1), first)
        repeated, control = np.hstack([opening, repeated]), np.hstack([opening, control])
    return Probe(repeated, control, block, repeats, seed)


def vocabulary_of(tokenizer: Any) -> tuple[list[int], int | None]:
    """Ids of ordinary tokens of a tokenizer, neither its first nor its last (the most and the least common),
    and the token that opens a text (None where there is none)."""
    from headwise.inspect.load.tokens import special_token_ids

    special = special_token_ids(tokenizer) | {tokenizer.unk_token_id}
    ids = sorted(set(tokenizer.get_vocab().values()) - special)
    cut = int(RARE * len(ids))
    opening = (getattr(tokenizer, f"{name}_token_id", None) for name in ("bos", "cls"))
    return ids[cut : len(ids) - cut], next((token for token in opening if token is not None), None)


def run_probe(
    model: Any,
    probe: Probe,
    *,
    num_threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Run the model over the probe; the field ``probe`` of a report.

    Per head of self-attention over the text: ``induction`` (mass on what followed the token in earlier
    repeats, mean over the rows that have such a place), ``induction_null`` (the same of uniform attention),
    ``induction_control`` (on tokens that never repeat), ``induction_entry`` (mean of the single weights),
    ``preceding`` (the other reading of the definition: mass on what stood before the token in earlier
    repeats), ``previous`` (mass on the token before, over rows that have one; ``previous_all``: over all) and
    ``previous_null``.

    Raises:
        HeadwiseError, CapabilityError: as ``inspect_heads``.
    """
    require_frameworks(["torch"])
    import torch

    from headwise.inspect.listen.inputs import check_model, take_inputs
    from headwise.inspect.listen.selftest import self_test

    check_model(model)
    check = self_test(model, take_inputs(model, torch.as_tensor(probe.repeated[:1])))
    total: dict[str, dict[int, tuple[Tally, Tally]]] = {"repeated": {}, "control": {}}
    done, runs = 0, 2 * len(probe.repeated)
    for kind, rows in (("repeated", probe.repeated), ("control", probe.control)):
        for ids, as_if in zip(rows, probe.repeated, strict=True):
            for layer, found in _run(model, ids, as_if, check.seams, check.all_heads, num_threads).items():
                known = total[kind].get(layer)
                total[kind][layer] = found if known is None else (known[0] + found[0], known[1] + found[1])
            done += 1
            if progress is not None:
                progress(done, runs)
    return {
        "tokens": int(probe.repeated.shape[1]),
        "block": probe.block,
        "repeats": probe.repeats,
        "sequences": len(probe.repeated),
        "seed": probe.seed,
        "heads": [
            _entry(layer, head, *total["repeated"][layer], total["control"][layer][0])
            for layer in sorted(total["repeated"])
            for head in range(len(total["repeated"][layer][0].of))
        ],
    }


def _run(
    model: Any, ids: Ids, as_if: Ids, seams: Any, heads: int, num_threads: int | None
) -> dict[int, tuple[Tally, Tally]]:
    """The sums of every self-attention layer over one sequence, scored as if its tokens were ``as_if``."""
    import torch

    from headwise.inspect.listen.capture import attached
    from headwise.inspect.listen.inputs import forward, take_inputs, without_logits

    scorer, text = Scorer(heads, num_threads), Text(len(ids), as_if)
    scorer.watchers.append(_preceding)

    def observe(call: AttentionCall) -> None:
        if call.kind == "self" and call.query.shape[-2] == call.key.shape[-2] == len(ids):
            scorer.observe(call, text)

    inputs = take_inputs(model, torch.as_tensor(ids[None]))
    with attached(model, observe, seams=seams):
        forward(model, without_logits(model, inputs))
    return {layer.layer: (layer.tally, layer.null) for layer in scorer.entries()}


def _preceding(call: AttentionCall, queries: Text, keys: Text, aux: Aux) -> tuple[Tally, Tally]:
    """Mass on keys that stand before an earlier place of the query's token: the keys' ids, moved by two, make
    them the kernel's induction keys; the key before the query itself is no such place and is taken off."""
    assert keys.ids is not None and queries.ids is not None
    moved = np.concatenate([keys.ids[2:], [-1, -1]])
    found = call.statistics(AuxRequest(matches=(moved[None], queries.ids[None]), relative=(-1,)))
    mass, count = (np.asarray(part, np.float64)[0] for part in (found.induction, found.induction_count))
    itself = np.arange(mass.shape[1]) >= 2  # where the key before the query is among the kernel's keys
    before = np.where(itself, np.asarray(found.relative, np.float64)[0, ..., 0], 0.0)
    possible = count - itself > 0
    ones = np.ones_like(mass)
    mean = ratio_over(np.maximum(mass - before, 0.0), ones, possible, np.ones_like(possible))
    return Tally(np.zeros(len(mass)), {"preceding": mean}), Tally(np.zeros(1))


def _entry(layer: int, head: int, tally: Tally, null: Tally, control: Tally) -> dict[str, Any]:
    def of(source: Tally, key: str) -> Mean | None:
        found = source.sums.get(key)
        return None if found is None else found.mean(source.of)

    def value(mean: Mean | None) -> float | None:
        return None if mean is None else mean.value(head)

    previous = of(tally, "previous")
    return {
        "layer": layer,
        "head": head,
        "induction": value(of(tally, "induction")),
        "induction_null": value(of(null, "induction")),
        "induction_control": value(of(control, "induction")),
        "induction_entry": value(of(tally, "induction_entry")),
        "preceding": value(of(tally, "preceding")),
        "previous": value(previous),
        "previous_all": None if previous is None else previous.over_all(head),
        "previous_null": value(of(null, "previous")),
    }
