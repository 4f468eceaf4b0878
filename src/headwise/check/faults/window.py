"""Mistakes with windows and soft caps."""

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import Fault, Step, capped, fault, grid, windowed
from headwise.plain.types import Array

_WIDTH = "window (W, 0): the query itself and the W keys before it"
_CAP = "scale, then cap: s becomes c tanh(s / c); then bias and mask"


def _moved(by: int) -> Step:
    def step(case: Case, n_k: int) -> Array | None:
        left, right = case.window or (None, None)
        if left is None:
            return None
        i, j = grid(case, n_k)
        seen = j >= i + case.offset - left - by
        return np.asarray(seen if right is None else seen & (j <= i + case.offset + right))

    return step


def _rule(seen: Step) -> Step:
    """A window from a rule on (position of the query, key, W, n_k)."""

    def step(case: Case, n_k: int) -> Array | None:
        i, j = grid(case, n_k)
        return np.asarray(seen(i + case.offset, j, (case.window or (0, 0))[0], n_k))

    return step


def _cap(change: Step) -> Step:
    return lambda s, case: s if case.softcap is None else change(s, case.softcap, case)


def _before_scaling(s: Array, c: float, case: Case) -> Array:
    return np.asarray(c * np.tanh(s / case.factor / c) * case.factor)


def _open(case: Case, n_k: int) -> None:
    return None


FAULTS: tuple[Fault, ...] = (
    fault("no soft cap", "the scores are not capped", _CAP, needs="softcap", capped=lambda s, case: s),
    fault("soft cap after mask", "the cap comes after the mask: hidden scores become -c and are seen", _CAP,
          needs="softcap", capped=lambda s, case: s,
          hidden=lambda s, visible, case: capped(np.where(visible, s, -np.inf), case),
          seen="onnx/onnx#7865 microsoft/onnxruntime#28370"),
    fault("soft cap before scaling", "the scores are capped before they are scaled", _CAP, needs="softcap",
          capped=_cap(_before_scaling)),
    fault("tanh without cap", "the hyperbolic tangent is not multiplied by the cap", _CAP, needs="softcap",
          capped=_cap(lambda s, c, case: np.tanh(s / c))),
    fault("tanh without division", "the scores are not divided by the cap before the tangent", _CAP,
          needs="softcap", capped=_cap(lambda s, c, case: c * np.tanh(s))),
    fault("hard clip", "scores are cut at the cap instead of bent towards it", _CAP, needs="softcap",
          capped=_cap(lambda s, c, case: np.clip(s, -c, c))),
    fault("soft cap on weights", "the weights are capped instead of the scores", _CAP, needs="softcap",
          capped=lambda s, case: s, weighed=lambda w, visible, case: capped(w, case)),
    fault("window one too few", "the window has one key too few", _WIDTH, needs="window", windowed=_moved(-1),
          seen="huggingface/transformers#39408 vllm-project/vllm#3385"),
    fault("window one too many", "the window has one key too many", _WIDTH, needs="window",
          windowed=_moved(1), seen="huggingface/transformers#29623"),
    fault("window both ways", "the window reaches into the future too: nothing is causal", _WIDTH,
          needs="window", windowed=_rule(lambda p, j, w, n: abs(p - j) <= w), causal=_open,
          seen="Dao-AILab/flash-attention#1133"),
    fault("window ignored", "the window has no effect", _WIDTH, needs="window", windowed=_open,
          seen="jax-ml/jax#32300 huggingface/transformers#35924"),
    fault("window without causal", "the window is there, but later keys are seen", _WIDTH,
          needs="window causal", causal=_open),
    fault("window into the future", "the window lies behind the query instead of before it", _WIDTH,
          needs="window", windowed=_rule(lambda p, j, w, n: (j >= p) & (j <= p + w)), causal=_open),
    fault("window at the end", "every query sees the last W keys of the sequence and itself", _WIDTH,
          needs="window", windowed=_rule(lambda p, j, w, n: (j >= n - 1 - w) | (j == p))),
    fault("window in blocks", "queries see the keys of their own block only", _WIDTH, needs="window",
          windowed=_rule(lambda p, j, w, n: p // (w + 1) == j // (w + 1))),
    fault("window without itself", "the query's own key is left out of the window", _WIDTH, needs="window",
          windowed=lambda case, n_k: _without_self(case, n_k)),
)  # fmt: skip


def _without_self(case: Case, n_k: int) -> Array | None:
    seen = windowed(case, n_k)
    i, j = grid(case, n_k)
    return None if seen is None else seen & (j != i + case.offset)
