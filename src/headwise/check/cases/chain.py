"""Attention as a chain of small steps, each of which can be exchanged for a mistaken one.

The chain with nothing exchanged is right (tests compare it with the specification); a `Fault` exchanges one
step or two. So a mistake is one line, and two mistakes are both exchanges at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case, turn
from headwise.plain.types import Array

Step = Callable[..., Any]


def turned(q: Array, k: Array, past: Array | None, case: Case) -> tuple[Array, Array, Array | None]:
    """Queries, new keys and past keys at their positions."""
    if case.rotary_base is None:
        return q, k, past
    q, k = turn(case, q, case.n_past), turn(case, k, case.n_past)
    return q, k, None if past is None else turn(case, past, 0)


def appended(k: Array, v: Array, past_k: Array | None, past_v: Array | None) -> tuple[Array, Array]:
    """The cache in front of the new keys and values."""
    if past_k is None or past_v is None:
        return k, v
    return np.concatenate([past_k, k], 2), np.concatenate([past_v, v], 2)


def repeated(k: Array, v: Array, case: Case) -> tuple[Array, Array]:
    """One key and value head per query head: h // group."""
    return k.repeat(case.group, 1), v.repeat(case.group, 1)


def picked(q: Array, k: Array, v: Array, case: Case) -> tuple[Array, Array, Array]:
    return q, k, v


def product(q: Array, k: Array) -> Array:
    return np.asarray(q @ k.swapaxes(-1, -2))


def scale(case: Case) -> float:
    return case.factor


def capped(s: Array, case: Case) -> Array:
    return s if case.softcap is None else case.softcap * np.tanh(s / case.softcap)


def biased(s: Array, case: Case) -> Array:
    return s if case.bias is None else s + case.bias


def grid(case: Case, n_k: int | None = None) -> tuple[Array, Array]:
    """Row numbers (n_q, 1) and key numbers (n_k,)."""
    return np.arange(case.n_q)[:, None], np.arange(case.n_k if n_k is None else n_k)


def causal(case: Case, n_k: int) -> Array | None:
    i, j = grid(case, n_k)
    return j <= i + case.offset if case.is_causal else None


def windowed(case: Case, n_k: int) -> Array | None:
    if case.window is None:
        return None
    i, j = grid(case, n_k)
    left, right = case.window
    seen = np.ones((case.n_q, n_k), bool)
    if left is not None:
        seen &= j >= i + case.offset - left
    if right is not None:
        seen &= j <= i + case.offset + right
    return seen


def masked(case: Case) -> Array | None:
    return None if case.mask is None else np.asarray(case.mask)


def padded(case: Case) -> Array | None:
    return None if case.padding is None else np.asarray(case.padding[:, None, None, :])


def combined(parts: list[Array]) -> Array:
    """Which keys every row sees: those that no part hides."""
    result: Array = np.array(True)
    for part in parts:
        result = result & part
    return result


def hidden(s: Array, visible: Array, case: Case) -> Array:
    return np.where(visible, s, -np.inf)


def averaging(s: Array, visible: Array, case: Case) -> Array:
    """A large negative number in the place of minus infinity: a row that sees no key averages all."""
    return np.where(visible, s, -1e9)


def softmax(s: Array, axis: int | tuple[int, ...] = -1) -> Array:
    """Rows without a finite score are 0."""
    largest = s.max(axis, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(largest), largest, 0))
    total = e.sum(axis, keepdims=True)
    return np.asarray(e / np.where(total == 0, 1, total))


def weighed(w: Array, visible: Array, case: Case) -> Array:
    return w


def blended(w: Array, v: Array) -> Array:
    return np.asarray(w @ v)


def joined(o: Array, q: Array, k: Array, v: Array, case: Case) -> Array:
    return o


@dataclass(frozen=True)
class Chain:
    """The chain. Every field is one step; the defaults are right."""

    turned: Step = turned
    appended: Step = appended
    repeated: Step = repeated
    picked: Step = picked
    product: Step = product
    scale: Step = scale
    capped: Step = capped
    biased: Step = biased
    causal: Step = causal
    windowed: Step = windowed
    masked: Step = masked
    padded: Step = padded
    combined: Step = combined
    hidden: Step = hidden
    softmax: Step = softmax
    weighed: Step = weighed
    blended: Step = blended
    joined: Step = joined

    def exchange(self, changes: Mapping[str, Step]) -> "Chain":
        return replace(self, **changes)


RIGHT = Chain()


def attend(case: Case, chain: Chain = RIGHT) -> Array:
    """The output (B, H, n_q, d_v) of the chain, float64."""
    q, k, past = chain.turned(case.query, case.key, case.past_key, case)
    k, v = chain.appended(k, case.value, past, case.past_value)
    k, v = chain.repeated(k, v, case)
    q, k, v = chain.picked(q, k, v, case)
    s = chain.product(q, k) * chain.scale(case)
    s = chain.biased(chain.capped(s, case), case)
    n_k = s.shape[-1]
    parts = [chain.causal(case, n_k), chain.windowed(case, n_k), chain.masked(case), chain.padded(case)]
    visible = np.broadcast_to(chain.combined([part for part in parts if part is not None]), s.shape)
    w = chain.weighed(chain.softmax(chain.hidden(s, visible, case)), visible, case)
    return np.asarray(chain.joined(chain.blended(w, v), q, k, v, case))


@dataclass(frozen=True)
class Fault:
    """A mistake that can be named.

    Attributes:
        key: its short name, as in reports.
        what: what the function does, in words.
        repair: what it should do.
        needs: options without which the mistake has no meaning.
        seen: public issues where it was met.
        changes: the exchanged steps of the chain.
    """

    key: str
    what: str
    repair: str
    changes: Mapping[str, Step] = field(repr=False)
    needs: frozenset[str] = frozenset()
    seen: tuple[str, ...] = ()


def fault(key: str, what: str, repair: str, *, needs: str = "", seen: str = "", **changes: Step) -> Fault:
    return Fault(key, what, repair, changes, frozenset(needs.split()), tuple(seen.split()))
