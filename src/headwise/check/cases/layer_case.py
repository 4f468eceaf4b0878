"""The layer around attention: projections, split into heads, merge, output projection.

    z_q, z_k, z_v = x w_q^T + b_q, context w_k^T + b_k, context w_v^T + b_v
    output = merge(attention(split(z_q), split(z_k), split(z_v))) w_o^T + b_o

split: (B, n, H d) -> (B, H, n, d), head h owns columns h d ... (h + 1) d; merge goes back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from headwise.check.cases.case import Case, allowed, expected
from headwise.check.cases.chain import RIGHT, Chain, Fault, attend
from headwise.plain.types import AnyArray, Array

LayerOutput = Callable[["LayerCase", Chain], Array]


@dataclass(frozen=True, eq=False)
class LayerCase:
    """One call of a multi-head layer.

    Attributes:
        x: (B, n, d_model).
        w_q, w_k, w_v: (H d_k, d_model), (H_kv d_k, d_model), (H_kv d_v, d_model), rows are outputs, as
            ``torch.nn.Linear`` keeps them.
        b_q, b_k, b_v: their biases, or None.
        w_out, b_out: (d_out, H d_v) and (d_out,), or None where the layer has no output projection.
        num_heads, num_kv_heads: H and H_kv.
        options: mask, padding, is_causal, scale ... of the `Case` inside.
    """

    x: AnyArray
    w_q: AnyArray
    w_k: AnyArray
    w_v: AnyArray
    b_q: AnyArray
    b_k: AnyArray
    b_v: AnyArray
    w_out: AnyArray
    b_out: AnyArray
    num_heads: int
    num_kv_heads: int
    context: AnyArray = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def w_in(self) -> AnyArray:
        """The three input weights in one, (3 d_model, d_model), queries first."""
        return np.concatenate([self.w_q, self.w_k, self.w_v])

    @property
    def b_in(self) -> AnyArray:
        return np.concatenate([self.b_q, self.b_k, self.b_v])

    @property
    def width(self) -> int:
        """d_k."""
        return int(self.w_q.shape[0] // self.num_heads)

    def has(self) -> frozenset[str]:
        return self.inner().has() | {"layer"}

    def projected(self) -> tuple[Array, Array, Array]:
        context = self.x if self.context is None else self.context
        weights = ((self.x, self.w_q, self.b_q), (context, self.w_k, self.b_k), (context, self.w_v, self.b_v))
        z = [x @ w.T if b is None else x @ w.T + b for x, w, b in weights]
        return z[0], z[1], z[2]

    def inner(self, cut: Callable[[Array, int], Array] | None = None) -> Case:
        """The attention inside, its inputs split by ``cut`` (None: the right way)."""
        cut = split if cut is None else cut
        q, k, v = self.projected()
        heads, kv_heads = self.num_heads, self.num_kv_heads
        return Case(cut(q, heads), cut(k, kv_heads), cut(v, kv_heads), num_heads=heads, **self.options)

    def out(self, merged: Array) -> Array:
        """The output projection, where there is one."""
        if self.w_out is None:
            return merged
        return merged @ self.w_out.T if self.b_out is None else merged @ self.w_out.T + self.b_out


def split(x: Array, heads: int) -> Array:
    """(B, n, H d) -> (B, H, n, d)."""
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merge(x: Array) -> Array:
    """(B, H, n, d) -> (B, n, H d)."""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def expected_layer(case: LayerCase) -> tuple[Array, Array]:
    """Output by the specification, and what a right layer may lose at each element at unit roundoff 1.

    The error of the attention inside goes through |w_out|; each product of d numbers adds its own rounding.
    """
    inner = case.inner()
    output, weights = expected(inner)
    context = case.x if case.context is None else case.context
    spread = max(np.abs(case.w_q).sum(1).max(), np.abs(case.w_k).sum(1).max())
    rounding = 1 + np.abs(context).max() * spread / max(np.abs(inner.query).max(), 1e-9)
    lost = merge(allowed(inner, weights, 1.0)) * rounding
    lost += 4 * np.abs(context).max() * np.abs(case.w_v).sum(1).max() * context.shape[-1] ** 0.5
    if case.w_out is not None:
        lost = lost @ np.abs(case.w_out).T
    return case.out(merge(output)), lost


def attend_layer(
    case: LayerCase,
    fault: "Fault | LayerFault | None",
    base: Chain = RIGHT,
    mistake: "LayerFault | None" = None,
) -> Array:
    """The output of the layer with one mistake in it, on top of those in ``base`` and ``mistake``."""
    if isinstance(fault, LayerFault):
        return fault.make(case, base)
    chain = base if fault is None else base.exchange(fault.changes)
    return case.out(merge(attend(case.inner(), chain))) if mistake is None else mistake.make(case, chain)


@dataclass(frozen=True)
class LayerFault:
    """A mistake around the attention; its fields are those of a `Fault`."""

    key: str
    what: str
    repair: str
    make: LayerOutput = field(repr=False)
    seen: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset({"layer"})


def random_layer(
    random: np.random.Generator, *, batch: int = 2, n: int = 5, heads: int = 3, width: int = 4
) -> LayerCase:
    """A self-attention layer with biases, d_model = H d."""
    model = heads * width

    def weight() -> Array:
        return random.standard_normal((model, model)) * 1.3 / model**0.5

    def bias() -> Array:
        return random.standard_normal(model) * 0.7

    return LayerCase(
        random.standard_normal((batch, n, model)) * 1.3,
        weight(),
        weight(),
        weight(),
        bias(),
        bias(),
        bias(),
        weight(),
        bias(),
        heads,
        heads,
    )
