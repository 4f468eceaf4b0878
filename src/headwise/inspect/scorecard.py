"""The lines of the score card: what each score is, in words. ``scores`` computes them."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """One line of the score card. ``null`` says what uniform attention over the visible keys gives;
    ``higher`` what a high value means."""

    key: str
    name: str
    unit: str
    meaning: str
    null: str
    higher: str


SCORES = (
    Score(
        "entropy",
        "Entropy",
        "nats",
        "how widely a query spreads its attention: −Σ w ln w, mean over queries",
        "the mean of ln(number of visible keys)",
        "broad",
    ),
    Score(
        "entropy_normalized",
        "Normalised entropy",
        "",
        "entropy as a share of the most that is possible: mean of H / ln(number of visible keys), "
        "over queries that see at least two keys",
        "1",
        "broad",
    ),
    Score(
        "max_weight",
        "Max weight",
        "",
        "the largest weight of a query, mean over queries",
        "the mean of 1 / n",
        "sharp",
    ),
    Score(
        "distance",
        "Distance",
        "tokens",
        "how far away the attended keys stand: Σ w |i − j|, mean over queries",
        "the mean distance to all visible keys",
        "far",
    ),
    Score("self", "Self", "", "weight of a query on its own token", "the mean of 1 / n", "looks at itself"),
    Score(
        "previous",
        "Previous token",
        "",
        "weight on the token before, over queries that have one",
        "the mean of 1 / n over the same queries",
        "looks one token back",
    ),
    Score(
        "next",
        "Next token",
        "",
        "weight on the token after, over queries that have one; missing in causal models",
        "the mean of 1 / n over the same queries",
        "looks one token ahead",
    ),
    Score(
        "first",
        "First token",
        "",
        "weight on the first token, mean over queries",
        "the mean of 1 / n",
        "rests on the first token",
    ),
    Score(
        "special",
        "Special tokens",
        "",
        "weight on all special tokens together, such as [CLS] and [SEP]",
        "the mean share of special tokens among the visible keys",
        "rests on special tokens",
    ),
    Score(
        "duplicate",
        "Duplicate token",
        "",
        "weight on other places of the query's own token (earlier places in causal models), "
        "over queries that have one",
        "the mean share of such places among the visible keys",
        "finds its own copies",
    ),
    Score(
        "induction",
        "Induction",
        "",
        "weight on tokens that follow another place of the query's token, over queries that have one",
        "the mean share of such tokens among the visible keys",
        "continues a pattern seen before",
    ),
)


def score_table() -> list[dict[str, Any]]:
    """The lines as plain data, in the order of the card."""
    return [asdict(score) for score in SCORES]
