"""Sums over query rows that can be added: two texts, or the steps of a model that writes, make one mean.

Every class here holds one number per head (axis 0) and has ``+``. Nothing is a mean before it is asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, TypeAlias

import numpy as np

from headwise.plain.types import Booleans, Floats

NEAR = 8  # offsets −8 … 8 are told apart one by one
OFFSETS = tuple(range(-NEAR, NEAR + 1))
SEEN = 0.1  # share of the most seen key's rows below which a key's mean says little


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over some rows. ``+`` gives those of more rows, field by field; arrays over keys may grow."""

    def __add__(self, other: Self) -> Self:
        pairs = [(getattr(self, part.name), getattr(other, part.name)) for part in fields(self)]
        return type(self)(*(_wide(one, other) + _wide(other, one) for one, other in pairs))


@dataclass(frozen=True, eq=False)
class Mean(Sums):
    """``total / weight`` of each head, over ``rows`` query rows of the ``of`` that see a key; all (H,)."""

    total: Floats
    weight: Floats
    rows: Floats
    of: Floats

    def mean(self, of: Floats) -> "Mean":
        return self

    def value(self, head: int) -> float | None:
        """The mean of one head (a single null stands for all); None without a row, or where not finite."""
        total, weight = (float(_of(part, head)) for part in (self.total, self.weight))
        return _finite(total / weight) if weight else None

    def share(self, head: int) -> float | None:
        """Which share of the query rows entered the mean."""
        of = float(_of(self.of, head))
        return float(_of(self.rows, head)) / of if of else None

    def over_all(self, head: int) -> float | None:
        """The other reading: the total over all rows that see a key, not only those with a possible match."""
        of = float(_of(self.of, head))
        return _finite(float(_of(self.total, head)) / of) if of else None


def mean_over(values: Floats, rows: Booleans, of: Booleans) -> Mean:
    """The mean of values (H, n) over some rows; ``rows`` and ``of`` are (1, n) or (H, n)."""
    entered = rows & of
    count = entered.sum(axis=1, dtype=np.float64)
    return Mean(np.where(entered, values, 0.0).sum(axis=1), count, count, of.sum(axis=1, dtype=np.float64))


def ratio_over(values: Floats, weights: Floats, rows: Booleans, of: Booleans) -> Mean:
    """Σ values / Σ weights over some rows, all (H, n) or (1, n)."""
    entered = rows & of
    return Mean(
        np.where(entered, values, 0.0).sum(axis=1),
        np.where(entered, weights, 0.0).sum(axis=1),
        entered.sum(axis=1, dtype=np.float64),
        of.sum(axis=1, dtype=np.float64),
    )


@dataclass(frozen=True, eq=False)
class Offsets(Sums):
    """Mass and strongest keys at each of OFFSETS: ``mass``, ``hits`` and ``rows`` (that see that key) are
    (H, 17), ``of`` (H,)."""

    mass: Floats
    hits: Floats
    rows: Floats
    of: Floats

    def best_rate(self) -> Mean:
        """How often the strongest key stands at the offset where it stands most often."""
        return Mean(self.hits.max(axis=1), self.of, self.of, self.of)

    def profile(self, head: int) -> dict[str, Any]:
        """Per offset the mean mass over the rows that see that key, and the share of all rows whose
        strongest key stands there."""
        rows, of = _of(self.rows, head), float(_of(self.of, head))
        mass = [
            _finite(float(m) / float(r)) if r else None for m, r in zip(self.mass[head], rows, strict=True)
        ]
        hits = [float(hit) / of if of else None for hit in self.hits[head]]
        return {"at": list(OFFSETS), "mass": mass, "argmax": hits}


@dataclass(frozen=True, eq=False)
class Bands(Sums):
    """Mass by distance alone: per band of offsets the mass (H, bands) and the number of pairs; Σ w² (H,)."""

    mass: Floats
    pairs: Floats
    squares: Floats

    def by_distance(self, of: Floats) -> Floats:
        """(H, d): mean mass at distance 0, 1, 2–3, 4–7, … on both sides, as far as there are pairs."""
        mass, pairs = _doublings(self.mass), _doublings(self.pairs)
        reach = int(np.flatnonzero(pairs.any(axis=0)).max(initial=0)) + 1
        found: Floats = mass[:, :reach] / np.maximum(of, 1.0)[:, None]
        return found

    def share(self, of: Floats) -> Mean:
        """Σ over bands of pairs · (mean weight)², as a share of Σ w²."""
        explained = np.divide(self.mass**2, self.pairs, out=np.zeros_like(self.mass), where=self.pairs > 0)
        return Mean(explained.sum(axis=1), self.squares, of, of)


