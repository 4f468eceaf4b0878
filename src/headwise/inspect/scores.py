"""The scores of every head of a layer, out of the attention statistics of that layer.

A score is a mean over query rows, in float64. The statistics themselves come from ``headwise.functional``,
which never makes an n x n array; per layer O(H n k) numbers are held and at once reduced to sums, the k
strongest keys of each row and a block-pooled map. Definitions: Clark et al. 2019 (entropy), Vig & Belinkov
2019 (distance), Olsson et al. 2022 (induction), Wang et al. 2022 (duplicate token).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.functional import attention_statistics
from headwise.request import AuxRequest

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TOP_K = 6  # strongest keys kept per query row
MAP_SIDE = 48  # the pooled map has at most so many blocks a side


@dataclass(frozen=True, eq=False)
class Mean:
    """A mean over query rows that can be merged: ``total`` (H,) is the sum over ``rows`` rows of ``of``."""

    total: Floats
    rows: int
    of: int

    @property
    def share(self) -> float:
        """Which share of the query rows entered the mean."""
        return self.rows / self.of

    def value(self, head: int) -> float | None:
        """The mean of one head; None where no row entered, or where it is not a finite number."""
        value = float(self.total[head]) / self.rows if self.rows else float("nan")
        return value if np.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class LayerScores:
    """What is kept of one layer.

    Attributes:
        means: score key -> Mean over (H,); a score that does not exist for this text has no entry.
        top_index, top_weight: (H, n, k), strongest key first; −1 and 0 where a row sees fewer keys.
        pooled: (H, m, m), mean weight of a block of rows on a block of keys; None where not asked.
    """

    means: dict[str, Mean]
    top_index: Integers
    top_weight: Floats
    pooled: Floats | None


@dataclass(frozen=True, eq=False)
class Scorer:
    """Scores layers over one text.

    Attributes:
        ids: (n,) token ids.
        special: (n,) True at special tokens.
        is_causal: True where query i sees the keys 0 … i.
        num_threads: threads of the kernel; None = its own default.
    """

    ids: Integers
    special: npt.NDArray[np.bool_]
    is_causal: bool
    num_threads: int | None = None

    @property
    def block(self) -> int:
        """Tokens per side of a block of the pooled map, which has at most MAP_SIDE blocks a side."""
        return -(-len(self.ids) // MAP_SIDE)

    @cached_property
    def null(self) -> dict[str, float | None]:
        """Every score under uniform attention over the visible keys: the statistics of query = key = 0."""
        zeros = np.zeros((1, 1, len(self.ids), 1))
        scores = self.layer(zeros, zeros, scale=1.0, top_k=0, pooled=False)
        return {key: mean.value(0) for key, mean in scores.means.items()}

    def layer(
        self, query: Any, key: Any, *, scale: float, top_k: int = TOP_K, pooled: bool = True
    ) -> LayerScores:
        """The scores of one layer.

        Args:
            query, key: (1, H, n, d_k) and (1, H_kv, n, d_k), of any kind that ``headwise.attention`` takes.
            scale: the factor on the scores.
            top_k: strongest keys to keep per row.
            pooled: whether to keep the pooled map.
        """
        segments = np.where(self.special, 0, -1)[None] if self.special.any() else None
        request = AuxRequest(
            entropy=True,
            max_weight=True,
            distance=True,
            top_k=top_k,
            sink_mass=1,
            offsets=(-1, 0, 1),
            matches=self.ids[None],
            segments=segments,
            pooled=self.block if pooled else 0,
        )
        aux = attention_statistics(
            query,
            key,
            is_causal=self.is_causal,
            scale=scale,
            return_aux=request,
            num_threads=self.num_threads,
        )
        heads, n = query.shape[1], query.shape[2]
        none = np.zeros((heads, n, 0))
        return LayerScores(
            means=self._means(aux),
            top_index=np.asarray(aux.top_k_index)[0] if top_k else none.astype(np.int64),
            top_weight=_rows(aux.top_k_weight) if top_k else none,
            pooled=_rows(aux.pooled) if pooled else None,
        )

    def _means(self, aux: Any) -> dict[str, Mean]:
        n = len(self.ids)
        visible = np.arange(1, n + 1) if self.is_causal else np.full(n, n)
        every = np.ones(n, dtype=bool)
        position = np.arange(n)
        entropy, offsets = _rows(aux.entropy), _rows(aux.offsets)
        several = visible > 1
        means = {
            "entropy": _mean(entropy, every),
            "entropy_normalized": _mean(entropy / np.log(np.where(several, visible, 2)), several),
            "max_weight": _mean(_rows(aux.max_weight), every),
            "distance": _mean(_rows(aux.distance), every),
            "self": _mean(offsets[..., 1], every),
            "previous": _mean(offsets[..., 0], position >= 1),
            "first": _mean(_rows(aux.sink_mass), every),
            "duplicate": _mean(_rows(aux.duplicate), _possible(aux.duplicate_count)),
            "induction": _mean(_rows(aux.induction), _possible(aux.induction_count)),
        }
        if not self.is_causal:
            means["next"] = _mean(offsets[..., 2], position < n - 1)
        if aux.segments is not None:
            means["special"] = _mean(_rows(aux.segments)[..., 0], every)
        return means


def _rows(values: Any) -> Floats:
    """(1, H, n, …) of any kind -> (H, n, …) in float64."""
    return np.asarray(values, dtype=np.float64)[0]


def _mean(values: Floats, rows: npt.NDArray[np.bool_]) -> Mean:
    return Mean(total=values[:, rows].sum(axis=1), rows=int(rows.sum()), of=len(rows))


def _possible(count: Any) -> npt.NDArray[np.bool_]:
    """Rows with a possible match; the same for every head, since tokens and visibility are."""
    found: npt.NDArray[np.bool_] = np.asarray(count)[0, 0] > 0
    return found
