"""Gold pairs: does a head's strongest key, or its weight, find what a person says belongs together?

For co-reference, syntax, atom mapping, alignment: Clark et al. 2019 (section 4) call the share of found
antecedents accuracy. Only the rows of the pairs (and, scored both ways, of the candidates) are computed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.compute.request import Aux
from headwise.errors import HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.marks import marked
from headwise.inspect.call.rows import weights_at
from headwise.inspect.call.text import Text
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import Mean, Tally
from headwise.plain.types import Booleans, Floats, Integers

BEST = 10  # heads that the report lists

SCORES = (
    Score("pair_accuracy", "Gold pairs found", "",
          "how often the strongest candidate key of a query is a gold one",
          "the mean share of gold keys among the candidates", "finds the gold pairs",
          over="queries with a gold key", source="Clark et al. 2019, for antecedents", group="pairs"),
    Score("pair_mass", "Weight on gold pairs", "", "weight of a query on its gold keys",
          "the mean share of gold keys among the visible keys", "looks at the gold pairs",
          over="queries with a gold key", group="pairs"),
    Score("pair_matched", "Weight at the same distances", "",
          "the control of the line above: weight of other queries of the pairs at the offsets of the gold "
          "keys, where these are not gold", "the mean of 1 / n over these places",
          "if it is near the line above, the head follows distance, not the pairs", over="such places",
          group="pairs"),
)  # fmt: skip


class GoldPairs:
    """Scores the layers between two texts on gold pairs; a watcher of ``Scorer``.

    Args:
        pairs: (query, key) positions; a query may have several gold keys.
        candidates: positions of the keys among which the strongest counts; None: all.
        both_ways: the score of a pair is the mean of w[i, j] and w[j, i] (one text only).
        queries, keys: the texts of the layers that the pairs are about.

    Raises:
        HeadwiseError: pairs or candidates that the texts do not have.
    """

    def __init__(self, pairs: Any, candidates: Any, both_ways: bool, queries: Text, keys: Text) -> None:
        self.queries, self.keys, self.both_ways = queries.name, keys.name, bool(both_ways)
        if both_ways and queries.n != keys.n:
            received = f"{queries.n} queries and {keys.n} keys"
            raise HeadwiseError("pairs_both_ways", "queries and keys that are the same tokens", received)
        found = _pairs(pairs, queries.n, keys.n)
        self.gold_queries: Integers = np.unique(found[:, 0])
        self.gold = np.zeros((len(self.gold_queries), keys.n), bool)
        self.gold[np.searchsorted(self.gold_queries, found[:, 0]), found[:, 1]] = True
        self.many = int(self.gold.sum())
        named = marked("pair_candidates", candidates, keys.n)
        if candidates is not None and not named:
            raise HeadwiseError(
                "pair_candidates", "at least one position", "none", "None stands for all keys"
            )
        self.candidates: Integers = np.array(named or range(keys.n), np.int64)
        self.restricted = candidates is not None

    def watch(self, call: AttentionCall, queries: Text, keys: Text, aux: Aux) -> tuple[Tally, Tally] | None:
        """The scores of the pairs whose queries are rows of this call, and those of uniform attention."""
        if (queries.name, keys.name) != (self.queries, self.keys):
            return None
        here = self.gold_queries - call.first_row
        chosen = np.flatnonzero((here >= 0) & (here < call.query.shape[-2]))
        if not len(chosen):
            return None
        gold = self.gold[chosen][:, : call.key.shape[-2]]
        matched = _matched(self.gold_queries[chosen], gold) if call.kind == "self" else None
        uniform = self._weights(call.uniform(), here[chosen])
        columns = None
        if self.both_ways:
            asked = gold.any(axis=0) if matched is None else gold.any(axis=0) | (matched > 0).any(axis=0)
            columns = np.union1d(self.candidates, np.flatnonzero(asked))
        weights = self._weights(call, here[chosen], columns)
        return self._tally(weights, uniform, gold, matched), self._null(uniform, gold, matched)

    def report(self, cards: Sequence[tuple[int, int, dict[str, Any]]]) -> dict[str, Any]:
        """What the report says of the pairs: how many, and the heads that find most of them, best first.

        Args:
            cards: layer, head and its scores.
        """
        found = [
            {
                "layer": layer,
                "head": head,
                "value": card["pair_accuracy"]["value"],
                "null": card["pair_accuracy"]["null"],
                "mass": card["pair_mass"]["value"],
                "matched": card.get("pair_matched", {}).get("value"),
            }
            for layer, head, card in cards
            if "pair_accuracy" in card
        ]
        known = [entry for entry in found if entry["value"] is not None]
        known.sort(key=lambda e: (-e["value"], -(e["mass"] or 0.0), e["layer"], e["head"]))
        return {
            "many": self.many,
            "candidates": len(self.candidates) if self.restricted else None,
            "both_ways": self.both_ways,
            "best": known[:BEST],
        }

    def _weights(self, call: AttentionCall, at: Integers, columns: Integers | None = None) -> Floats:
        """(H, P, n_k): the rows of the pairs; with ``columns``, at these keys the mean with the way back."""
        rows = weights_at(call, at, np.arange(call.key.shape[-2]))
        if columns is not None:
            back = weights_at(call, columns, at)  # (H, columns, P)
            rows[:, :, columns] = (rows[:, :, columns] + back.swapaxes(1, 2)) / 2
        return rows

    def _tally(self, weights: Floats, uniform: Floats, gold: Booleans, matched: Floats | None) -> Tally:
        heads, rows = weights.shape[:2]
        among = self.candidates[self.candidates < weights.shape[2]]
        strongest = among[weights[..., among].argmax(axis=-1)]
        hits = np.take_along_axis(np.broadcast_to(gold, weights.shape), strongest[..., None], -1)[..., 0]
        sees = weights[..., among].max(axis=-1) > 0
        means = {
            "pair_accuracy": _mean((hits & sees).sum(axis=1), rows, heads),
            "pair_mass": _mean((weights * gold).sum(axis=(1, 2)), rows, heads),
        }
        if matched is not None:
            means["pair_matched"] = _weighted(weights, matched * (uniform.max(axis=0) > 0), heads)
        return Tally(np.zeros(heads), means)

    def _null(self, uniform: Floats, gold: Booleans, matched: Floats | None) -> Tally:
        heads, rows = uniform.shape[:2]
        among = self.candidates[self.candidates < uniform.shape[2]]
        seen = uniform[..., among] > 0
        right = (seen & gold[:, among]).sum(axis=-1) / np.maximum(seen.sum(axis=-1), 1)
        means = {
            "pair_accuracy": _mean(right.sum(axis=1), rows, heads),
            "pair_mass": _mean((uniform * gold).sum(axis=(1, 2)), rows, heads),
        }
        if matched is not None:
            means["pair_matched"] = _weighted(uniform, matched * (uniform.max(axis=0) > 0), heads)
        return Tally(np.zeros(heads), means)


def _pairs(given: Any, n_q: int, n_k: int) -> npt.NDArray[np.int64]:
    expected = f"pairs (query from 0 to {n_q - 1}, key from 0 to {n_k - 1})"
    try:
        found: npt.NDArray[Any] = np.asarray(given)
    except (TypeError, ValueError):
        raise HeadwiseError("pairs", expected, type(given).__name__, "[(8, 2), (8, 1)]") from None
    if found.ndim != 2 or found.shape[1] != 2 or not len(found) or found.dtype.kind not in "iu":
        raise HeadwiseError("pairs", expected, f"{found.dtype} of shape {found.shape}", "[(8, 2), (8, 1)]")
    for column, n in enumerate((n_q, n_k)):
        outside = (found[:, column] < 0) | (found[:, column] >= n)
        if outside.any():
            raise HeadwiseError("pairs", expected, f"({', '.join(map(str, found[outside][0]))})")
    return found.astype(np.int64)


def _matched(queries: Integers, gold: Booleans) -> Floats:
    """(P, n_k): how often each place is the control of a pair: another query of the pairs, at its offset,
    where that is not gold."""
    rows, keys = np.nonzero(gold)
    count = np.zeros(gold.shape)
    for row, key in zip(rows, keys, strict=True):
        there = queries + (key - queries[row])
        others = (there >= 0) & (there < gold.shape[1]) & (np.arange(len(queries)) != row)
        count[np.flatnonzero(others), there[others]] += 1
    return np.where(gold, 0.0, count)


def _mean(totals: Any, rows: int, heads: int) -> Mean:
    count = np.full(heads, float(rows))
    return Mean(np.asarray(totals, np.float64), count, count, count)


def _weighted(weights: Floats, count: Floats, heads: int) -> Mean:
    many, places = np.full(heads, count.sum()), np.full(heads, float((count > 0).sum()))
    return Mean((weights * count).sum(axis=(1, 2)), many, places, places)
