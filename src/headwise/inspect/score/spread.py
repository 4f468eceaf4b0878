"""How widely a head looks: entropies, the largest weight, confidence."""

import numpy as np

from headwise.inspect.score.measured import Measured, left
from headwise.inspect.score.score import AS_ONE, CLARK, VOITA, Score
from headwise.inspect.score.tally import Mean, mean_over


def _entropy(m: Measured) -> Mean:
    return mean_over(m.row("entropy"), m.of, m.of)


def _entropy_normalized(m: Measured) -> Mean:
    several = m.visible.keys > 1
    return mean_over(m.row("entropy") / np.log(np.where(several, m.visible.keys, 2.0)), several, m.of)


def _renyi2(m: Measured) -> Mean:
    with np.errstate(divide="ignore"):
        return mean_over(-np.log(m.row("sum_squares")), m.of, m.of)


def _effective_keys(m: Measured) -> Mean:
    return mean_over(np.exp(m.row("entropy")), m.of, m.of)


def _max_weight(m: Measured) -> Mean:
    return mean_over(m.row("max_weight"), m.of, m.of)


def _confidence(m: Measured) -> Mean | None:
    """The largest weight on a key that is no special token, over rows that are none."""
    if not m.keys.is_special.any():
        return None
    if m.only_first_is_special:
        found = m.off_first.found
    else:
        found = m.sample.statistics(m.keys.is_special, lse=True, max_weight=True)
    largest = left(found["lse"], m.sample_lse) * found["max_weight"]
    return mean_over(largest, np.isfinite(found["max_weight"]) & ~m.sample_special, m.sample_of)


def _entropy_first_row(m: Measured) -> Mean | None:
    if m.call.is_causal or m.call.first_row:
        return None
    first = np.arange(m.of.shape[1]) == 0
    return mean_over(m.row("entropy"), m.of & first, m.of)


SCORES = (
    Score("entropy", "Entropy", "nats",
          "how widely a query spreads its attention: −Σ w ln w, mean over queries",
          "the mean of ln(number of visible keys)", "broad", source=CLARK, measure=_entropy,
          asks=("entropy",), always=True),
    Score("entropy_normalized", "Normalised entropy", "",
          "entropy as a share of the most that is possible: mean of H / ln(number of visible keys), "
          "over queries that see at least two keys", "1", "broad", over="queries that see at least two keys",
          source=CLARK, measure=_entropy_normalized, asks=("entropy",), always=True),
    Score("renyi2", "Rényi-2 entropy", "nats",
          "entropy that counts large weights more: −ln Σ w², mean over queries",
          "the mean of ln(number of visible keys)", "broad", source="Rényi 1961", measure=_renyi2,
          asks=("sum_squares",), always=True),
    Score("effective_keys", "Effective keys", "keys",
          "how many equally weighted keys would spread as widely: e^entropy, mean over queries",
          "the mean number of visible keys", "broad", source="the perplexity of a row",
          measure=_effective_keys, asks=("entropy",), always=True),
    Score("max_weight", "Max weight", "", "the largest weight of a query, mean over queries",
          "the mean of 1 / n", "sharp", source=f"{VOITA}, with all keys counted", measure=_max_weight,
          always=True),
    Score("confidence", "Confidence", "",
          "the largest weight on a key that is no special token, mean over queries that are none themselves",
          AS_ONE, "sharp", over="queries that are no special tokens (a sample of them in long texts)",
          source=f"{VOITA}, with special tokens left out", measure=_confidence, kind="self", always=True),
    Score("entropy_first_row", "Entropy of the first token", "nats",
          "how widely the first token, such as [CLS], spreads its own attention",
          "ln(number of visible keys)", "the first token gathers from everywhere", over="the first query",
          source=CLARK, measure=_entropy_first_row, asks=("entropy",), kind="self"),
)  # fmt: skip
