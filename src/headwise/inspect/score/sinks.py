"""What a head rests on: the first tokens, special tokens, the heaviest keys, sink logits."""

from collections.abc import Callable

import numpy as np

from headwise.inspect.score.classes import PANDE, bias_of
from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import CLARK, GU, Score
from headwise.inspect.score.tally import Bias, Mean, Received, Tally, mean_over

HEAVY = 0.05  # share of the tokens that are called heavy hitters


def _mass_on(name: str) -> Callable[[Measured], Mean | None]:
    def measure(m: Measured) -> Mean | None:
        return mean_over(m.mass(name), m.of, m.of) if name in m.keys.patterns[1] else None

    return measure


def _special_bias(m: Measured) -> Bias | None:
    return bias_of(m, "special") if "special" in m.keys.patterns[1] else None


def received_of(m: Measured) -> Received:
    """What each key receives from all rows."""
    seen = m.row("received_count")
    return Received(m.row("received"), seen[:1] if (seen == seen[0]).all() else seen)


def _strongest_sink(tally: Tally) -> Mean | None:
    return None if tally.received is None else tally.received.strongest(tally.of)


def _heaviest_key(tally: Tally) -> Mean | None:
    return None if tally.received is None else tally.received.heaviest(tally.of, 0.0)


def _heavy_hitters(tally: Tally) -> Mean | None:
    return None if tally.received is None else tally.received.heaviest(tally.of, HEAVY)


def _sink_logit(m: Measured) -> Mean | None:
    if m.uniform:
        return mean_over(np.zeros(m.of.shape), m.of, m.of)
    return None if m.aux.sink_logit_mass is None else mean_over(m.row("sink_logit_mass"), m.of, m.of)


SCORES = (
    Score("first", "First token", "", "weight on the first token, mean over queries", "the mean of 1 / n",
          "rests on the first token",
          source=f"{GU}, who call it a sink above 0.3; Barbero et al. 2025 above 0.8", group="sinks",
          measure=_mass_on("first"), always=True),
    Score("first_four", "First four tokens", "",
          "weight on the first four tokens together, mean over queries",
          "the mean share of these tokens among the visible keys", "rests on the start of the text",
          source="Xiao et al. 2023, who keep four", group="sinks", measure=_mass_on("first_four"),
          always=True),
    Score("special", "Special tokens", "", "weight on all special tokens together, such as [CLS] and [SEP]",
          "the mean share of special tokens among the visible keys", "rests on special tokens",
          source=CLARK, group="sinks", measure=_mass_on("special"), always=True),
    Score("special_bias", "Special tokens, per entry", "times",
          "mean weight of an entry on a special token, as a multiple of the mean weight of any entry",
          "the same of uniform attention: 1 where all queries see the same keys", "prefers special tokens",
          over="entries: a query and a key that it sees", source=PANDE, group="sinks", range=(0.0, None),
          measure=_special_bias, always=True),
    Score("strongest_sink", "Strongest sink", "",
          "the largest mean weight that one token receives from the queries that see it (seen by at least "
          "two, and by a tenth as many as see the most seen token)",
          "the largest mean of 1 / n over the queries that see a token",
          "all that see one token look at it", over="queries that see the token",
          source=f"{GU}, the largest of their means", group="sinks", read=_strongest_sink, always=True),
    Score("heaviest_key", "Heaviest key", "",
          "share of all weight that the one most attended token receives",
          "the share of the token that most queries see", "all look at one token",
          over="the weight of all queries together", source="Zhang et al. 2023", group="sinks",
          read=_heaviest_key, always=True),
    Score("heavy_hitters", "Heavy hitters", "",
          "share of all weight that the most attended 5 % of the tokens receive (at least one token)",
          "the share of the 5 % that most queries see", "a few tokens receive nearly everything",
          over="the weight of all queries together", source="Zhang et al. 2023", group="sinks",
          read=_heavy_hitters, always=True),
)  # fmt: skip

LOGIT = Score(
    "sink_logit",
    "Sink logits",
    "",
    "weight that the learned sink logits take from all keys; weights on keys sum to the rest",
    "0: uniform attention has no sink logits",
    "attends to nothing",
    source="gpt-oss",
    group="sinks",
    range=(0.0, 1.0),
    measure=_sink_logit,
    asks=("sink_logit_mass",),
)
