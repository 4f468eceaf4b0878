"""Mistakes in the scores, the softmax and the blend: they show without any mask."""

import math
from typing import Any

import numpy as np

from headwise.check.cases.chain import Fault, Step, fault, softmax
from headwise.plain.types import Array

_ROOT = "divide the scores by the root of the head's own width d_k"
_ROWS = "each query's weights sum to 1 over the keys, the last axis"


def _over(axis: int | tuple[int, ...]) -> Step:
    return lambda s: softmax(s, axis)


def _sum_over(axis: int | tuple[int, ...]) -> Step:
    """Each row's own maximum is subtracted, but the sum runs over another axis."""

    def rule(s: Array) -> Array:
        e = np.exp(s - s.max(-1, keepdims=True))
        return np.asarray(e / e.sum(axis, keepdims=True))

    return rule


def _whole_matrix(s: Array) -> Array:
    e = np.exp(s - s.max((-1, -2), keepdims=True))
    return np.asarray(e / e.sum((-1, -2), keepdims=True))


def _stray_maximum(s: Array) -> Array:
    return np.asarray(np.exp(s - s.max((-1, -2), keepdims=True)) / np.exp(s).sum(-1, keepdims=True))


def _no_exponential(s: Array) -> Array:
    finite = np.where(np.isfinite(s), s, 0)
    return np.asarray(finite / np.abs(finite).sum(-1, keepdims=True))


def _logarithm(s: Array) -> Array:
    return np.asarray(np.log(softmax(s)))


def _one_more(s: Array) -> Array:
    e = np.exp(s)
    return np.asarray(e / (1 + e.sum(-1, keepdims=True)))


def _hard(s: Array) -> Array:
    best = s == s.max(-1, keepdims=True)
    return np.asarray(best / best.sum(-1, keepdims=True))


def _uniform(s: Array) -> Array:
    seen = np.isfinite(s)
    return np.asarray(seen / seen.sum(-1, keepdims=True))


def _reshaped(q: Array, k: Array) -> Array:
    return np.asarray(q @ np.ascontiguousarray(k).reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]))


def _cosine(q: Array, k: Array) -> Array:
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    return np.asarray(q @ k.swapaxes(-1, -2))


def _self_product(which: int) -> Step:
    def product(q: Array, k: Array) -> Array:
        x = (q, k)[which]
        return np.asarray(x @ x.swapaxes(-1, -2))

    return product


def _all_heads(how: Step) -> Step:
    return lambda s, case: np.broadcast_to(how(s, 1, keepdims=True), s.shape)


def _axes(a: int, b: int) -> dict[str, Any]:
    """Attention along another axis: the arrays are read with two axes changed over."""
    return {
        "picked": lambda q, k, v, case: tuple(x.swapaxes(a, b) for x in (q, k, v)),
        "joined": lambda o, q, k, v, case: o.swapaxes(a, b),
    }


def _of(take: Step) -> Step:
    return lambda o, q, k, v, case: np.broadcast_to(take(o, q, k, v, case), o.shape)


_SPLIT = "reshape to (B, n, H, d), then move the heads in front: (B, H, n, d)"
_MERGE = "move the heads behind the positions, (B, n, H, d), then reshape to (B, n, H d)"


def _rows(x: Array) -> Array:
    """(B, n, H d) reshaped to (B, H, n, d) at once, where ``x`` is what a right split gives."""
    return x.swapaxes(1, 2).reshape(x.shape)


def _rows_back(o: Array) -> Array:
    """(B, H, n, d) reshaped to (B, n, H d) at once, and split again in the right way."""
    batch, heads, n, d = o.shape
    return np.ascontiguousarray(o).reshape(batch, n, heads, d).swapaxes(1, 2)


def _apart(x: Array) -> Array:
    """(B, n, H d) split as (B, n, d, H)."""
    batch, heads, n, d = x.shape
    return x.swapaxes(1, 2).reshape(batch, n, d, heads).transpose(0, 3, 1, 2)


def _apart_back(o: Array) -> Array:
    """(B, H, n, d) merged as (B, n, d H)."""
    batch, heads, n, d = o.shape
    return o.transpose(0, 2, 3, 1).reshape(batch, n, heads, d).swapaxes(1, 2)


def _all_cut(cut: Step) -> Step:
    return lambda q, k, v, case: (cut(q), cut(k), cut(v))