def _doublings(bands: Floats) -> Floats:
    """(H, bands) -> (H, d): bands of distance 0, 1, 2–3, 4–7 and so on, from those of ``Bands``."""
    near, far = bands[:, : len(OFFSETS)], bands[:, len(OFFSETS) :]
    both = near[:, NEAR:] + near[:, NEAR::-1]
    both[:, 0] = near[:, NEAR]
    found = np.add.reduceat(both, (0, 1, 2, 4, 8), axis=1)
    found[:, 4] += far[:, :1].sum(axis=1)  # 8 stands alone, 9–15 together; short texts have none
    return np.concatenate([found, far[:, 1:]], axis=1)


@dataclass(frozen=True, eq=False)
class Bias(Sums):
    """The mean weight of an entry in a class of keys, beside the mean weight of any entry; all (H,).

    ``mass`` on the class and the number of its entries, ``pairs``; ``whole`` mass and ``every`` entry.
    """

    mass: Floats
    pairs: Floats
    whole: Floats
    every: Floats

    def mean(self, of: Floats) -> Mean:
        """(mass / pairs) / (whole / every); missing where the class has no entry or there is no weight."""
        return Mean(self.mass * self.every, self.pairs * self.whole, of, of)


@dataclass(frozen=True, eq=False)
class Received(Sums):
    """What each key receives: ``total`` (H, n_k), and how many rows see it, ``seen`` (H, n_k)."""

    total: Floats
    seen: Floats

    def averages(self) -> Floats:
        """(H, n_k): the mean weight of each key over the rows that see it; 0 where nearly none do."""
        found: Floats = np.where(seen_enough(self.seen), self.total / np.maximum(self.seen, 1.0), 0.0)
        return found

    def strongest(self, of: Floats) -> Mean:
        """The largest of these means; missing where no key is seen by enough rows."""
        some = np.broadcast_to(seen_enough(self.seen).any(axis=1), len(self.total))
        weight = np.where(some, of, 0.0)
        return Mean(self.averages().max(axis=1, initial=0.0) * weight, weight, weight, of)

    def heaviest(self, of: Floats, share: float) -> Mean:
        """The share of all mass that the heaviest keys receive: that share of the keys, at least one."""
        keys = max(1, round(share * self.total.shape[1]))
        heaviest = np.partition(self.total, -keys, axis=1)[:, -keys:].sum(axis=1)
        return Mean(heaviest, self.total.sum(axis=1), of, of)


def seen_enough(seen: Floats) -> Booleans:
    """(…, n_k): keys that so many rows see that a mean over these says something of the key."""
    found: Booleans = seen >= np.maximum(2.0, SEEN * seen.max(axis=-1, initial=0.0, keepdims=True))
    return found


@dataclass(frozen=True, eq=False)
class Alignment(Sums):
    """Moments of the place of a query and the position that it attends to: ``sums`` (H, 6) holds
    n, Σ x, Σ y, Σ x², Σ y², Σ xy."""

    sums: Floats

    def mean(self, of: Floats) -> Mean:
        """Pearson's correlation; without a spread of either it does not exist."""
        n, x, y, xx, yy, xy = self.sums.T
        both = np.maximum(n * xx - x * x, 0.0) * np.maximum(n * yy - y * y, 0.0)
        exists = (n >= 2) & (both > 0) & (n * yy - y * y > 1e-12 * n * yy)
        weight = np.where(exists, np.sqrt(both), 0.0)
        return Mean(np.where(exists, n * xy - x * y, 0.0), weight, n, n)


Summed: TypeAlias = Mean | Bias | Alignment  # sums that give one mean: ``mean(of)``


@dataclass(frozen=True)
class Tally:
    """Everything that is summed of one layer; a part that does not apply is missing or None.

    Attributes:
        of: (H,) rows that see a key.
        sums: score key -> its sum.
        offsets, bands, received: the parts that several scores, profiles and lists are read off.
    """

    of: Floats
    sums: Mapping[str, Summed] = field(default_factory=dict)
    offsets: Offsets | None = None
    bands: Bands | None = None
    received: Received | None = None

    def __add__(self, other: "Tally") -> "Tally":
        keys = dict.fromkeys([*self.sums, *other.sums])
        return Tally(
            self.of + other.of,
            {key: _sum(self.sums.get(key), other.sums.get(key)) for key in keys},
            _sum(self.offsets, other.offsets),
            _sum(self.bands, other.bands),
            _sum(self.received, other.received),
        )

    def with_sums(self, sums: Mapping[str, Summed]) -> Self:
        return replace(self, sums={**self.sums, **sums})


def _sum(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


def _of(part: Floats, head: int) -> Any:
    return part[head] if len(part) > 1 else part[0]


def _wide(part: Floats, other: Floats) -> Floats:
    """``part``, with zeros behind it as far as ``other`` reaches."""
    if part.ndim == 1 or part.shape[1] >= other.shape[1]:
        return part
    return np.pad(part, ((0, 0), (0, other.shape[1] - part.shape[1])))


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
