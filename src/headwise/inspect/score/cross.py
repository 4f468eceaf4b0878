"""Where a head looks in the other sequence: positions attended to, and whether they move along."""

import numpy as np

from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import Alignment, Mean, mean_over


def _expected_key(m: Measured) -> Mean:
    mean, _ = m.attended
    return mean_over(mean + (m.sample.n_k - 1) / 2, np.isfinite(mean), m.sample_of)


def _key_spread(m: Measured) -> Mean:
    mean, spread = m.attended
    return mean_over(spread, np.isfinite(mean), m.sample_of)


def _alignment(m: Measured) -> Alignment | Mean:
    if m.uniform:  # which stays where it is
        one = np.ones(1)
        return Mean(np.zeros(1), one, one, one)
    mean, _ = m.attended
    entered = np.isfinite(mean) & m.sample_of
    places = (m.sample.at + m.call.first_row).astype(np.float64)
    x, y = np.broadcast_to(places, mean.shape), np.where(entered, mean, 0.0)
    parts = [np.ones_like(mean), x, y, x * x, y * y, x * y]
    return Alignment(np.stack([np.where(entered, part, 0.0).sum(axis=1) for part in parts], axis=1))


def _monotonic(m: Measured) -> Mean:
    """How often the strongest key does not step back, from one row to the next; keys picked at random do so
    in half of the steps and where they meet."""
    strongest = np.asarray(m.aux.argmax)[0]
    if m.uniform:
        pairs = m.of.copy()
        pairs[:, 0] = False
        return mean_over((1 + m.row("max_weight")) / 2, pairs, m.of)
    of = np.broadcast_to(m.of, strongest.shape)
    forward, both = np.zeros(strongest.shape), of.copy()
    forward[:, 1:] = strongest[:, 1:] >= strongest[:, :-1]
    both[:, 1:] &= of[:, :-1]
    both[:, :1] = False
    return mean_over(forward, both, of)


SCORES = (
    Score("expected_key", "Attended position", "tokens",
          "where the attended keys stand on average: Σ w j, mean over queries",
          "the mean position of the visible keys", "late in the other sequence",
          over="queries (a sample of them in long texts)", group="cross", measure=_expected_key,
          kind="cross"),
    Score("key_spread", "Spread of the position", "tokens",
          "how far the attended keys stand apart: the standard deviation of j under the weights, mean over "
          "queries", "the standard deviation of the positions of the visible keys", "looks at many places",
          over="queries (a sample of them in long texts)", group="cross", measure=_key_spread, kind="cross"),
    Score("alignment", "Alignment", "",
          "correlation between the place of a query and the mean position that it attends to",
          "0: uniform attention stays where it is", "moves along with the text",
          over="queries (a sample of them in long texts)", group="cross", range=(-1.0, 1.0),
          measure=_alignment, kind="cross"),
    Score("monotonic", "Monotonic steps", "",
          "how often the strongest key of a query stands no earlier than that of the query before",
          "a half and a little: keys picked at random, (1 + 1 / n) / 2", "moves along with the text",
          over="queries that have one before", group="cross", measure=_monotonic, kind="cross"),
)  # fmt: skip
