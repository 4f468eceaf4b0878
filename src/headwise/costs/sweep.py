"""The number of heads from 1 to d_model: what stays, what falls, what grows."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self

from headwise.compute.problem import divisors
from headwise.costs.sizes import whole
from headwise.costs.sources import cost
from headwise.errors import HeadwiseError
from headwise.plain.numbers import count
from headwise.plain.stored import built, opened, parsed, refuse
from headwise.plain.values import shown
from headwise.plain.version import __version__

SCHEMA = "headwise.sweep"
VERSION = 1
EXPONENTIAL = 10  # multiply-adds that one exponential is taken to cost a vector unit


@dataclass(frozen=True)
class SweepRow:
    """One number of heads.

    Attributes:
        heads, head_dim: h and d_k = d_model / h.
        parameters: of the layer, without biases.
        matmul: FLOPs of all matrix products of one forward pass; scores: of them those of scores and values.
        exponentials: h times the visible pairs.
        softmax_share: share of the exponentials in the work of scores, softmax and values, counted in
            multiply-adds.
    """

    heads: int
    head_dim: int
    parameters: int
    matmul: int
    scores: int
    exponentials: int
    softmax_share: float


@dataclass(frozen=True)
class Sweep:
    """The cost of one layer for every number of heads that divides d_model. Print it, or ``to_html()``."""

    headwise: str
    d_model: int
    seq: int
    causal: bool
    batch: int
    exponential: float
    rows: tuple[SweepRow, ...]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The sweep with its schema and version, as JSON would hold it (a copy)."""
        return json.loads(json.dumps({"schema": SCHEMA, "version": VERSION, **asdict(self)}))

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The sweep that ``to_dict`` gave.

        Raises:
            HeadwiseError: another schema or version, or a field that is missing or unsound.
        """
        sweep = built(cls, opened(data, "sweep", SCHEMA, VERSION), "sweep")
        if (
            not sweep.rows
            or min(min(asdict(row).values()) for row in sweep.rows) <= 0
            or sweep.exponential <= 0
        ):
            raise refuse("sweep", "rows", "numbers above 0", sweep.rows)
        return sweep

    def to_json(self) -> str:
        """The sweep as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The sweep that ``to_json`` gave.

        Raises:
            HeadwiseError: not JSON, or not a sweep.
        """
        return cls.from_dict(parsed(text, "sweep"))

    def to_html(self) -> str:
        """One offline page with the table and a plot."""
        from headwise.render.costs.page import render_sweep

        return render_sweep(self.to_dict())

    def __str__(self) -> str:
        from headwise.render.costs.text import to_text

        return to_text(self.to_dict())


def head_sweep(
    d_model: int, seq: int, *, causal: bool = False, batch: int = 1, exponential: float = EXPONENTIAL
) -> Sweep:
    """The cost of one layer for h = 1 … d_model, every divisor.

    Args:
        d_model, seq, causal, batch: as for ``cost``.
        exponential: multiply-adds that one exponential is taken to cost, for the share of softmax.

    Raises:
        HeadwiseError: a size that is no whole number of at least 1.

    >>> [(row.heads, row.head_dim, row.matmul) for row in head_sweep(4, 2).rows]
    [(1, 4, 320), (2, 2, 320), (4, 1, 320)]
    """
    whole("d_model", d_model)
    whole("seq", seq)
    if isinstance(exponential, bool) or not isinstance(exponential, int | float) or not exponential > 0:
        raise HeadwiseError("exponential", "a number above 0", shown(exponential))
    rows = []
    for heads in divisors(d_model):
        found = cost(d_model=d_model, heads=heads, seq=seq, causal=causal, batch=batch)
        products = int(found["flops.scores"] + found["flops.values"])
        work = exponential * found["flops.exponentials"]
        rows.append(
            SweepRow(
                heads=heads,
                head_dim=d_model // heads,
                parameters=int(found["parameters.without_biases"]),
                matmul=found.flops,
                scores=products,
                exponentials=int(found["flops.exponentials"]),
                softmax_share=work / (work + products / 2),
            )
        )
    flat, spent = count(rows[0].matmul), f"{exponential:g}\u00b7exponentials"
    notes = [
        f"Matrix products cost the same for every h, {flat} FLOPs: h heads of width d_model / h. Of them "
        "scores and values are Q K\u1d40 and the blend of values.",
        f"Softmax grows with h: one exponential per head and pair, taken here as {exponential:g} "
        f"multiply-adds (2 FLOPs each). Its share: {spent} / ({spent} + \u00bd\u00b7scores and values).",
        "A narrow head sees little: at h = d_model a query and a key are one number each. In practice d_k "
        "near 64 is common.",
    ]
    return Sweep(__version__, d_model, seq, causal, batch, exponential, tuple(rows), notes)
