"""What a head matches: copies of the query's own token, and what follows them."""

import numpy as np

from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import OLSSON, Score
from headwise.inspect.score.tally import Mean, mean_over, ratio_over

LEAST = 1e-3  # mean weight off the first token below which a ratio over it is rounding, not a score


def _duplicate(m: Measured) -> Mean | None:
    if m.aux.duplicate is None:
        return None
    return mean_over(m.row("duplicate"), m.row("duplicate_count") > 0, m.of)


def _induction(m: Measured) -> Mean | None:
    if m.aux.induction is None:
        return None
    return mean_over(m.row("induction"), m.row("induction_count") > 0, m.of)


def _induction_entry(m: Measured) -> Mean | None:
    if m.aux.induction is None:
        return None
    count = m.row("induction_count")
    return ratio_over(m.row("induction"), count, count > 0, m.of)


def _induction_without_first(m: Measured) -> Mean | None:
    if m.aux.induction is None:
        return None
    elsewhere = 1.0 - m.mass("first")
    if m.aux.sink_logit_mass is not None:
        elsewhere = elsewhere - m.row("sink_logit_mass")
    ratio = ratio_over(m.row("induction"), elsewhere, m.row("induction_count") > 0, m.of)
    enough = ratio.weight >= LEAST * ratio.rows
    return Mean(np.where(enough, ratio.total, 0.0), np.where(enough, ratio.weight, 0.0), ratio.rows, ratio.of)


SCORES = (
    Score("duplicate", "Duplicate token", "",
          "weight on other places of the query's own token (earlier places in causal models), "
          "over queries that have one", "the mean share of such places among the visible keys",
          "finds its own copies", over="queries that see such a place",
          source="Wang et al. 2022; over all queries TransformerLens", group="content", measure=_duplicate,
          kind="self", asks=("matches",), tells_share=True, both_readings=True, always=True),
    Score("induction", "Induction", "",
          "weight on tokens that follow another place of the query's token, over queries that have one",
          "the mean share of such tokens among the visible keys", "continues a pattern seen before",
          over="queries that see such a token",
          source=f"{OLSSON}, prefix matching as a sum; over all queries TransformerLens", group="content",
          measure=_induction, kind="self", asks=("matches",), tells_share=True, both_readings=True,
          always=True),
    Score("induction_entry", "Induction, per entry", "",
          "the same weight for each such token alone: the mean of these single weights",
          "the mean of 1 / n over such tokens", "continues a pattern seen before",
          over="single weights on such tokens", source=f"{OLSSON}, prefix matching as printed",
          group="content", measure=_induction_entry, kind="self", asks=("matches",), tells_share=True,
          always=True),
    Score("induction_without_first", "Induction without the first token", "",
          "induction as a share of the weight that is not on the first token: Σ induction / Σ (1 − first)",
          "the mean share of such tokens among the keys after the first", "continues a pattern seen before",
          over="the weight off the first token of queries that see such a token", group="content",
          measure=_induction_without_first, kind="self", asks=("matches",), tells_share=True, always=True),
)  # fmt: skip
