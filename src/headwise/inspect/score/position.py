"""Where a head looks: distances, neighbours, fixed offsets; in an image, pixels."""

import numpy as np

from headwise.inspect.score.measured import Measured
from headwise.inspect.score.patches import pixel_distance
from headwise.inspect.score.score import AS_ONE, CLARK, OLSSON, VOITA, Score
from headwise.inspect.score.tally import NEAR, OFFSETS, Bands, Mean, Offsets, Tally, mean_over, ratio_over
from headwise.plain.types import Floats


def _distance(m: Measured) -> Mean:
    return mean_over(m.row("distance"), m.of, m.of)


def _distance_without_first(m: Measured) -> Mean:
    """Over the weight off the first token: of what is left of a row with its first key hidden."""
    off = m.off_first
    weight, distance = off.rest, off.found["distance"]
    if "sink_logit_mass" in off.found:
        weight = weight * (1.0 - np.nan_to_num(off.found["sink_logit_mass"]))
    return ratio_over(off.rest * distance, weight, np.isfinite(distance), m.sample_of)


def _self(m: Measured) -> Mean:
    return mean_over(_mass_at(m, 0), m.of, m.of)


def _previous(m: Measured) -> Mean:
    return mean_over(_mass_at(m, -1), _sees(m, -1), m.of)


def _next(m: Measured) -> Mean | None:
    return None if m.call.is_causal else mean_over(_mass_at(m, 1), _sees(m, 1), m.of)


def _mass_at(m: Measured, offset: int) -> Floats:
    """(H, n_q): mass on the key at an offset from the query."""
    return np.asarray(m.aux.relative)[0, ..., NEAR + offset].astype(np.float64)


def _sees(m: Measured, offset: int) -> np.ndarray:
    assert m.visible.offsets is not None
    return m.visible.offsets[..., NEAR + offset]


def _picked_at_random(m: Measured) -> Mean | None:
    """Equal weights leave open which key is the strongest: one picked at random counts."""
    return mean_over(m.row("max_weight"), m.of, m.of) if m.uniform else None


def _pixel_distance(m: Measured) -> Mean | None:
    if m.keys.grid is None:
        return None
    return pixel_distance(m.call, m.sample.at, m.sample_of, m.keys.grid)


def _best_rate(tally: Tally) -> Mean | None:
    return None if tally.offsets is None else tally.offsets.best_rate()


def _share_by_position(tally: Tally) -> Mean | None:
    return None if tally.bands is None else tally.bands.share(tally.of)


def near_of(m: Measured) -> Floats:
    """(H, 17): the mass of all rows at every one of OFFSETS, 0 at those that no row sees."""
    mass = np.asarray(m.aux.relative)[0]
    if not m.of.all():
        mass = np.where(m.of[..., None], mass, 0)
    sums = mass.sum(axis=1, dtype=np.float64)
    return np.pad(sums, ((0, 0), (0, len(OFFSETS) - sums.shape[1])))


def offsets_of(m: Measured, near: Floats) -> Offsets:
    """Mass and strongest keys by offset."""
    assert m.visible.offsets is not None
    strongest = np.asarray(m.aux.argmax)[0]
    heads = len(strongest)
    offset = strongest - (np.arange(strongest.shape[1]) + m.call.offset)
    slot = np.where(m.of & (np.abs(offset) <= NEAR), offset + NEAR, len(OFFSETS))  # the last one: elsewhere
    slots = len(OFFSETS) + 1
    hits = np.bincount((slot + slots * np.arange(heads)[:, None]).reshape(-1), minlength=heads * slots)
    rows = np.broadcast_to((m.visible.offsets & m.of[..., None]).sum(axis=1), (heads, len(OFFSETS)))
    count = np.broadcast_to(m.of.sum(axis=1), heads)
    return Offsets(
        near,
        hits.reshape(heads, slots)[:, :-1].astype(np.float64),
        rows.astype(np.float64),
        count.astype(np.float64),
    )


