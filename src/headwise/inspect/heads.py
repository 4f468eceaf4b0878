"""The entry of a head in the report: label, scores, links, strongest keys of each row, pooled map."""

from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.inspect.labels import INDUCTION, label_of
from headwise.inspect.scorecard import SCORES
from headwise.inspect.scores import Floats, Integers, LayerScores, Scorer

N_LINKS = 10  # strongest links kept per head
DIGITS = 6  # decimals of single weights in a report
WITH_SHARE = ("duplicate", "induction")  # scores that say in which share of the rows a match was possible


def head_entries(scores: LayerScores, scorer: Scorer, kept: int) -> list[dict[str, Any]]:
    """The entries of all heads of a layer, as plain data; ``kept`` strongest keys stay per row."""
    return [_entry(head, scores, scorer, kept) for head in range(len(scores.top_index))]


def _entry(head: int, scores: LayerScores, scorer: Scorer, kept: int) -> dict[str, Any]:
    card = {score.key: _line(score.key, head, scores, scorer) for score in SCORES}
    index, weight = scores.top_index[head], scores.top_weight[head]
    rows: dict[str, Any] = {"index": [], "weight": []}
    if kept:
        rows = {"index": index[:, :kept].tolist(), "weight": weight[:, :kept].round(DIGITS).tolist()}
    pooled: dict[str, Any] = {"block": scorer.block, "map": []}
    if scores.pooled is not None:
        pooled["map"] = scores.pooled[head].round(DIGITS).tolist()
    label = label_of(card)
    links = strongest_links(index, weight, scorer.special)
    return {
        "head": head,
        "label": label,
        "scores": card,
        "links": links,
        "evidence": induction_link(index, weight, scorer.ids) if label == INDUCTION else None,
        "rows": rows,
        "pooled": pooled,
    }


def _line(key: str, head: int, scores: LayerScores, scorer: Scorer) -> dict[str, Any]:
    mean = scores.means.get(key)
    if mean is None:
        return {"value": None, "null": None, "share": None, "rows": 0}
    share = mean.share if key in WITH_SHARE else None
    return {"value": mean.value(head), "null": scorer.null[key], "share": share, "rows": mean.rows}


def strongest_links(
    top_index: Integers, top_weight: Floats, special: npt.NDArray[np.bool_]
) -> list[list[Any]]:
    """The strongest links of one head, [query, key, weight], best first, at most N_LINKS.

    They are chosen among the k strongest keys of each row. Links from or to a special token, and from a token
    to itself, are left out where the head has others.

    Args:
        top_index, top_weight: (n, k) of one head.
        special: (n,) True at special tokens.
    """
    query = np.broadcast_to(np.arange(len(top_index))[:, None], top_index.shape)
    exists = top_index >= 0
    others = exists & (top_index != query)
    words = others & ~special[query] & ~special[np.where(exists, top_index, 0)]
    chosen = next(links for links in (words, others, exists) if links.any())
    weight, query, key = top_weight[chosen], query[chosen], top_index[chosen]
    best = np.lexsort((key, query, -weight))[:N_LINKS]
    return [[int(query[at]), int(key[at]), round(float(weight[at]), DIGITS)] for at in best]


def induction_link(top_index: Integers, top_weight: Floats, ids: Integers) -> list[Any] | None:
    """The strongest link of one head that counts for induction: its key follows another place of its token.

    It is [query, key, weight], chosen among the k strongest keys of each row; None where none of them counts.

    Args:
        top_index, top_weight: (n, k) of one head; ids: (n,) token ids.
    """
    query = np.broadcast_to(np.arange(len(top_index))[:, None], top_index.shape)
    before = np.maximum(top_index - 1, 0)
    counts = (top_index >= 1) & (before != query) & (ids[before] == ids[query])
    if not counts.any():
        return None
    row, column = divmod(int(np.where(counts, top_weight, -1.0).argmax()), top_index.shape[1])
    return [row, int(top_index[row, column]), round(float(top_weight[row, column]), DIGITS)]
