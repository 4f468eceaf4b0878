"""Reading a black box: its weights, its mask, its scale and its head map, each from a few chosen inputs.

value = one-hot of the key          output = the weights, row by row
query = 0, and those values         which keys a row sees (its scores are all alike)
weights of known scores             ln(p1 / p0) / (s1 - s0) = the factor of the scores
value = constant per kv head        output of a head = its kv head
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from headwise.check.cases.case import Case, expected
from headwise.check.cases.chain import Fault
from headwise.plain.types import Array

if TYPE_CHECKING:
    from headwise.check.subjects.subject import Subject


@dataclass(frozen=True)
class Reading:
    """What was measured, as a mistake that can be compared with the function's answer."""

    mistake: Fault
    evidence: str
    number: Any

    def agrees(self, other: "Reading") -> bool:
        """Whether fresh inputs gave the same measure."""
        if isinstance(self.number, float):
            return bool(np.isclose(self.number, other.number, rtol=1e-3))
        return bool(self.number is None or np.array_equal(self.number, other.number))


def weights(subject: "Subject", case: Case) -> Array | None:
    """The weights (B, H, n_q, n_k) as the function has them, or None where it refuses such values."""
    from headwise.check.subjects.subject import NoAnswer

    n_k, width = case.n_k, case.value.shape[-1]
    parts = []
    for start in range(0, n_k, width):
        block = np.zeros((n_k, width))
        rows = np.arange(start, min(start + width, n_k))
        block[rows, rows - start] = 1
        full = np.broadcast_to(block, (*case.value.shape[:2], *block.shape))
        changes: dict[str, Any] = {"value": full[:, :, case.n_past :]}
        if case.past_value is not None:
            changes["past_value"] = full[:, :, : case.n_past]
        try:
            parts.append(subject.run(replace(case, **changes)).output[..., : len(rows)])
        except NoAnswer:
            return None
    found = np.concatenate(parts, -1)
    return found if found.shape == (*case.query.shape[:3], n_k) else None


def seen_keys(subject: "Subject", case: Case) -> Array | None:
    """Which keys each row takes up, (B, H, n_q, n_k): the weights at query 0 that are not 0."""
    bare = replace(case, query=np.zeros_like(case.query), bias=None)
    found = weights(subject, bare)
    if found is None or not np.isfinite(found).all():
        return None
    return np.asarray(np.abs(found) > 1e-6)


def head_map(subject: "Subject", case: Case) -> list[int] | None:
    """The key/value head that each query head blends."""
    from headwise.check.subjects.subject import NoAnswer

    numbers = np.arange(case.key.shape[1], dtype=float)[None, :, None, None]
    value = np.broadcast_to(numbers, case.value.shape).copy()
    try:
        output = subject.run(replace(case, value=value)).output
    except NoAnswer:
        return None
    mean = output.mean((0, 2, 3))
    nearest = np.rint(mean)
    if output.shape[:3] != case.query.shape[:3] or not np.allclose(output, nearest[:, None, None], atol=1e-4):
        return None
    return [int(head) for head in nearest]


def right_weights(case: Case) -> Array:
    """The weights of the specification."""
    return expected(case)[1]


def factor(subject: "Subject", case: Case) -> float | None:
    """The factor of the scores as the function has it, or None where it shows none."""
    found = _scale(subject, case)
    return None if found is None else float(found.number)


def _scale(subject: "Subject", case: Case) -> Reading | None:
    """The factor of the scores, by least squares over all pairs of keys that a row weighs."""
    if case.rotary_base is not None or case.past_key is not None or case.softcap is not None:
        return None
    found = weights(subject, case)
    if found is None or not (found >= -1e-9).all():
        return None
    raw = case.query @ case.key.repeat(case.group, 1).swapaxes(-1, -2)
    usable = found > 1e-5
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.where(usable, found, 1))
    if case.bias is not None:
        logs = logs - np.where(usable, case.bias, 0)

    def centred(x: Array) -> Array:
        count = np.maximum(usable.sum(-1, keepdims=True), 1)
        return np.where(usable, x - np.where(usable, x, 0).sum(-1, keepdims=True) / count, 0)

    a, b = centred(raw), centred(logs)
    total = (a * a).sum()
    if total == 0:
        return None
    factor = float((a * b).sum() / total)
    if np.abs(b - factor * a).max() > 1e-3 * max(1.0, np.abs(b).max()):
        return None
    right = case.factor
    what = f"the scores are multiplied by {factor:.6g}, where {right:.6g} is right"
    mistake = Fault("another scale", what, "1/root d_k, or the scale that is passed",
                    {"scale": lambda case: factor})  # fmt: skip
    return Reading(
        mistake, f"read out of the weights: factor {factor:.6g} = {factor / right:.4g} x right", factor
    )


def _visible(subject: "Subject", case: Case) -> Reading | None:
    """The keys that the rows see."""
    seen = seen_keys(subject, case)
    if seen is None:
        return None
    lines = f"{drawn(seen[0, 0])}; right: {drawn(right_weights(case)[0, 0] > 0)}"
    what = "rows see other keys than they should"
    mistake = Fault(
        "other keys seen", what, "compare the keys seen with your mask",
        {
            "combined": lambda parts: seen,
            "causal": lambda case, n_k: None,
        },
    )  # fmt: skip
    return Reading(mistake, f"keys that the rows of batch 0, head 0 see: {lines}", None)


def _heads(subject: "Subject", case: Case) -> Reading | None:
    """The key/value head of each query head, where groups exist."""
    if case.group == 1:
        return None
    found = head_map(subject, case)
    if found is None:
        return None
    at = np.array(found)
    mistake = Fault(
        "other kv heads",
        f"query heads 0, 1, ... meet the key/value heads {', '.join(map(str, found))}",
        "query head h meets key/value head h // (H / H_kv)",
        {"repeated": lambda k, v, case: (k[:, at], v[:, at])},
    )
    return Reading(mistake, f"read out with values that name their head: {found}", at)


def drawn(seen: Array) -> str:
    """``x..`` per row: x is a key that is seen."""
    rows = ["".join("x" if key else "." for key in row) for row in seen[:8, :16]]
    return " / ".join(rows)


MEASURES: tuple[Callable[["Subject", Case], Reading | None], ...] = (_scale, _visible, _heads)
