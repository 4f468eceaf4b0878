"""A plain word for each head, from one table of thresholds, and the heads most worth a look.

The thresholds for previous, next and special tokens and for broad heads are near those of Clark et al. 2019.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TIMES_NULL = 5  # a label needs a score so many times the one of uniform attention
PER_LABEL = 3  # most telling heads per label
UNLABELLED = "unlabelled"
BROAD = "broad"


@dataclass(frozen=True)
class Label:
    """One row of the table: a head has the label where its ``score`` is at least ``threshold`` and at least
    ``times_null`` times the score of uniform attention (None: no such condition)."""

    key: str
    name: str
    meaning: str
    score: str | None
    threshold: float | None
    times_null: int | None


LABELS = (
    Label("previous", "previous token", "looks at the token before", "previous", 0.5, TIMES_NULL),
    Label("next", "next token", "looks at the token after", "next", 0.5, TIMES_NULL),
    Label("separator", "separator", "rests on special tokens such as [SEP]", "special", 0.6, TIMES_NULL),
    Label("first", "first token", "rests on the first token", "first", 0.5, TIMES_NULL),
    Label(
        "induction",
        "induction",
        "looks at what followed an earlier copy of the token",
        "induction",
        0.3,
        TIMES_NULL,
    ),
    Label(BROAD, "broad", "spreads over nearly all tokens alike", "entropy_normalized", 0.9, None),
    Label(UNLABELLED, "unlabelled", "shows none of the patterns in this table", None, None, None),
)
# The score that a head is ranked by: that of its label, or for want of one its max weight.
RANKED_BY = {label.key: label.score or "max_weight" for label in LABELS}

Scores = Mapping[str, Mapping[str, Any]]


def label_table() -> list[dict[str, Any]]:
    """The table as plain data."""
    return [asdict(label) for label in LABELS]


def label_of(scores: Scores) -> str:
    """The key of the label that fits a head; where several fit, the one with the largest score / threshold.

    Args:
        scores: score key -> {"value": …, "null": …}, None where there is no number.
    """
    best, margin = UNLABELLED, 0.0
    for label in LABELS:
        if label.score is None or label.threshold is None:
            continue
        value, null = scores[label.score]["value"], scores[label.score]["null"]
        if value is None or value < label.threshold:
            continue
        if label.times_null is not None and (null is None or value < label.times_null * null):
            continue
        if value / label.threshold > margin:
            best, margin = label.key, value / label.threshold
    return best


def most_telling(layers: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The heads whose label's score stands out most from uniform attention, best first, at most PER_LABEL of
    a label.

    ``excess`` is score − null of the score of the label; unlabelled heads go by their max weight. Broad heads
    come last: their score is the normalised entropy, which uniform attention has at 1.
    """
    found = []
    for layer in layers:
        for head in layer["heads"]:
            score = RANKED_BY[head["label"]]
            value, null = head["scores"][score]["value"], head["scores"][score]["null"]
            if value is None or null is None:
                continue
            found.append(
                {
                    "layer": layer["layer"],
                    "head": head["head"],
                    "label": head["label"],
                    "score": score,
                    "value": value,
                    "null": null,
                    "excess": value - null,
                }
            )
    found.sort(key=lambda entry: (entry["label"] == BROAD, -entry["excess"], entry["layer"], entry["head"]))
    kept: dict[str, int] = {}
    telling = []
    for entry in found:
        kept[entry["label"]] = kept.get(entry["label"], 0) + 1
        if kept[entry["label"]] <= PER_LABEL:
            telling.append(entry)
    return telling