def bands_of(m: Measured, near: Floats) -> Bands:
    """Bands of offsets: each of OFFSETS alone, then |offset| 9 … 15, 16 … 31 and so on, both sides together.

    Pairs are counted by position alone: every key that stands there, seen or not, but none after the query
    in causal attention.
    """
    n_k, causal, of = m.call.key.shape[-2], m.call.is_causal, m.of
    position = np.arange(of.shape[1]) + m.call.offset
    there = position[:, None] + np.array(OFFSETS)
    exists = (there >= 0) & (there < n_k) & (~np.bool_(causal) | (np.array(OFFSETS) <= 0))
    near_pairs = (of[..., None] & exists).sum(axis=1)
    histogram = np.asarray(m.aux.distance_histogram, np.float64)[0]
    total = np.nan_to_num(histogram) * of.sum(axis=1)[:, None]
    far, far_pairs = [], []
    for bucket in range(NEAR.bit_length(), total.shape[1]):
        low, high = 2 ** (bucket - 1), 2**bucket - 1
        inside = total[:, bucket]
        if low == NEAR:  # the offsets −8 and 8 have bands of their own
            inside = inside - near[:, 0] - near[:, -1]
            low += 1
        left = np.clip(np.minimum(position, high) - np.maximum(low, position - n_k + 1) + 1, 0, None)
        ahead = n_k - 1 - position
        right = np.clip(np.minimum(ahead, high) - np.maximum(low, -position) + 1, 0, None)
        far.append(np.maximum(inside, 0.0))
        far_pairs.append((of * (left + (0 if causal else right))).sum(axis=1))
    masses = np.column_stack([near, *far])
    pairs = np.column_stack([near_pairs, *far_pairs])
    squares = np.where(of, m.row("sum_squares"), 0.0).sum(axis=1)
    return Bands(masses, np.broadcast_to(pairs, masses.shape).astype(np.float64), squares)


SCORES = (
    Score("distance", "Distance", "tokens",
          "how far away the attended keys stand: Σ w |i − j|, mean over queries",
          "the mean distance to all visible keys", "far", source="Vig and Belinkov 2019, first token counted",
          group="position", measure=_distance, kind="self", asks=("distance",), always=True),
    Score("distance_without_first", "Distance without the first token", "tokens",
          "the same over the weight that is not on the first token: Σ w |i − j| / Σ w over the keys after it",
          "the mean distance to the visible keys after the first", "far",
          over="the weight off the first token (of a sample of the queries in long texts)",
          source="Vig and Belinkov 2019, first token left out", group="position",
          measure=_distance_without_first, kind="self", always=True),
    Score("self", "Self", "", "weight of a query on its own token", "the mean of 1 / n", "looks at itself",
          source=CLARK, group="position", measure=_self, kind="self", asks=("relative",), always=True),
    Score("previous", "Previous token", "", "weight on the token before, over queries that have one", AS_ONE,
          "looks one token back", over="queries that see a token before",
          source=f"{OLSSON}; over all queries {CLARK}", group="position", measure=_previous, kind="self",
          asks=("relative",), both_readings=True, always=True),
    Score("next", "Next token", "",
          "weight on the token after, over queries that have one; missing in causal models", AS_ONE,
          "looks one token ahead", over="queries that see a token after", source=CLARK, group="position",
          measure=_next, kind="self", asks=("relative",), both_readings=True, always=True),
    Score("positional_argmax", "Fixed offset", "",
          "how often the strongest key stands at one and the same offset, the best of −8 … 8",
          "the mean of 1 / n: a key picked at random", "follows position (0.9 and more: a positional head)",
          source=VOITA, group="position", measure=_picked_at_random, read=_best_rate, kind="self",
          asks=("relative",), always=True),
    Score("positional_share", "Positional share", "",
          "how much of Σ w² a pattern explains that knows the distance alone: each offset of −8 … 8 for "
          "itself, farther distances in doublings", "the same of uniform attention",
          "depends on position, not on content", over="Σ w² over all queries",
          source="the Toeplitz part of the weight matrix", group="position", read=_share_by_position,
          kind="self", asks=("relative", "distance", "sum_squares"), always=True),
    Score("pixel_distance", "Distance in the image", "pixels",
          "how far apart the centres of a patch and of the patches that it attends to stand: Σ w d / Σ w, "
          "without the class token", "the mean distance to the visible patches", "far",
          over="patches (a sample of them in large images)", source="Dosovitskiy et al. 2020",
          group="position", range=(0.0, None), measure=_pixel_distance, kind="self"),
)  # fmt: skip
