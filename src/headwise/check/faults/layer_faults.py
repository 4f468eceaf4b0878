"""Mistakes around the attention: how heads are split and merged, which weight makes what."""

import operator
from dataclasses import replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import Chain, Step, attend
from headwise.check.cases.layer_case import LayerCase, LayerFault, LayerOutput, attend_layer, merge, split
from headwise.plain.types import Array


def _cut_rows(x: Array, heads: int) -> Array:
    return x.reshape(x.shape[0], heads, x.shape[1], -1)


def _cut_interleaved(x: Array, heads: int) -> Array:
    return x.reshape(*x.shape[:2], -1, heads).transpose(0, 3, 1, 2)


def _merge_rows(x: Array) -> Array:
    return np.ascontiguousarray(x).reshape(x.shape[0], x.shape[2], -1)


def _merge_interleaved(x: Array) -> Array:
    return x.transpose(0, 2, 3, 1).reshape(x.shape[0], x.shape[2], -1)


def _with(cut: Step = split, back: Step = merge, out: bool = True, **changes: Step) -> LayerOutput:
    """Other ways to split and merge, and changed weights: each value is a rule on the case."""

    def make(case: LayerCase, base: Chain) -> Array:
        changed = replace(case, **{name: rule(case) for name, rule in changes.items()})
        merged = back(attend(changed.inner(cut), base))
        return changed.out(merged) if out else merged

    return make


def _pooled(how: Step) -> Step:
    return lambda x: np.tile(how(x, 1), (1, 1, x.shape[1]))


def _one_head(keep_scale: bool) -> LayerOutput:
    def make(case: LayerCase, base: Chain) -> Array:
        scale = case.width**-0.5 if keep_scale else None
        single = replace(case, num_heads=1, num_kv_heads=1, options={**case.options, "scale": scale})
        return single.out(merge(attend(single.inner(), base)))

    return make


def _order(*order: str) -> LayerOutput:
    """The fused input weight is read in another order."""
    names = {
        f"{part}_{to}": f"{part}_{source}" for part in "wb" for to, source in zip("qkv", order, strict=True)
    }
    rules: dict[str, Any] = {to: operator.attrgetter(source) for to, source in names.items()}
    return _with(**rules)


def _interleaved_weights(shape: str) -> LayerOutput:
    """One fused projection (3 d_model) whose rows are read as (H, 3, d) or (H, d, 3)."""

    def make(case: LayerCase, base: Chain) -> Array:
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


def _shared_over_heads(case: LayerCase, base: Chain) -> Array:
    """The input is split first; every head goes through the first head's block of the weights."""
    width, x = case.width, split(case.x, case.num_heads)
    parts = [
        x @ w[:width, :width].T + (0 if b is None else b[:width])
        for w, b in ((case.w_q, case.b_q), (case.w_k, case.b_k), (case.w_v, case.b_v))
    ]
    inner = Case(parts[0], parts[1], parts[2], num_heads=case.num_heads, **case.options)
    return case.out(merge(attend(inner, base)))


def _no_projection(case: LayerCase, base: Chain) -> Array:
    x = split(case.x, case.num_heads)
    return merge(attend(Case(x, x, x, num_heads=case.num_heads, **case.options), base))


def _zero(name: str) -> LayerOutput:
    rules: dict[str, Any] = {name: lambda case: None}
    return _with(**rules)


def _transposed_inputs() -> LayerOutput:
    return _with(w_q=lambda c: c.w_q.T, w_k=lambda c: c.w_k.T, w_v=lambda c: c.w_v.T)


def _layer(key: str, what: str, repair: str, make: LayerOutput, seen: str = "") -> LayerFault:
    return LayerFault(key, what, repair, make, tuple(seen.split()))


_SPLIT = "reshape to (B, n, H, d), then move the heads in front: (B, H, n, d)"
_MERGE = "move the heads behind the positions, (B, n, H, d), then reshape to (B, n, H d)"


def _wide_scale(case: LayerCase, base: Chain) -> Array:
    return attend_layer(
        replace(case, options={**case.options, "scale": case.x.shape[-1] ** -0.5}), None, base
    )


def _one_split(which: int) -> LayerOutput:
    """Only queries, keys or values are split by a reshape."""

    def make(case: LayerCase, base: Chain) -> Array:
        heads = (case.num_heads, case.num_kv_heads, case.num_kv_heads)
        cuts = [_cut_rows if at == which else split for at in range(3)]
        q, k, v = (cut(z, h) for cut, z, h in zip(cuts, case.projected(), heads, strict=True))
        return case.out(merge(attend(Case(q, k, v, num_heads=case.num_heads, **case.options), base)))

    return make


def _summed_into_one(case: LayerCase, base: Chain) -> Array:
    heads = attend(case.inner(), base)
    summed = heads.sum(1) @ case.w_out[:, : heads.shape[-1]].T
    return np.asarray(summed if case.b_out is None else summed + case.b_out)


