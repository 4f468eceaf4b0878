"""A plain word for each head, from one table of thresholds, and the heads most worth a look.

The thresholds for previous, next and special tokens and for broad heads are near those of Clark et al. 2019.
Induction is a mean over the rows whose token stands elsewhere too; its column ``rows`` says how many of them
the label needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

TIMES_NULL = 5  # a label needs a score so many times the one of uniform attention
MOST = 1.0  # no score of a label with that condition, a share of the weight, is larger
FEW_ROWS = 5  # a mean over fewer rows says more about these than about the head
SHORT = 25  # tokens: up to here it is the length that keeps labels out of reach
PER_LABEL = 3  # most telling heads per label
UNLABELLED = "unlabelled"
BROAD = "broad"
INDUCTION = "induction"
ALIGNED = "aligned"  # cross-attention only
ALIGNED_ROWS = 10  # a correlation over fewer is chance


@dataclass(frozen=True)
class Label:
    """One row of the table: a head has the label where its ``score`` is at least ``threshold`` and at least
    ``times_null`` times the score of uniform attention, and the score is a mean over at least ``rows`` query
    rows (None: no such condition)."""

    key: str
    name: str
    meaning: str
    score: str | None
    threshold: float | None
    times_null: int | None
    rows: int | None = None


LABELS = (
    Label("previous", "previous token", "looks at the token before", "previous", 0.5, TIMES_NULL),
    Label("next", "next token", "looks at the token after", "next", 0.5, TIMES_NULL),
    Label("separator", "separator", "rests on special tokens such as [SEP]", "special", 0.6, TIMES_NULL),
    Label("first", "first token", "rests on the first token", "first", 0.5, TIMES_NULL),
    Label(
        INDUCTION,
        "induction",
        "looks at what followed an earlier copy of the token",
        "induction",
        0.3,
        TIMES_NULL,
        FEW_ROWS,
    ),
    Label(ALIGNED, "aligned", "moves along with the other sequence", "alignment", 0.9, None, ALIGNED_ROWS),
    Label(BROAD, "broad", "spreads over nearly all tokens alike", "entropy_normalized", 0.9, None),
    Label(UNLABELLED, "unlabelled", "shows none of the patterns in this table", None, None, None),
)
# The score that a head is ranked by: that of its label, or for want of one its max weight.
RANKED_BY = {label.key: label.score or "max_weight" for label in LABELS}

Scores = Mapping[str, Mapping[str, Any]]


def label_table(null: Mapping[str, float | None], cross: bool = False) -> list[dict[str, Any]]:
    """The table as plain data; ``reachable`` is False where ``times_null`` asks for more than all the weight.

    Args:
        null: score key -> its value under uniform attention on this text; None where there is no number.
        cross: whether there is cross-attention, and so the label that only it can have.
    """
    rows = [label for label in LABELS if cross or label.key != ALIGNED]
    return [{**asdict(label), "reachable": _reachable(label, null)} for label in rows]


def _reachable(label: Label, null: Mapping[str, float | None]) -> bool:
    uniform = null.get(label.score) if label.score else None
    return label.times_null is None or uniform is None or label.times_null * uniform <= MOST


def out_of_reach(null: Mapping[str, float | None], n_tokens: int) -> list[str]:
    """A sentence that names the labels that no head can have on this text; none where there are none."""
    names = [label.name for label in LABELS if not _reachable(label, null)]
    if not names:
        return []
    opening = f"The text is short: with {n_tokens} tokens" if n_tokens <= SHORT else "On this text"
    if n_tokens == 1:
        opening = opening.removesuffix("s")
    which = ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else names[0]
    many, they = ("labels", "they need") if len(names) > 1 else ("label", "it needs")
    reason = f"since {they} five times what uniform attention gives"
    return [f"{opening} the {many} {which} cannot be reached, {reason}."]


def raised(null: Mapping[str, float | None]) -> list[str]:
    """A sentence that names the labels that ask for more than their threshold on this text, and for how much;
    none where there are none. Out of reach are those that ask for more than all the weight: not these."""
    asked = []
    for label in LABELS:
        uniform = null.get(label.score) if label.score else None
        if label.times_null is None or label.threshold is None or uniform is None:
            continue
        needed = label.times_null * uniform
        if needed > MOST:
            continue
        if f"{needed:.2f}" > f"{label.threshold:.2f}":
            asked.append(f"{label.name} {needed:.2f} instead of {label.threshold:.2f}")
    if not asked:
        return []
    which = ", ".join(asked[:-1]) + " and " + asked[-1] if len(asked) > 1 else asked[0]
    return [f"Labels that need more on this text: {which}, five times what uniform attention gives."]


def label_of(scores: Scores) -> str:
    """The key of the label that fits a head; where several fit, the one with the largest score / threshold.

    Args:
        scores: score key -> {"value": …, "null": …, "rows": …}, None where there is no number.
    """
    best, margin = UNLABELLED, 0.0
    for label in LABELS:
        if label.score is None or label.threshold is None or label.score not in scores:
            continue
        value, null = scores[label.score]["value"], scores[label.score]["null"]
        if value is None or value < label.threshold:
            continue
        if label.times_null is not None and (null is None or value < label.times_null * null):
            continue
        if label.rows is not None and scores[label.score]["rows"] < label.rows:
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
            line = head["scores"].get(score, {})
            value, null = line.get("value"), line.get("null")
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
