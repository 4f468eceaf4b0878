"""What a report can hold beside the scores: gold pairs, redundancy and rollout, from the user's wishes."""

from dataclasses import dataclass, field
from typing import Any

from headwise.inspect.heads import layer_entry
from headwise.inspect.pairs import GoldPairs
from headwise.inspect.redundancy import Redundancy
from headwise.inspect.rollout import Rollout
from headwise.inspect.scores import Scorer
from headwise.inspect.text import Text


@dataclass(kw_only=True)
class Extras:
    """Wishes, as ``inspect_heads`` and ``inspect_qk`` take them, and the watchers that fulfil them.

    ``heads`` is the number of heads of all layers together.
    """

    heads: int
    pairs: Any = None
    pair_candidates: Any = None
    pairs_both_ways: bool = False
    redundancy: bool = True
    rollout: Any = None
    _pairs: GoldPairs | None = field(default=None, init=False)
    _redundancy: Redundancy | None = field(default=None, init=False)
    _rollout: Rollout | None = field(default=None, init=False)

    def attach(self, scorer: Scorer, queries: Text, keys: Text | None = None) -> "Extras":
        """Listen to the scorer from now on.

        Args:
            queries, keys: the texts of the layers that pairs, redundancy and rollout are about.

        Raises:
            HeadwiseError: wishes that do not fit the texts.
        """
        keys = queries if keys is None else keys
        if self.pairs is not None:
            self._pairs = GoldPairs(self.pairs, self.pair_candidates, self.pairs_both_ways, queries, keys)
            scorer.watchers.append(self._pairs.watch)
        if self.redundancy:
            self._redundancy = Redundancy(self.heads, queries, keys)
            scorer.watchers.append(self._redundancy.watch)
        if self.rollout is not None and self.rollout is not False:
            self._rollout = Rollout(self.rollout, queries)
            scorer.watchers.append(self._rollout.watch)
        return self

    def report(self, scorer: Scorer) -> dict[str, Any]:
        """The fields of the report."""
        layers = [layer_entry(layer) for layer in scorer.entries()] if self._pairs else []
        return {
            "pairs": self._pairs.report(layers) if self._pairs else None,
            "redundancy": self._redundancy.report() if self._redundancy else None,
            "rollout": self._rollout.report() if self._rollout else None,
        }
