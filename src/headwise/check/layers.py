"""The layer around attention: projections, split into heads, merge, output projection; and its mistakes.

    z_q, z_k, z_v = x w_q^T + b_q, context w_k^T + b_k, context w_v^T + b_v
    output = merge(attention(split(z_q), split(z_k), split(z_v))) w_o^T + b_o

split: (B, n, H d) -> (B, H, n, d), head h owns columns h d ... (h + 1) d; merge goes back.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headwise.check import cases
from headwise.check.cases import Case
from headwise.check.steps import RIGHT, Array, Fault, Steps, attend

LayerFault = Callable[["LayerCase", Steps], Array]


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

    x: Any
    w_q: Any
    w_k: Any
    w_v: Any
    b_q: Any
    b_k: Any
    b_v: Any
    w_out: Any
    b_out: Any
    num_heads: int
    num_kv_heads: int
    context: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def w_in(self) -> Any:
        """The three input weights in one, (3 d_model, d_model), queries first."""
        return np.concatenate([self.w_q, self.w_k, self.w_v])

    @property
    def b_in(self) -> Any:
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

    def inner(self, cut: Any = None, changes: Mapping[str, Any] | None = None) -> Case:
        """The attention inside, its inputs split by ``cut`` (None: the right way)."""
        case = self if changes is None else replace(self, **changes)
        cut = split if cut is None else cut
        q, k, v = case.projected()
        kv = case.num_kv_heads
        heads = case.num_heads
        options = dict(self.options)
        return Case(cut(q, heads), cut(k, kv), cut(v, kv), num_heads=heads, **options)

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
    output, weights = cases.expected(inner)
    context = case.x if case.context is None else case.context
    spread = max(np.abs(case.w_q).sum(1).max(), np.abs(case.w_k).sum(1).max())
    rounding = 1 + np.abs(context).max() * spread / max(np.abs(inner.query).max(), 1e-9)
    lost = merge(cases.allowed(inner, weights, 1.0)) * rounding
    lost += 4 * np.abs(context).max() * np.abs(case.w_v).sum(1).max() * context.shape[-1] ** 0.5
    if case.w_out is not None:
        lost = lost @ np.abs(case.w_out).T
    return case.out(merge(output)), lost


def build(
    case: LayerCase,
    fault: "Fault | LayerMistake | None",
    base: Steps = RIGHT,
    mistake: "LayerMistake | None" = None,
) -> Array:
    """The output of the layer with one mistake in it, on top of those in ``base`` and ``mistake``."""
    if isinstance(fault, LayerMistake):
        return fault.make(case, base)
    steps = base if fault is None else base.exchange(fault.changes)
    return case.out(merge(attend(case.inner(), steps))) if mistake is None else mistake.make(case, steps)


@dataclass(frozen=True)
class LayerMistake:
    """A mistake around the attention; its fields are those of a `Fault`."""

    key: str
    what: str
    repair: str
    make: LayerFault = field(repr=False)
    seen: tuple[str, ...] = ()
    needs: frozenset[str] = frozenset({"layer"})


def _cut_rows(x: Array, heads: int) -> Array:
    return x.reshape(x.shape[0], heads, x.shape[1], -1)


def _cut_interleaved(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], -1, heads).transpose(0, 3, 1, 2)


def _merge_rows(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(x.shape[0], x.shape[2], -1)


def _merge_interleaved(x: Array) -> Array:
    return x.transpose(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)


def _with(cut: Any = split, back: Any = merge, out: bool = True, **changes: Any) -> LayerFault:
    """Other ways to split and merge, and changed weights: each value is a rule on the case."""

    def make(case: LayerCase, base: Steps) -> Array:
        changed = replace(case, **{name: rule(case) for name, rule in changes.items()})
        merged = back(attend(changed.inner(cut), base))
        return changed.out(merged) if out else merged

    return make


def _pooled(how: Any) -> Any:
    return lambda x: np.tile(how(x, 1), (1, 1, x.shape[1]))


def _one_head(keep_scale: bool) -> LayerFault:
    def make(case: LayerCase, base: Steps) -> Array:
        scale = case.width**-0.5 if keep_scale else None
        single = replace(case, num_heads=1, num_kv_heads=1, options={**case.options, "scale": scale})
        return single.out(merge(attend(single.inner(), base)))

    return make


def _order(*order: str) -> LayerFault:
    """The fused input weight is read in another order."""
    names = {
        f"{part}_{to}": f"{part}_{source}" for part in "wb" for to, source in zip("qkv", order, strict=True)
    }
    rules: dict[str, Any] = {to: operator.attrgetter(source) for to, source in names.items()}
    return _with(**rules)


def _interleaved_weights(shape: str) -> LayerFault:
    """One fused projection (3 d_model) whose rows are read as (H, 3, d) or (H, d, 3)."""

    def make(case: LayerCase, base: Steps) -> Array:
        z = case.x @ case.w_in.T
        if case.b_q is not None:
            z = z + case.b_in
        heads, width = case.num_heads, case.width
        if shape == "H 3 d":
            parts = np.moveaxis(z.reshape(*z.shape[:2], heads, 3, width), 3, 0)
        else:
            parts = np.moveaxis(z.reshape(*z.shape[:2], heads, width, 3), 4, 0)
        q, k, v = (np.moveaxis(part, 2, 1) for part in parts)
        return case.out(merge(attend(Case(q, k, v, num_heads=heads, **case.options), base)))

    return make


def _shared_over_heads(case: LayerCase, base: Steps) -> Array:
    """The input is split first; every head goes through the first head's block of the weights."""
    width, x = case.width, split(case.x, case.num_heads)
    parts = [
        x @ w[:width, :width].T + (0 if b is None else b[:width])
        for w, b in ((case.w_q, case.b_q), (case.w_k, case.b_k), (case.w_v, case.b_v))
    ]
    inner = Case(parts[0], parts[1], parts[2], num_heads=case.num_heads, **case.options)
    return case.out(merge(attend(inner, base)))


