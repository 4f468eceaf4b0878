"""The named problems that the documentation quotes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Self-attention of one sequence: ``heads x n x d`` float32 numbers each for query, key and value."""

    heads: int
    n: int
    d: int
    causal: bool
    pairs: int  # paired runs, of which the median counts

    @property
    def name(self) -> str:
        return f"{self.heads}x{self.n}x{self.d} {'causal' if self.causal else 'full'}"

    @property
    def flops(self) -> float:
        """Operations of both products over the visible pairs; one multiply-add counts as two."""
        visible = self.n * (self.n + 1) / 2 if self.causal else self.n * self.n
        return 4.0 * self.heads * visible * self.d


CASES = [
    Case(8, 4096, 64, False, 7),
    Case(8, 4096, 64, True, 9),
    Case(8, 2048, 128, False, 9),
    Case(12, 512, 64, False, 31),
    Case(12, 512, 64, True, 31),
    Case(12, 128, 64, False, 101),
]
