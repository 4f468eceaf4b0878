"""One attention pass in float64, from which every step of a trace is taken."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headwise.plain.types import Array
from headwise.trace.arithmetic import for_each_query_head, softmax
from headwise.trace.notation import Letters


@dataclass(frozen=True)
class AttentionPass:
    """One attention pass in float64, every array with its heads in front.

    ``query`` and ``key`` are None where the scores themselves were given. ``seen`` (h, n_q, n_k) says which
    keys a query sees, ``bias`` what is added to its scores.
    """

    query: Array | None
    key: Array | None
    value: Array
    scores: Array
    scale: float
    scale_given: bool
    seen: Array
    bias: Array | None
    is_causal: bool
    offset: int
    queries: list[str]
    keys: list[str]
    letters: Letters

    @property
    def heads(self) -> int:
        return self.scores.shape[0]

    @cached_property
    def scaled(self) -> Array:
        return self.scores * self.scale

    @cached_property
    def masked(self) -> Array:
        return np.where(self.seen, self.scaled if self.bias is None else self.scaled + self.bias, -np.inf)

    @property
    def has_mask(self) -> bool:
        return self.bias is not None or not self.seen.all()

    @cached_property
    def weights(self) -> Array:
        return softmax(self.masked)

    @property
    def values(self) -> Array:
        """One value head per query head."""
        return for_each_query_head(self.value, self.heads)

    @cached_property
    def blend(self) -> Array:
        return self.weights @ self.values

    @property
    def shown_row(self) -> int | None:
        """The query of head 0 that the worked lines follow: the last of a causal pass, else the first."""
        rows = np.flatnonzero(self.seen[0].any(-1))
        return None if rows.size == 0 else int(rows[-1 if self.is_causal else 0])

    def grid(self) -> list[str]:
        return ["h", self.letters.n_q, self.letters.n_k]
