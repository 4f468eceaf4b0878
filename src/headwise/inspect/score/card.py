"""The lines of the score card: what each score is, in words. ``measures`` and ``samples`` compute them."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

CLARK = "Clark et al. 2019"
OLSSON = "Olsson et al. 2022"
VOITA = "Voita et al. 2019"
GU = "Gu et al. 2024"
PANDE = "Pande et al. 2021, the sieve bias score"

EVERY = "all queries"
AS_ONE = "the mean of 1 / n over the same queries"
CLASS, BIAS = "class:", "bias:"  # open the keys of the scores that the user's own class of tokens gives

Range = tuple[float | None, float | None]


@dataclass(frozen=True)
class Score:
    """One line of the score card.

    Attributes:
        key, name, unit: of the value.
        meaning: what it is, in plain words.
        over: the denominator: over which queries (or entries) it is a mean.
        null: what uniform attention over the visible keys gives.
        higher: what a high value means.
        source: who defined it so; empty for our own.
        group: the part of the card that it stands in.
        range: least and largest possible value, None where open; None: as the unit says.
    """

    key: str
    name: str
    unit: str
    meaning: str
    null: str
    higher: str
    over: str = EVERY
    source: str = ""
    group: str = "spread"
    range: Range | None = None


SPREAD = (
    Score(
        "entropy",
        "Entropy",
        "nats",
        "how widely a query spreads its attention: −Σ w ln w, mean over queries",
        "the mean of ln(number of visible keys)",
        "broad",
        source=CLARK,
    ),
    Score(
        "entropy_normalized",
        "Normalised entropy",
        "",
        "entropy as a share of the most that is possible: mean of H / ln(number of visible keys), "
        "over queries that see at least two keys",
        "1",
        "broad",
        over="queries that see at least two keys",
        source=CLARK,
    ),
    Score(
        "renyi2",
        "Rényi-2 entropy",
        "nats",
        "entropy that counts large weights more: −ln Σ w², mean over queries",
        "the mean of ln(number of visible keys)",
        "broad",
        source="Rényi 1961",
    ),
    Score(
        "effective_keys",
        "Effective keys",
        "keys",
        "how many equally weighted keys would spread as widely: e^entropy, mean over queries",
        "the mean number of visible keys",
        "broad",
        source="the perplexity of a row",
    ),
    Score(
        "max_weight",
        "Max weight",
        "",
        "the largest weight of a query, mean over queries",
        "the mean of 1 / n",
        "sharp",
        source=f"{VOITA}, with all keys counted",
    ),
    Score(
        "confidence",
        "Confidence",
        "",
        "the largest weight on a key that is no special token, mean over queries that are none themselves",
        AS_ONE,
        "sharp",
        over="queries that are no special tokens (a sample of them in long texts)",
        source=f"{VOITA}, with special tokens left out",
    ),
)

FIRST_ROW = Score(
    "entropy_first_row",
    "Entropy of the first token",
    "nats",
    "how widely the first token, such as [CLS], spreads its own attention",
    "ln(number of visible keys)",
    "the first token gathers from everywhere",
    over="the first query",
    source=CLARK,
)

PIXELS = Score(
    "pixel_distance",
    "Distance in the image",
    "pixels",
    "how far apart the centres of a patch and of the patches that it attends to stand: Σ w d / Σ w, without "
    "the class token",
    "the mean distance to the visible patches",
    "far",
    over="patches (a sample of them in large images)",
    source="Dosovitskiy et al. 2020",
    group="position",
    range=(0.0, None),
)

POSITION = (
    Score(
        "distance",
        "Distance",
        "tokens",
        "how far away the attended keys stand: Σ w |i − j|, mean over queries",
        "the mean distance to all visible keys",
        "far",
        source="Vig and Belinkov 2019, first token counted",
        group="position",
    ),
    Score(
        "distance_without_first",
        "Distance without the first token",
        "tokens",
        "the same over the weight that is not on the first token: Σ w |i − j| / Σ w over the keys after it",
        "the mean distance to the visible keys after the first",
        "far",
        over="the weight off the first token (of a sample of the queries in long texts)",
        source="Vig and Belinkov 2019, first token left out",
        group="position",
    ),
    Score(
        "self",
        "Self",
        "",
        "weight of a query on its own token",
        "the mean of 1 / n",
        "looks at itself",
        source=CLARK,
        group="position",
    ),
    Score(
        "previous",
        "Previous token",
        "",
        "weight on the token before, over queries that have one",
        AS_ONE,
        "looks one token back",
        over="queries that see a token before",
        source=f"{OLSSON}; over all queries {CLARK}",
        group="position",
    ),
    Score(
        "next",
        "Next token",
        "",
        "weight on the token after, over queries that have one; missing in causal models",
        AS_ONE,
        "looks one token ahead",
        over="queries that see a token after",
        source=CLARK,
        group="position",
    ),
    Score(
        "positional_argmax",
        "Fixed offset",
        "",
        "how often the strongest key stands at one and the same offset, the best of −8 … 8",
        "the mean of 1 / n: a key picked at random",
        "follows position (0.9 and more: a positional head)",
        source=VOITA,
        group="position",
    ),
    Score(
        "positional_share",
        "Positional share",
        "",
        "how much of Σ w² a pattern explains that knows the distance alone: each offset of −8 … 8 for "
        "itself, farther distances in doublings",
        "the same of uniform attention",
        "depends on position, not on content",
        over="Σ w² over all queries",
        source="the Toeplitz part of the weight matrix",
        group="position",
    ),
)

SINKS = (
    Score(
        "first",
        "First token",
        "",
        "weight on the first token, mean over queries",
        "the mean of 1 / n",
        "rests on the first token",
        source=f"{GU}, who call it a sink above 0.3; Barbero et al. 2025 above 0.8",
        group="sinks",
    ),
    Score(
        "first_four",
        "First four tokens",
        "",
        "weight on the first four tokens together, mean over queries",
        "the mean share of these tokens among the visible keys",
        "rests on the start of the text",
        source="Xiao et al. 2023, who keep four",
        group="sinks",
    ),
    Score(
        "special",
        "Special tokens",
        "",
        "weight on all special tokens together, such as [CLS] and [SEP]",
        "the mean share of special tokens among the visible keys",
        "rests on special tokens",
        source=CLARK,
        group="sinks",
    ),
    Score(
        "special_bias",
        "Special tokens, per entry",
        "times",
        "mean weight of an entry on a special token, as a multiple of the mean weight of any entry",
        "the same of uniform attention: 1 where all queries see the same keys",
        "prefers special tokens",
        over="entries: a query and a key that it sees",
        source=PANDE,
        group="sinks",
        range=(0.0, None),
    ),
    Score(
        "strongest_sink",
        "Strongest sink",
        "",
        "the largest mean weight that one token receives from the queries that see it (seen by at least two, "
        "and by a tenth as many as see the most seen token)",
        "the largest mean of 1 / n over the queries that see a token",
        "all that see one token look at it",
        over="queries that see the token",
        source=f"{GU}, the largest of their means",
        group="sinks",
    ),
    Score(
        "heaviest_key",
        "Heaviest key",
        "",
        "share of all weight that the one most attended token receives",
        "the share of the token that most queries see",
        "all look at one token",
        over="the weight of all queries together",
        source="Zhang et al. 2023",
        group="sinks",
    ),
    Score(
        "heavy_hitters",
        "Heavy hitters",
        "",
        "share of all weight that the most attended 5 % of the tokens receive (at least one token)",
        "the share of the 5 % that most queries see",
        "a few tokens receive nearly everything",
        over="the weight of all queries together",
        source="Zhang et al. 2023",
        group="sinks",
    ),
)

CONTENT = (
    Score(
        "duplicate",
        "Duplicate token",
        "",
        "weight on other places of the query's own token (earlier places in causal models), "
        "over queries that have one",
        "the mean share of such places among the visible keys",
        "finds its own copies",
        over="queries that see such a place",
        source="Wang et al. 2022; over all queries TransformerLens",
        group="content",
    ),
    Score(
        "induction",
        "Induction",
        "",
        "weight on tokens that follow another place of the query's token, over queries that have one",
        "the mean share of such tokens among the visible keys",
        "continues a pattern seen before",
        over="queries that see such a token",
        source=f"{OLSSON}, prefix matching as a sum; over all queries TransformerLens",
        group="content",
    ),
    Score(
        "induction_entry",
        "Induction, per entry",
        "",
        "the same weight for each such token alone: the mean of these single weights",
        "the mean of 1 / n over such tokens",
        "continues a pattern seen before",
        over="single weights on such tokens",
        source=f"{OLSSON}, prefix matching as printed",
        group="content",
    ),
    Score(
        "induction_without_first",
        "Induction without the first token",
        "",
        "induction as a share of the weight that is not on the first token: Σ induction / Σ (1 − first)",
        "the mean share of such tokens among the keys after the first",
        "continues a pattern seen before",
        over="the weight off the first token of queries that see such a token",
        group="content",
    ),
)

SINK_LOGIT = Score(
    "sink_logit",
    "Sink logits",
    "",
    "weight that the learned sink logits take from all keys; weights on keys sum to the rest",
    "0: uniform attention has no sink logits",
    "attends to nothing",
    source="gpt-oss",
    group="sinks",
    range=(0.0, 1.0),
)

VALUES = (
    Score(
        "output_norm",
        "Output norm",
        "",
        "how long the head's output is: ‖Σ w v‖, mean over queries",
        "‖mean of the visible values‖, over a sample of the queries in long texts",
        "writes much",
        over="queries (a sample of them in long texts where only query, key and value are known)",
        source="Kobayashi et al. 2020, before W_O",
        group="values",
        range=(0.0, None),
    ),
    Score(
        "first_by_norm",
        "First token, by norm",
        "",
        "share of the first token when each weight counts by the norm of its value: w ‖v‖ / Σ w ‖v‖",
        "the same of uniform attention",
        "the first token is used, not only looked at",
        over="the weighted norms of all queries (a sample of them in long texts)",
        source="Kobayashi et al. 2020, before W_O",
        group="values",
    ),
)

CROSS = (
    Score(
        "expected_key",
        "Attended position",
        "tokens",
        "where the attended keys stand on average: Σ w j, mean over queries",
        "the mean position of the visible keys",
        "late in the other sequence",
        over="queries (a sample of them in long texts)",
        group="cross",
    ),
    Score(
        "key_spread",
        "Spread of the position",
        "tokens",
        "how far the attended keys stand apart: the standard deviation of j under the weights, mean over "
        "queries",
        "the standard deviation of the positions of the visible keys",
        "looks at many places",
        over="queries (a sample of them in long texts)",
        group="cross",
    ),
    Score(
        "alignment",
        "Alignment",
        "",
        "correlation between the place of a query and the mean position that it attends to",
        "0: uniform attention stays where it is",
        "moves along with the text",
        over="queries (a sample of them in long texts)",
        group="cross",
        range=(-1.0, 1.0),
    ),
    Score(
        "monotonic",
        "Monotonic steps",
        "",
        "how often the strongest key of a query stands no earlier than that of the query before",
        "a half and a little: keys picked at random, (1 + 1 / n) / 2",
        "moves along with the text",
        over="queries that have one before",
        group="cross",
    ),
)

PAIRS = (
    Score(
        "pair_accuracy",
        "Gold pairs found",
        "",
        "how often the strongest candidate key of a query is a gold one",
        "the mean share of gold keys among the candidates",
        "finds the gold pairs",
        over="queries with a gold key",
        source="Clark et al. 2019, for antecedents",
        group="pairs",
    ),
    Score(
        "pair_mass",
        "Weight on gold pairs",
        "",
        "weight of a query on its gold keys",
        "the mean share of gold keys among the visible keys",
        "looks at the gold pairs",
        over="queries with a gold key",
        group="pairs",
    ),
    Score(
        "pair_matched",
        "Weight at the same distances",
        "",
        "the control of the line above: weight of other queries of the pairs at the offsets of the gold "
        "keys, where these are not gold",
        "the mean of 1 / n over these places",
        "if it is near the line above, the head follows distance, not the pairs",
        over="such places",
        group="pairs",
    ),
)

NEEDLE = (
    Score(
        "retrieval",
        "Retrieval",
        "",
        "share of the needle that the head copies: a place counts where it is the strongest key of a step "
        "and the token then written is the one that stands there",
        "the same for keys picked at random",
        "copies the needle (above 0.1: a retrieval head)",
        over="tokens of the needle",
        source="Wu et al. 2024, each place once",
        group="needle",
    ),
    Score(
        "retrieval_counted",
        "Retrieval, every step counted",
        "",
        "the same with every step counted that copies, at most 1",
        "the same for keys picked at random",
        "copies the needle",
        over="tokens of the needle",
        source="Wu et al. 2024, as their program counts",
        group="needle",
    ),
)

SELF = (*SPREAD, *POSITION, *SINKS, *CONTENT)
SCORES = (
    *SPREAD,
    FIRST_ROW,
    *POSITION,
    PIXELS,
    *SINKS,
    *CONTENT,
    SINK_LOGIT,
    *VALUES,
    *CROSS,
    *PAIRS,
    *NEEDLE,
)
ALWAYS = frozenset(score.key for score in SELF)  # lines that stand in every card, missing or not


def own_score(key: str) -> Score:
    """A line of a class of tokens that the user named: the weight on it, or its sieve bias score."""
    name = key.removeprefix(CLASS).removeprefix(BIAS)
    if key.startswith(BIAS):
        like = next(score for score in SINKS if score.key == "special_bias")
        meaning = (
            f"mean weight of an entry on a token of the class {name!r}, as a multiple of that of any entry"
        )
        return replace(
            like,
            key=key,
            name=f"{name}, per entry",
            meaning=meaning,
            higher=f"prefers {name}",
            group="classes",
        )
    meaning = f"weight on the tokens of the class {name!r} together"
    null = "the mean share of these tokens among the visible keys"
    return Score(key, name, "", meaning, null, f"rests on {name}", group="classes")


def in_order(keys: Iterable[str]) -> list[str]:
    """The keys in the order of the card; a user's own classes come last."""
    given = list(dict.fromkeys(keys))
    own = [key for key in given if key.startswith(CLASS)]
    biases = [key.replace(CLASS, BIAS, 1) for key in own]
    return [score.key for score in SCORES if score.key in given] + [
        key for pair in zip(own, biases, strict=True) for key in pair if key in given
    ]


def score_table(found: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The lines as plain data, in the order of the card: those of every card, and of the others the ones
    whose keys are in ``found``."""
    known = {score.key: score for score in SCORES}
    lines = [known.get(key) or own_score(key) for key in in_order([*ALWAYS, *found])]
    return [asdict(score) | {"range": None if score.range is None else list(score.range)} for score in lines]
