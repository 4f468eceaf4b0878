"""The named problems that the documentation quotes, and the figure that each of them has to reach."""

from dataclasses import dataclass

import numpy as np

from headwise import AuxRequest


@dataclass(frozen=True)
class Case:
    """Self-attention of ``batch`` sequences: ``(batch, heads, n, d)`` float32 for query, key, value.

    Attributes:
        heads_inside: in memory (batch, n, heads, d), as a model's projections leave it.
        padded: keys past a random length of each sequence are hidden by a boolean mask ``(batch, 1, 1, n)``.
        rounds: interleaved rounds, of which the median counts; calls: calls in one timing.
        of_fma: the share of the processor's multiply-add rate that we ask of ourselves, on one thread.
        over_torch: how many times as fast as torch's fused attention; over_best: as the fastest peer.
    """

    heads: int
    n: int
    d: int
    causal: bool = False
    batch: int = 1
    heads_inside: bool = False
    padded: bool = False
    rounds: int = 9
    calls: int = 1
    of_fma: float | None = None
    over_torch: float | None = None
    over_best: float | None = None

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        kind = "padded" if self.padded else "causal" if self.causal else "full"
        return f"{batch}{self.heads}x{self.n}x{self.d} {kind}{', heads inside' if self.heads_inside else ''}"

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """query, key, value from N(0, 1), the same in every process."""
        rng = np.random.default_rng(0)
        shape = (self.batch, self.heads, self.n, self.d)
        query, key, value = (rng.standard_normal(shape, dtype=np.float32) for _ in range(3))
        if self.heads_inside:
            query, key, value = (a.swapaxes(1, 2).copy().swapaxes(1, 2) for a in (query, key, value))
        return query, key, value

    def mask(self) -> np.ndarray | None:
        """True = real key, ``(batch, 1, 1, n)``; lengths from half of n up."""
        if not self.padded:
            return None
        lengths = np.random.default_rng(1).integers(self.n // 2, self.n + 1, self.batch)
        return (np.arange(self.n) < lengths[:, None])[:, None, None, :]

    @property
    def flops(self) -> float:
        """Operations of both products over the visible pairs; one multiply-add counts as two."""
        visible = self.n * (self.n + 1) / 2 if self.causal else self.n * self.n
        return 4.0 * self.batch * self.heads * visible * self.d


CASES = [
    Case(8, 4096, 64, rounds=7, of_fma=0.78, over_torch=1.15, over_best=1.05),
    Case(8, 4096, 128, rounds=5, of_fma=0.82, over_best=1.05),
    Case(8, 1024, 64, rounds=21, over_torch=1.15, over_best=1.05),
    Case(12, 512, 64, causal=True, rounds=41, over_torch=1.8, over_best=1.05),
    Case(12, 1024, 64, causal=True, rounds=21, over_torch=1.5, over_best=1.05),
    Case(8, 2048, 64, causal=True, rounds=15, over_torch=1.3, over_best=1.05),
    Case(8, 2048, 64, heads_inside=True, rounds=9),
    Case(12, 128, 64, rounds=61, calls=4, over_torch=1.2, over_best=1.0),
    Case(8, 16, 64, rounds=61, calls=200, over_torch=1.0),
    Case(8, 512, 64, batch=4, padded=True, rounds=15, over_torch=1.3),
]

# What rides along with the output, and the time that it may take at most, against our plain call.
STATISTICS_CASE = Case(8, 2048, 64, rounds=15)
TOKENS = np.random.default_rng(2).integers(0, 500, STATISTICS_CASE.n)
ROWS = AuxRequest(lse=True, entropy=True, max_weight=True, argmax=True, sink_mass=4, distance=True)
STATISTICS = {
    "lse, entropy, max, argmax, sink, distance": (ROWS, 1.10),
    "received": (AuxRequest(received=True), 1.20),
    "pooled(64)": (AuxRequest(pooled=64), 1.05),
    "top_k 4": (AuxRequest(top_k=4), 1.15),
    "token matches": (AuxRequest(matches=TOKENS), None),
}
# Asked of torch eager as well, which needs the n x n weights for it.
EVERYTHING = AuxRequest(
    lse=True,
    entropy=True,
    max_weight=True,
    argmax=True,
    sink_mass=4,
    distance=True,
    received=True,
    pooled=64,
    top_k=4,
)
OVER_EAGER = 6.0
MEMORY_CASE = Case(8, 16384, 64)
EXTRA_MEMORY_MB = 64