LAYER_FAULTS: tuple[LayerFault, ...] = (
    _layer("scale 1/root d_model", "the scores are divided by the root of d_model",
           "divide them by the root of the head's own width d_k", _wide_scale,
           "lucidrains/vit-pytorch#65 karpathy/ng-video-lecture#6"),
    _layer("split without transpose",
           "heads are split by a reshape to (B, H, n, d): it cuts the tokens, not the features", _SPLIT,
           _with(_cut_rows), "reczoo/FuxiCTR#30 hyunwoongko/transformer#15 bentrevett/pytorch-seq2seq#148"),
    _layer("queries split without transpose", "queries are split by a reshape to (B, H, n, d)", _SPLIT,
           _one_split(0)),
    _layer("keys split without transpose", "keys are split by a reshape to (B, H, n, d)", _SPLIT,
           _one_split(1)),
    _layer("values split without transpose", "values are split by a reshape to (B, H, n, d)", _SPLIT,
           _one_split(2)),
    _layer("heads summed into one", "the heads are added and share the first rows of W_O",
           "concatenate the heads, then W_O", _summed_into_one),
    _layer("split and merge without transpose", "heads are split and merged by reshapes alone", _SPLIT,
           _with(_cut_rows, _merge_rows)),
    _layer("merge without transpose", "heads are merged by a reshape alone: tokens and heads are mixed",
           _MERGE, _with(back=_merge_rows), "jsbaan/transformer-from-scratch#6"),
    _layer("split as (d H)", "features are split as (d, H): head h gets every H-th column", _SPLIT,
           _with(_cut_interleaved)),
    _layer("merge as (d H)", "heads are merged as (d, H): neighbouring features are of different heads",
           _MERGE, _with(back=_merge_interleaved)),
    _layer("split and merge as (d H)",
           "heads own every H-th column, in and out: right only for weights made for it", _SPLIT,
           _with(_cut_interleaved, _merge_interleaved)),
    _layer("heads summed", "the heads are added, not concatenated", "concatenate the heads, then W_O",
           _with(back=_pooled(np.sum))),
    _layer("heads averaged", "the heads are averaged, not concatenated", "concatenate the heads, then W_O",
           _with(back=_pooled(np.mean))),
    _layer("one head", "there is one head of full width: the number of heads plays no part", _SPLIT,
           _one_head(False)),
    _layer("one head, scaled as many", "there is one head of full width, scaled as if it were one of many",
           _SPLIT, _one_head(True)),
    _layer("no output projection", "W_O is missing: nothing mixes the heads",
           "multiply the concatenation by W_O", _with(out=False)),
    _layer("output bias missing", "the bias of W_O is missing", "add it", _zero("b_out")),
    _layer("output weight transposed", "W_O is transposed", "x @ W.T for weights kept as (out, in)",
           _with(w_out=lambda c: c.w_out.T)),
    _layer("input weights transposed", "W_Q, W_K and W_V are transposed",
           "x @ W.T for weights kept as (out, in)", _transposed_inputs()),
    _layer("order k q v", "query and key weights have changed places", "q, k, v", _order("k", "q", "v")),
    _layer("order v k q", "the fused weight is read as v, k, q", "q, k, v", _order("v", "k", "q")),
    _layer("order q v k", "the fused weight is read as q, v, k", "q, k, v", _order("q", "v", "k")),
    _layer("order k v q", "the fused weight is read as k, v, q", "q, k, v", _order("k", "v", "q")),
    _layer("order v q k", "the fused weight is read as v, q, k", "q, k, v", _order("v", "q", "k")),
    _layer("fused rows as (H 3 d)", "the fused weight's rows are read head by head: q0 k0 v0 q1 k1 v1",
           "all of q, then all of k, then all of v", _interleaved_weights("H 3 d")),
    _layer("fused rows as (H d 3)", "the fused weight's rows are read in threes: q, k, v of each feature",
           "all of q, then all of k, then all of v", _interleaved_weights("H d 3")),
    _layer("input biases missing", "the biases of W_Q, W_K and W_V are missing", "add them",
           _with(b_q=lambda c: None, b_k=lambda c: None, b_v=lambda c: None)),
    _layer("query bias missing", "the bias of W_Q is missing", "add it", _zero("b_q")),
    _layer("key bias missing", "the bias of W_K is missing", "it changes nothing", _zero("b_k")),
    _layer("value bias missing", "the bias of W_V is missing", "add it", _zero("b_v")),
    _layer("one projection for q, k and v", "queries, keys and values all go through W_Q",
           "each has its own projection", _order("q", "q", "q")),
    _layer("keys as values", "the key projection makes the values too", "values go through W_V",
           _order("q", "k", "k")),
    _layer("queries as keys", "the query projection makes the keys too", "keys go through W_K",
           _order("q", "q", "v")),
    _layer("one projection for all heads",
           "all heads share the first head's projections: the input is split before it is projected",
           "project first, then split", _shared_over_heads, "MarcoMeter/episodic-transformer-memory-ppo#22"),
    _layer("no projections", "nothing is projected", "project with W_Q, W_K, W_V and W_O", _no_projection),
    _layer("input added", "the input is added to the output", "the residual connection stands outside",
           lambda case, base: case.x + attend_layer(case, None, base)),
)  # fmt: skip