FAULTS: tuple[Fault, ...] = (
    fault("no scale", "the scores are not scaled", _ROOT, scale=lambda case: 1.0),
    fault("scale 1/d_k", "the scores are divided by d_k, or twice by its root", _ROOT,
          scale=lambda case: case.factor / math.sqrt(case.query.shape[-1]),
          seen="charliezchen/scaling-matrix-preconditioning#2"),
    fault("scale times root d_k", "the scores are multiplied by the root of d_k", _ROOT,
          scale=lambda case: math.sqrt(case.query.shape[-1]), seen="esceptico/perceiver-io#9"),
    fault("scale times d_k", "the scores are multiplied by d_k", _ROOT,
          scale=lambda case: float(case.query.shape[-1])),
    fault("scale 1/root d_model", "the scores are divided by the root of d_model = H d_k", _ROOT,
          scale=lambda case: (case.query.shape[1] * case.query.shape[-1]) ** -0.5,
          seen="lucidrains/vit-pytorch#65 karpathy/ng-video-lecture#6 juho-lee/set_transformer#18"),
    fault("scale 1/root H", "the scores are divided by the root of the number of heads", _ROOT,
          scale=lambda case: case.query.shape[1] ** -0.5, seen="tenstorrent/tt-metal#56789"),
    fault("scale 1/root n_k", "the scores are divided by the root of the number of keys", _ROOT,
          scale=lambda case: case.n_k ** -0.5),
    fault("scale on one side", "only one of query and key is scaled: the factor is d_k^(-1/4)", _ROOT,
          scale=lambda case: math.sqrt(case.factor)),
    fault("scale after softmax", "the weights are scaled instead of the scores", _ROOT,
          scale=lambda case: 1.0, weighed=lambda w, visible, case: w * case.factor),
    fault("exp2 without log2(e)", "2^s is taken where e^s is meant: the scores are ln 2 too small",
          "multiply the scores by log2(e) when exp2 is used",
          scale=lambda case: case.factor * math.log(2)),
    fault("exp2 with log2(e) twice", "the scores are multiplied by log2(e) twice before exp2",
          "multiply by log2(e) once", scale=lambda case: case.factor / math.log(2)),
    fault("scale argument ignored", "the scale that was passed is ignored: 1/root d_k is used",
          "use the scale that the caller gives", needs="scale",
          scale=lambda case: case.query.shape[-1] ** -0.5),
    fault("scale argument on top", "the scale that was passed is applied on top of 1/root d_k",
          "a given scale replaces 1/root d_k", needs="scale",
          scale=lambda case: case.factor * case.query.shape[-1] ** -0.5),
    fault("scale argument inverted", "the scores are divided by the scale that was passed",
          "multiply by the scale", needs="scale", scale=lambda case: 1 / case.factor,
          seen="esceptico/perceiver-io#9"),
    fault("softmax over queries", "the weights are normalised over the queries", _ROWS, softmax=_over(-2),
          seen="nerminnuraydogan/vision-transformer#1 "
               "labmlai/annotated_deep_learning_paper_implementations#146 FudanNLP/fastNLP#254"),
    fault("softmax over heads", "the weights are normalised over the heads", _ROWS, softmax=_over(1)),
    fault("softmax over batch", "the weights are normalised over the batch", _ROWS, softmax=_over(0),
          seen="PetrochukM/PyTorch-NLP#2"),
    fault("softmax over the matrix", "the weights of a head's whole matrix are made to sum to 1", _ROWS,
          softmax=_whole_matrix),
    fault("sum over queries", "the exponentials are divided by their sum over the queries", _ROWS,
          softmax=_sum_over(-2)),
    fault("sum over heads", "the exponentials are divided by their sum over the heads", _ROWS,
          softmax=_sum_over(1)),
    fault("sum over batch", "the exponentials are divided by their sum over the batch", _ROWS,
          softmax=_sum_over(0)),
    fault("sum over the matrix", "the exponentials are divided by the sum of a head's whole matrix", _ROWS,
          softmax=_sum_over((-1, -2))),
    fault("softmax missing", "the scores themselves are the weights", "take the softmax of each row",
          softmax=lambda s: np.where(np.isfinite(s), s, 0)),
    fault("not normalised", "the exponentials are not divided by their sum", _ROWS, softmax=np.exp),
    fault("no exponential", "the scores are divided by the sum of their sizes, without exponential",
          "exponentiate before normalising", softmax=_no_exponential),
    fault("log-softmax", "the logarithms of the weights blend the values", "softmax, not log-softmax",
          softmax=_logarithm),
    fault("sigmoid", "a sigmoid stands in the place of the softmax", _ROWS,
          softmax=lambda s: 1 / (1 + np.exp(-s))),
    fault("softmax plus one", "the sum of exponentials has 1 added: weights sum to less than 1", _ROWS,
          softmax=_one_more),
    fault("softmax twice", "the softmax is taken twice", "once is enough",
          softmax=lambda s: softmax(np.where(np.isfinite(s), softmax(s), -np.inf))),
    fault("hard maximum", "only the key of the largest score is taken", "softmax, not argmax", softmax=_hard),
    fault("uniform", "every key has the same weight: the scores play no part", "softmax of the scores",
          softmax=_uniform),
    fault("stray maximum", "the maximum subtracted above is not the one below: weights do not sum to 1",
          "subtract each row's own maximum in both places", softmax=_stray_maximum),
    fault("keys reshaped", "the keys are reshaped to (d_k, n_k) instead of transposed",
          "swap the last two axes of the keys", product=_reshaped),
    fault("scores transposed", "query and key are swapped: row i holds the scores of key i",
          "query @ key^T, queries in the rows", product=lambda q, k: k @ q.swapaxes(-1, -2)),
    fault("weights transposed", "the weights are transposed before they blend the values",
          "row i of the weights belongs to query i", blended=lambda w, v: w.swapaxes(-1, -2) @ v),
    fault("query with query", "the queries are compared with themselves", "query @ key^T",
          product=_self_product(0)),
    fault("key with key", "the keys are compared with themselves", "query @ key^T", product=_self_product(1)),
    fault("key and value swapped", "key and value have changed places", "key for the scores, value to blend",
          picked=lambda q, k, v, case: (q, v, k)),
    fault("keys as values", "the weights blend the keys", "the weights blend the values",
          picked=lambda q, k, v, case: (q, k, k)),
    fault("values as keys", "the queries are compared with the values", "compare them with the keys",
          picked=lambda q, k, v, case: (q, v, v)),
    fault("cosine similarity", "queries and keys are brought to length 1 first, and nothing is scaled", _ROOT,
          product=_cosine, scale=lambda case: 1.0),
    fault("softmin", "the sign of the scores is turned: unlike keys weigh most", "softmax of +scores",
          scale=lambda case: -case.factor),
    fault("query added", "the query is added to the output", "the residual connection stands outside",
          joined=lambda o, q, k, v, case: o + q),
    fault("value added", "the value is added to the output", "the residual connection stands outside",
          joined=lambda o, q, k, v, case: o + v),
    fault("scores averaged over heads", "all heads share the mean of their scores",
          "each head keeps its own scores", capped=_all_heads(np.mean)),
    fault("scores summed over heads", "all heads share the sum of their scores",
          "each head keeps its own scores", capped=_all_heads(np.sum)),
    fault("weights averaged over heads", "all heads share the mean of their weights",
          "each head keeps its own weights",
          weighed=lambda w, visible, case: np.broadcast_to(w.mean(1, keepdims=True), w.shape)),
    fault("attends across heads", "heads attend to each other: axes 1 and 2 are read in the wrong order",
          "move the heads in front of the positions first", **_axes(1, 2)),
    fault("attends across the batch", "batch entries attend to each other: axis 0 is taken for the positions",
          "batch first, positions third", **_axes(0, 2)),
    fault("split without transpose", "heads are split by a reshape to (B, H, n, d): tokens and heads are "
          "mixed", _SPLIT, picked=_all_cut(_rows)),
    fault("queries split without transpose", "queries are split by a reshape to (B, H, n, d)", _SPLIT,
          picked=lambda q, k, v, case: (_rows(q), k, v)),
    fault("merge without transpose", "heads are merged by a reshape alone: tokens and heads are mixed",
          _MERGE, joined=_of(lambda o, q, k, v, case: _rows_back(o))),
    fault("split and merge without transpose", "heads are split and merged by reshapes alone: each head "
          "holds a run of tokens", f"{_SPLIT}; and back before the merge", picked=_all_cut(_rows),
          joined=_of(lambda o, q, k, v, case: _rows_back(o))),
    fault("split as (d H)", "heads are split as (d H): the features of a head lie H apart", _SPLIT,
          picked=_all_cut(_apart)),
    fault("merge as (d H)", "heads are merged as (d H): the features of a head lie H apart", _MERGE,
          joined=_of(lambda o, q, k, v, case: _apart_back(o))),
    fault("last query for all", "every row holds the output of the last query", "one row per query",
          joined=_of(lambda o, q, k, v, case: o[:, :, -1:])),
    fault("heads reversed", "the heads come out in reverse order", "head h of the output belongs to query h",
          joined=_of(lambda o, q, k, v, case: o[:, ::-1])),
    fault("first head for all", "every head holds the output of head 0", "one output per head",
          joined=_of(lambda o, q, k, v, case: o[:, :1])),
    fault("first entry for all", "every batch entry holds the output of entry 0", "one output per entry",
          joined=_of(lambda o, q, k, v, case: o[:1])),
    fault("heads summed", "every head holds the sum of all heads", "heads are concatenated, not added",
          joined=_of(lambda o, q, k, v, case: o.sum(1, keepdims=True))),
    fault("heads averaged", "every head holds the mean of all heads", "heads are concatenated",
          joined=_of(lambda o, q, k, v, case: o.mean(1, keepdims=True))),
    fault("output twice", "the output is twice as large: the factor of dropout at 0.5, without dropping",
          "scale by 1/(1-p) only what dropout has thinned", joined=lambda o, q, k, v, case: 2 * o),
    fault("output over n_k", "the output is divided by the number of keys", "the weights sum to 1 already",
          joined=lambda o, q, k, v, case: o / case.n_k),
)  # fmt: skip
