"""Retrieval: does a head look at the needle, at the very token that the model then writes?

Wu et al. 2024: a passage (the needle) stands in a long prompt, and the model is asked for it. At each step in
which it writes, a head copies where its strongest key lies in the needle and the token then written equals
that key's token. Only the strongest keys that the one pass gives are needed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.compute.request import Aux
from headwise.errors import HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import weights_at
from headwise.inspect.call.text import Text
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import Mean, Tally
from headwise.plain.types import Booleans, Floats, Integers

ENOUGH = 0.1  # above it Wu et al. call a head a retrieval head
BEST = 10  # heads that the report lists

SCORES = (
    Score("retrieval", "Retrieval", "",
          "share of the needle that the head copies: a place counts where it is the strongest key of a step "
          "and the token then written is the one that stands there", "the same for keys picked at random",
          "copies the needle (above 0.1: a retrieval head)", over="tokens of the needle",
          source="Wu et al. 2024, each place once", group="needle"),
    Score("retrieval_counted", "Retrieval, every step counted", "",
          "the same with every step counted that copies, at most 1", "the same for keys picked at random",
          "copies the needle", over="tokens of the needle", source="Wu et al. 2024, as their program counts",
          group="needle"),
)  # fmt: skip


class Retrieval:
    """Scores the layers between two texts on the steps of a model that wrote; a watcher of ``Scorer``.

    Args:
        needle: (start, stop) in the text of the keys.
        written: how many tokens the model had read before it wrote, and the ids of the written ones.
        queries, keys: the texts of the layers; one text for a decoder alone.

    Raises:
        HeadwiseError: nothing was written, ids are not known, or no such passage.
    """

    def __init__(self, needle: Any, written: tuple[int, Integers] | None, queries: Text, keys: Text) -> None:
        if written is None:
            expected = "generate= beside it: heads are scored while the model writes"
            raise HeadwiseError("needle", expected, "a needle alone", "generate=32")
        prompt, self.tokens = written
        if keys.ids is None or queries.n < prompt:
            raise HeadwiseError("needle", "a text with token ids", "embeddings", "give input_ids")
        self.queries, self.keys = queries.name, keys.name
        self.start, self.stop = _span(needle, prompt if keys is queries else keys.n)
        self.ids = keys.ids[self.start : self.stop]
        self.rows: Integers = np.arange(len(self.tokens)) + prompt - 1
        self.matches: Booleans = self.tokens[:, None] == self.ids  # (steps, needle)

    def watch(self, call: AttentionCall, queries: Text, keys: Text, aux: Aux) -> tuple[Tally, Tally] | None:
        """The scores of a call over all rows, and those of uniform attention."""
        if (queries.name, keys.name) != (self.queries, self.keys) or not len(self.rows):
            return None
        strongest = np.asarray(aux.argmax)[0][:, self.rows]
        passage = np.arange(self.start, self.stop)
        copies = (strongest[..., None] == passage) & self.matches  # (H, steps, needle)
        steps = np.flatnonzero(self.matches.any(axis=1))
        chance = np.zeros((1, len(self.rows), len(passage)))
        if len(steps):
            equal = weights_at(call.uniform(), self.rows[steps], passage) * self.matches[steps]
            chance = np.zeros((len(equal), *chance.shape[1:]))
            chance[:, steps] = equal
        return self._tally(copies.astype(np.float64)), self._tally(chance)

    def report(self, cards: Sequence[tuple[int, int, dict[str, Any]]]) -> dict[str, Any]:
        """What the report says of the needle: where it is, how often the model wrote one of its tokens, and
        the heads that copied most of it, best first.

        Args:
            cards: layer, head and its scores.
        """
        scored = [
            {
                "layer": layer,
                "head": head,
                "value": card["retrieval"]["value"],
                "null": card["retrieval"]["null"],
                "counted": card["retrieval_counted"]["value"],
            }
            for layer, head, card in cards
            if "retrieval" in card
        ]
        best = sorted(scored, key=lambda e: (-e["value"], -e["counted"], e["layer"], e["head"]))
        return {
            "keys": self.keys,
            "start": self.start,
            "stop": self.stop,
            "steps": len(self.rows),
            "possible": int(self.matches.any(axis=1).sum()),
            "threshold": ENOUGH,
            "heads": len(scored),
            "above": sum(entry["value"] > ENOUGH for entry in scored),
            "best": [entry for entry in best if entry["value"] > 0][:BEST],
        }

    def _tally(self, chance: Floats) -> Tally:
        """Sums from the chance (H, steps, needle) that a step copies a place; 0 or 1 where it is known."""
        heads, steps, length = chance.shape
        copied = (1 - np.prod(1 - chance, axis=1)).sum(axis=-1)
        counted = np.minimum(chance.sum(axis=(1, 2)), length)
        tokens, rows = np.full(heads, float(length)), np.full(heads, float(steps))
        means = {
            "retrieval": Mean(copied, tokens, rows, rows),
            "retrieval_counted": Mean(counted, tokens, rows, rows),
        }
        return Tally(np.zeros(heads), means)


def _span(given: Any, n: int) -> tuple[int, int]:
    expected = f"(start, stop) with 0 <= start < stop <= {n}, the tokens that the model reads"
    try:
        found = np.asarray(given)
    except (TypeError, ValueError):
        raise HeadwiseError("needle", expected, repr(given)[:60], "needle=(12, 20)") from None
    if found.shape != (2,) or found.dtype.kind not in "iu" or not 0 <= found[0] < found[1] <= n:
        raise HeadwiseError("needle", expected, repr(given)[:60], "needle=(12, 20)")
    return int(found[0]), int(found[1])
