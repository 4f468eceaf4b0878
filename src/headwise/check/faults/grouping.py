"""Mistakes with grouped heads: which key/value head a query head meets."""

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import Fault, Step, fault
from headwise.plain.types import Array

_MAP = "query head h meets key/value head h // (H / H_kv): repeat each one in a row"


def _heads(of_key: Step, of_value: Step | None = None) -> Step:
    """Key/value heads by a rule on (query head, H_kv, group)."""

    def step(k: Array, v: Array, case: Case) -> tuple[Array, Array]:
        h, kv = np.arange(case.query.shape[1]), case.key.shape[1]
        return k[:, of_key(h, kv, case.group)], v[:, (of_value or of_key)(h, kv, case.group)]

    return step


def _right(h: Array, kv: int, group: int) -> Array:
    return h // group


def _tile(h: Array, kv: int, group: int) -> Array:
    return h % kv


def _clipped(h: Array, kv: int, group: int) -> Array:
    return np.minimum(h // kv, kv - 1)


def _averaged(k: Array, v: Array, case: Case) -> tuple[Array, Array]:
    heads = case.query.shape[1]
    return k.mean(1, keepdims=True).repeat(heads, 1), v.mean(1, keepdims=True).repeat(heads, 1)


def _grouped(x: Array, case: Case) -> Array:
    batch, heads, n, d = x.shape
    return x.reshape(batch, heads // case.group, case.group, n, d)


def _queries_averaged(q: Array, k: Array, v: Array, case: Case) -> tuple[Array, Array, Array]:
    return _grouped(q, case).mean(2).repeat(case.group, 1), k, v


FAULTS: tuple[Fault, ...] = (
    fault("kv heads tiled", "key/value heads are tiled: 0, 1, 0, 1, ... instead of 0, 0, 1, 1, ...", _MAP,
          needs="gqa", repeated=_heads(_tile), seen="onnx/onnx#7274 apple/ml-hypercloning#1"),
    fault("group size mistaken", "the head number is divided by H_kv instead of the group size H / H_kv",
          _MAP, needs="gqa", repeated=_heads(_clipped), seen="rasbt/LLMs-from-scratch#922"),
    fault("values tiled", "keys are repeated in a row, values are tiled", _MAP, needs="gqa",
          repeated=_heads(_right, _tile)),
    fault("keys tiled", "values are repeated in a row, keys are tiled", _MAP, needs="gqa",
          repeated=_heads(_tile, _right)),
    fault("first kv head for all", "every query head meets key/value head 0", _MAP, needs="gqa",
          repeated=_heads(lambda h, kv, g: h * 0)),
    fault("last kv head for all", "every query head meets the last key/value head", _MAP, needs="gqa",
          repeated=_heads(lambda h, kv, g: h * 0 + kv - 1)),
    fault("kv heads clamped", "query head h meets key/value head h, and the last one once they run out",
          _MAP, needs="gqa", repeated=_heads(lambda h, kv, g: np.minimum(h, kv - 1))),
    fault("groups reversed", "the groups meet the key/value heads in reverse order", _MAP, needs="gqa",
          repeated=_heads(lambda h, kv, g: kv - 1 - h // g)),
    fault("kv heads tiled, reversed", "key/value heads are tiled in reverse order", _MAP, needs="gqa",
          repeated=_heads(lambda h, kv, g: kv - 1 - h % kv)),
    fault("kv heads averaged", "every query head meets the mean of the key/value heads", _MAP, needs="gqa",
          repeated=_averaged),
    fault("queries averaged", "the queries of a group are averaged", "each query head keeps its own query",
          needs="gqa", picked=_queries_averaged),
    fault("groups merged in the wrong order", "the output's heads are ordered (group, H_kv) instead of "
          "(H_kv, group)", "query heads of one key/value head lie in a row", needs="gqa",
          joined=lambda o, q, k, v, case: _grouped(o, case).swapaxes(1, 2).reshape(o.shape)),
    fault("scale of the group", "the scores are divided by the root of d_k times the group size",
          "divide by the root of d_k", needs="gqa",
          scale=lambda case: case.factor / case.group**0.5),
    fault("groups summed", "every head holds the sum of its group", "each query head keeps its own output",
          needs="gqa",
          joined=lambda o, q, k, v, case: _grouped(o, case).sum(2).repeat(case.group, 1)),
)  # fmt: skip
