"""What is kept of a layer to draw: the strongest keys of rows, the strongest links, and the map."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headwise.compute.request import Aux
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import Rows
from headwise.inspect.call.text import Text
from headwise.inspect.score.measured import rows_of
from headwise.plain.types import Floats, Integers

N_LINKS = 10  # strongest links kept per head
Link = tuple[int, int, float]


def block_of(n: int) -> int:
    """Tokens a side of a cell of the map of n tokens: from 64 on a multiple of 64, so that few of the
    kernel's blocks of keys lie in two cells."""
    block = max(1, -(-n // Pictures.SIDE))
    return block if block < 64 else -(-block // 64) * 64


@dataclass(eq=False)
class Pictures:
    """The drawable part of a layer; every array has the heads first.

    Attributes:
        n_q, n_k: rows and keys so far.
        offset: position of row 0 among the keys; None in cross-attention.
        queries: (r,) the rows whose strongest keys are kept.
        index, weight: (H, r, k), strongest first; −1 and 0 where a row sees fewer.
        strongest: (H, n_q) the strongest key of every row, and its weight ``largest``.
        block: tokens a side of a cell of the map.
        mass: (H, blocks of rows, blocks of keys) summed mass; rows: (H, blocks of rows) how many see a key.
    """

    SIDE: ClassVar[int] = 48  # the map has at most so many blocks a side

    n_q: int
    n_k: int
    offset: int | None
    queries: Integers
    index: Integers
    weight: Floats
    strongest: Integers
    largest: Floats
    block: int
    mass: Floats
    rows: Floats

    def append(self, later: "Pictures") -> None:
        """Add the rows that come after these."""
        if later.block != self.block:
            raise ValueError(f"maps of blocks of {self.block} and of {later.block} tokens do not add")
        self.queries = np.concatenate([self.queries, later.queries + self.n_q])
        self.index = np.concatenate([self.index, later.index], axis=1)
        self.weight = np.concatenate([self.weight, later.weight], axis=1)
        self.strongest = np.concatenate([self.strongest, later.strongest], axis=1)
        self.largest = np.concatenate([self.largest, later.largest], axis=1)
        start = self.n_q // self.block
        down = start + later.mass.shape[1]
        across = max(self.mass.shape[2], later.mass.shape[2])
        mass, rows = np.zeros((len(self.mass), down, across)), np.zeros((len(self.mass), down))
        mass[:, : self.mass.shape[1], : self.mass.shape[2]] += self.mass
        rows[:, : self.rows.shape[1]] += self.rows
        mass[:, start:, : later.mass.shape[2]] += later.mass
        rows[:, start:] += later.rows
        self.mass, self.rows = mass, rows
        self.n_q, self.n_k = self.n_q + later.n_q, max(self.n_k, later.n_k)
        while max(self.mass.shape[1:]) > self.SIDE and self.n_q % (2 * self.block) == 0:
            self._coarsen()

    def map(self) -> Floats:
        """(H, m, m'): the mean mass of the rows of a block that see a key; NaN where none does."""
        with np.errstate(invalid="ignore"):
            found: Floats = self.mass / np.where(self.rows > 0, self.rows, np.nan)[..., None]
        return found

    def _coarsen(self) -> None:
        self.block *= 2
        down, across = (np.arange(0, size, 2) for size in self.mass.shape[1:])
        self.mass = np.add.reduceat(np.add.reduceat(self.mass, down, axis=1), across, axis=2)
        self.rows = np.add.reduceat(self.rows, down, axis=1)


def picture_of(call: AttentionCall, aux: Aux, rows: Rows, block: int, top_k: int, in_full: bool) -> Pictures:
    """The pictures of one call: the strongest keys of every row, or of the rows of the sample."""
    # −1 and 0 where a row sees nothing.
    strongest, largest = np.asarray(aux.argmax)[0], np.nan_to_num(rows_of(aux.max_weight))
    if in_full:
        at = np.arange(strongest.shape[1])
        index, weight = np.asarray(aux.top_k_index)[0], np.asarray(aux.top_k_weight, np.float64)[0]
    else:
        found = rows.statistics(top_k=top_k)
        at, index, weight = rows.at, found["top_k_index"].astype(np.int64), found["top_k_weight"]
    # The kernel's map is a mean over rows; sums can be added to those of later rows.
    n_q = strongest.shape[1]
    sees = (strongest >= 0).astype(np.float64)
    starts = np.arange(0, n_q, block)
    count = np.add.reduceat(sees, starts, axis=1)
    mass = np.nan_to_num(np.asarray(aux.pooled, np.float64)[0]) * count[..., None]
    offset = call.offset - call.first_row if call.kind == "self" else None
    return Pictures(
        n_q=n_q,
        n_k=int(call.key.shape[-2]),
        offset=offset,
        queries=at,
        index=index,
        weight=weight,
        strongest=strongest,
        largest=largest,
        block=block,
        mass=mass,
        rows=count,
    )


def strongest_links(pictures: Pictures, head: int, queries: Text, keys: Text) -> list[list[Any]]:
    """The strongest links of one head, [query, key, weight], best first, at most N_LINKS.

    They are chosen among the strongest key of every row and the kept keys of the kept rows. Links from or
    to a special token, and from a token to itself, are left out where the head has others.
    """
    every = np.arange(pictures.n_q)
    query = np.concatenate([every, np.repeat(pictures.queries, pictures.index.shape[2])])
    key = np.concatenate([pictures.strongest[head], pictures.index[head].reshape(-1)])
    weight = np.concatenate([pictures.largest[head], pictures.weight[head].reshape(-1)])
    exists = key >= 0
    itself = -1 if pictures.offset is None else query + pictures.offset
    others = exists & (key != itself)
    words = others & ~queries.is_special[query] & ~keys.is_special[np.maximum(key, 0)]
    chosen = next((links for links in (words, others, exists) if links.any()), exists)
    best = np.flatnonzero(chosen)
    if len(best) > 2 * N_LINKS:  # sort only those that are among the strongest, ties included
        least = np.partition(weight[best], -2 * N_LINKS)[-2 * N_LINKS]
        best = best[weight[best] >= least]
    best = best[np.lexsort((key[best], query[best], -weight[best]))]
    found: dict[tuple[int, int], float] = {}
    for at in best[: 2 * N_LINKS]:  # the strongest key of a kept row stands there twice
        found.setdefault((int(query[at]), int(key[at])), float(weight[at]))
    return [[q, k, w] for (q, k), w in list(found.items())[:N_LINKS]]


def induction_link(pictures: Pictures, head: int, queries: Text, keys: Text) -> list[Any] | None:
    """The strongest link of one head that counts for induction: its key follows another place of its token.

    It is [query, key, weight], chosen among the kept keys of the kept rows; None where none of them counts.
    """
    if queries.ids is None or keys.ids is None or pictures.offset is None or not pictures.index.size:
        return None
    index = pictures.index[head]
    query = np.broadcast_to(pictures.queries[:, None], index.shape)
    before = np.maximum(index - 1, 0)
    counts = (
        (index >= 1) & (before != query + (pictures.offset or 0)) & (keys.ids[before] == queries.ids[query])
    )
    if not counts.any():
        return None
    row, column = divmod(int(np.where(counts, pictures.weight[head], -1.0).argmax()), index.shape[1])
    return [int(query[row, column]), int(index[row, column]), float(pictures.weight[head, row, column])]
