"""What a report can hold beside the scores, by the user's wishes: pairs, a needle, redundancy, rollout."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.inspect.call.text import Text
from headwise.inspect.score.scorer import Scorer
from headwise.inspect.watch.needle import Retrieval
from headwise.inspect.watch.pairs import GoldPairs
from headwise.inspect.watch.redundancy import Redundancy
from headwise.inspect.watch.rollout import Rollout
from headwise.plain.types import Integers


@dataclass(kw_only=True)
class Watchers:
    """Wishes, as ``inspect_heads`` and ``inspect_qk`` take them, and the watchers that fulfil them.

    ``heads`` is the number of heads of all layers together; ``written`` what a model wrote, None where none
    did: how many tokens it had read before, and the ids of the written ones.
    """

    heads: int
    pairs: Any = None
    pair_candidates: Any = None
    pairs_both_ways: bool = False
    needle: Any = None
    written: tuple[int, Integers] | None = None
    redundancy: bool = True
    rollout: Any = None
    _pairs: GoldPairs | None = field(default=None, init=False)
    _needle: Retrieval | None = field(default=None, init=False)
    _redundancy: Redundancy | None = field(default=None, init=False)
    _rollout: Rollout | None = field(default=None, init=False)

    def attach(
        self, scorer: Scorer, queries: Text, keys: Text | None = None, read: Text | None = None
    ) -> "Watchers":
        """Listen to the scorer from now on.

        Args:
            queries, keys: the texts of the layers that all this is about; keys None: the queries' own.
            read: the text in which pairs and needle have their keys; None: that of ``keys``.

        Raises:
            HeadwiseError: wishes that do not fit the texts.
        """
        keys = queries if keys is None else keys
        read = keys if read is None else read
        if self.pairs is not None:
            self._pairs = GoldPairs(self.pairs, self.pair_candidates, self.pairs_both_ways, queries, read)
            scorer.watchers.append(self._pairs.watch)
        if self.needle is not None:
            self._needle = Retrieval(self.needle, self.written, queries, read)
            scorer.watchers.append(self._needle.watch)
        if self.redundancy:
            self._redundancy = Redundancy(self.heads, queries, keys)
            scorer.watchers.append(self._redundancy.watch)
        if self.rollout is not None and self.rollout is not False:
            self._rollout = Rollout(self.rollout, queries)
            scorer.watchers.append(self._rollout.watch)
        return self

    def report(self, cards: Sequence[tuple[int, int, dict[str, Any]]]) -> dict[str, Any]:
        """The fields of the report; ``cards``: layer, head and its scores."""
        return {
            "pairs": self._pairs.report(cards) if self._pairs else None,
            "needle": self._needle.report(cards) if self._needle else None,
            "redundancy": self._redundancy.report() if self._redundancy else None,
            "rollout": self._rollout.report() if self._rollout else None,
        }