def _no_projection(case: LayerCase, base: Steps) -> Array:
    x = split(case.x, case.num_heads)
    return merge(attend(Case(x, x, x, num_heads=case.num_heads, **case.options), base))


def _zero(name: str) -> LayerFault:
    rules: dict[str, Any] = {name: lambda case: None}
    return _with(**rules)


def _transposed_inputs() -> LayerFault:
    return _with(w_q=lambda c: c.w_q.T, w_k=lambda c: c.w_k.T, w_v=lambda c: c.w_v.T)


def _layer(key: str, what: str, repair: str, make: LayerFault, seen: str = "") -> LayerMistake:
    return LayerMistake(key, what, repair, make, tuple(seen.split()))


_SPLIT = "reshape to (B, n, H, d), then move the heads in front: (B, H, n, d)"
_MERGE = "move the heads behind the positions, (B, n, H, d), then reshape to (B, n, H d)"


def _wide_scale(case: LayerCase, base: Steps) -> Array:
    return build(replace(case, options={**case.options, "scale": case.x.shape[-1] ** -0.5}), None, base)


MISTAKES: tuple[LayerMistake, ...] = (
    _layer(
        "scale 1/root d_model",
        "the scores are divided by the root of d_model",
        "divide them by the root of the head's own width d_k",
        _wide_scale,
        "lucidrains/vit-pytorch#65 karpathy/ng-video-lecture#6",
    ),
    _layer(
        "split without transpose",
        "heads are split by a reshape to (B, H, n, d): it cuts the tokens, not the features",
        _SPLIT,
        _with(_cut_rows),
        "reczoo/FuxiCTR#30 hyunwoongko/transformer#15 bentrevett/pytorch-seq2seq#148",
    ),
    _layer(
        "split and merge without transpose",
        "heads are split and merged by reshapes alone",
        _SPLIT,
        _with(_cut_rows, _merge_rows),
    ),
    _layer(
        "merge without transpose",
        "heads are merged by a reshape alone: tokens and heads are mixed",
        _MERGE,
        _with(back=_merge_rows),
        "jsbaan/transformer-from-scratch#6",
    ),
    _layer(
        "split as (d H)",
        "features are split as (d, H): head h gets every H-th column",
        _SPLIT,
        _with(_cut_interleaved),
    ),
    _layer(
        "merge as (d H)",
        "heads are merged as (d, H): neighbouring features are of different heads",
        _MERGE,
        _with(back=_merge_interleaved),
    ),
    _layer(
        "split and merge as (d H)",
        "heads own every H-th column, in and out: right only for weights made for it",
        _SPLIT,
        _with(_cut_interleaved, _merge_interleaved),
    ),
    _layer(
        "heads summed",
        "the heads are added, not concatenated",
        "concatenate the heads, then W_O",
        _with(back=_pooled(np.sum)),
    ),
    _layer(
        "heads averaged",
        "the heads are averaged, not concatenated",
        "concatenate the heads, then W_O",
        _with(back=_pooled(np.mean)),
    ),
    _layer(
        "one head",
        "there is one head of full width: the number of heads plays no part",
        _SPLIT,
        _one_head(False),
    ),
    _layer(
        "one head, scaled as many",
        "there is one head of full width, scaled as if it were one of many",
        _SPLIT,
        _one_head(True),
    ),
    _layer(
        "no output projection",
        "W_O is missing: nothing mixes the heads",
        "multiply the concatenation by W_O",
        _with(out=False),
    ),
    _layer("output bias missing", "the bias of W_O is missing", "add it", _zero("b_out")),
    _layer(
        "output weight transposed",
        "W_O is transposed",
        "x @ W.T for weights kept as (out, in)",
        _with(w_out=lambda c: c.w_out.T),
    ),
    _layer(
        "input weights transposed",
        "W_Q, W_K and W_V are transposed",
        "x @ W.T for weights kept as (out, in)",
        _transposed_inputs(),
    ),
    _layer("order k q v", "query and key weights have changed places", "q, k, v", _order("k", "q", "v")),
    _layer("order v k q", "the fused weight is read as v, k, q", "q, k, v", _order("v", "k", "q")),
    _layer("order q v k", "the fused weight is read as q, v, k", "q, k, v", _order("q", "v", "k")),
    _layer("order k v q", "the fused weight is read as k, v, q", "q, k, v", _order("k", "v", "q")),
    _layer("order v q k", "the fused weight is read as v, q, k", "q, k, v", _order("v", "q", "k")),
    _layer(
        "fused rows as (H 3 d)",
        "the fused weight's rows are read head by head: q0 k0 v0 q1 k1 v1",
        "all of q, then all of k, then all of v",
        _interleaved_weights("H 3 d"),
    ),
    _layer(
        "fused rows as (H d 3)",
        "the fused weight's rows are read in threes: q, k, v of each feature",
        "all of q, then all of k, then all of v",
        _interleaved_weights("H d 3"),
    ),
    _layer(
        "input biases missing",
        "the biases of W_Q, W_K and W_V are missing",
        "add them",
        _with(b_q=lambda c: None, b_k=lambda c: None, b_v=lambda c: None),
    ),
    _layer("query bias missing", "the bias of W_Q is missing", "add it", _zero("b_q")),
    _layer("key bias missing", "the bias of W_K is missing", "it changes nothing", _zero("b_k")),
    _layer("value bias missing", "the bias of W_V is missing", "add it", _zero("b_v")),
    _layer(
        "one projection for q, k and v",
        "queries, keys and values all go through W_Q",
        "each has its own projection",
        _order("q", "q", "q"),
    ),
    _layer(
        "keys as values",
        "the key projection makes the values too",
        "values go through W_V",
        _order("q", "k", "k"),
    ),
    _layer(
        "queries as keys",
        "the query projection makes the keys too",
        "keys go through W_K",
        _order("q", "q", "v"),
    ),
    _layer(
        "one projection for all heads",
        "all heads share the first head's projections: the input is split before it is projected",
        "project first, then split",
        _shared_over_heads,
        "MarcoMeter/episodic-transformer-memory-ppo#22",
    ),
    _layer("no projections", "nothing is projected", "project with W_Q, W_K, W_V and W_O", _no_projection),
    _layer(
        "input added",
        "the input is added to the output",
        "the residual connection stands outside",
        lambda case, base: case.x + build(case, None, base),
    ),
)


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
