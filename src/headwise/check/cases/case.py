"""The problems that a function is asked: random, signed, every size its own, logits spread over about +-3.

No two sizes are equal where the function allows it, groups have three heads, masks are unlike their own
transpose and inverse and unlike from one batch entry to the next: what hides a mistake is left out.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headwise.check.cases import rotation
from headwise.plain.types import AnyArray, Floats
from headwise.reference import reference_attention


@dataclass(frozen=True, eq=False)
class Case:
    """One call of an attention function, and everything that the right answer depends on.

    A `Contract.call` gets it with arrays of the function's own kind, dtype and layout.

    Attributes:
        query: (B, H, n_q, d_k).
        key, value: (B, H_kv, n_k, d_k) and (B, H_kv, n_k, d_v): the new keys where there is a cache.
        mask: (B, 1, n_q, T) booleans, True = attend, over all T keys, cached ones first.
        padding: (B, T) booleans, True = a real key.
        bias: (H, n_q, T), added to the scaled scores.
        is_causal: query i sees keys up to i + offset.
        aligned: "upper_left" (offset 0) or "lower_right" (offset T - n_q); with a cache always the latter.
        window: (left, right) neighbours beside the query itself, None = open.
        softcap: c, a score s becomes c tanh(s / c).
        scale: factor of the scores; None means 1 / sqrt(d_k).
        rotary_base: queries and keys turn by position / base^(2i / d_k) before they meet.
        interleaved: features (2i, 2i + 1) turn together instead of (i, i + d_k / 2).
        past_key, past_value: (B, H_kv, P, d) from earlier calls; past keys as they were before rotation.
        past_key_turned: the same, turned at their own positions, for functions whose cache holds those.
        num_heads: H, for functions that take (B, n, H d).
        sizes: for `Contract.call`, whose arrays may lie in another layout: n_q, n_k, P and the group size.
    """

    query: AnyArray
    key: AnyArray
    value: AnyArray
    mask: AnyArray = None
    padding: AnyArray = None
    bias: AnyArray = None
    is_causal: bool = False
    aligned: str = "lower_right"
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None
    scale: float | None = None
    rotary_base: float | None = None
    interleaved: bool = False
    past_key: AnyArray = None
    past_value: AnyArray = None
    past_key_turned: AnyArray = None
    num_heads: int = 1
    sizes: tuple[int, int, int, int] | None = None

    @property
    def n_past(self) -> int:
        return self._sizes()[2]

    @property
    def n_q(self) -> int:
        return self._sizes()[0]

    @property
    def n_k(self) -> int:
        """All keys, cached ones included."""
        return self._sizes()[1]

    @property
    def offset(self) -> int:
        """Position of query 0 among the keys."""
        return self.n_k - self.n_q if self.n_past or self.aligned == "lower_right" else 0

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self._sizes()[3]

    def _sizes(self) -> tuple[int, int, int, int]:
        """n_q, n_k, P and the group size; kept in ``sizes`` once the arrays are in another layout."""
        if self.sizes is not None:
            return self.sizes
        past = 0 if self.past_key is None else self.past_key.shape[-2]
        heads, n_q = self.query.shape[-3:-1]
        kv_heads, n_k = self.key.shape[-3:-1]
        return n_q, past + n_k, past, heads // kv_heads

    @property
    def factor(self) -> float:
        """The factor of the scores."""
        return float(self.query.shape[-1] ** -0.5) if self.scale is None else self.scale

    def has(self) -> frozenset[str]:
        """The options that take part."""
        present = {
            "mask": self.mask is not None,
            "padding": self.padding is not None,
            "bias": self.bias is not None,
            "causal": self.is_causal,
            "window": self.window is not None,
            "softcap": self.softcap is not None,
            "scale": self.scale is not None,
            "rope": self.rotary_base is not None,
            "cache": self.past_key is not None,
            "gqa": self.group > 1,
        }
        return frozenset(name for name, is_there in present.items() if is_there)


def expected(case: Case) -> tuple[Floats, Floats]:
    """Output and weights by the specification, float64."""
    query, key, value = case.query, case.key, case.value
    if case.rotary_base is not None:
        query = turn(case, query, case.n_past)
        key = turn(case, key, case.n_past)
    if case.past_key is not None:
        past = case.past_key if case.rotary_base is None else case.past_key_turned
        key, value = np.concatenate([past, key], 2), np.concatenate([case.past_value, value], 2)
    mask = case.mask
    if case.padding is not None:
        rows = case.padding[:, None, None, :]
        mask = rows if mask is None else mask & rows
    output, weights, _ = reference_attention(
        query,
        key,
        value,
        mask,
        scale=case.scale,
        softcap=case.softcap,
        attn_bias=case.bias,
        is_causal=case.is_causal,
        query_offset=case.offset,
        window_size=(None, None) if case.window is None else case.window,
    )
    return output, weights


def turn(case: Case, x: Floats, start: int) -> Floats:
    """Queries or keys at positions start, start + 1, ..., turned."""
    assert case.rotary_base is not None
    angles = rotation.angles(np.arange(start, start + x.shape[-2]), x.shape[-1], case.rotary_base)
    return rotation.interleaved(x, angles) if case.interleaved else rotation.halves(x, angles)


def allowed(case: Case, weights: Floats, unit: float) -> Floats:
    """What a right implementation may lose at each output element, given the unit roundoff of its numbers.

    |error| <= unit (32 + 16 A + n_k / 256) sum_j w_j |v_j|, A = the largest scale sum_d |q_d k_d| + |bias| of
    the row: the relative error of a weight is about the absolute error of its score, that of a sum of d_k
    products; dividing by sum_j w_j |v_j| keeps cancellation out. Rotation adds one rounding per feature.
    """
    key, value = case.key, case.value
    if case.past_key is not None:
        key = np.concatenate([case.past_key, key], 2)
        value = np.concatenate([case.past_value, value], 2)
    key, value = (np.abs(np.nan_to_num(x)).repeat(case.group, 1) for x in (key, value))
    sizes = abs(case.factor) * (np.abs(np.nan_to_num(case.query)) @ key.swapaxes(-1, -2))
    if case.rotary_base is not None:
        sizes = 2 * sizes
    if case.bias is not None:
        sizes = sizes + np.abs(case.bias)
    largest = np.where(weights > 0, sizes, 0).max(-1, keepdims=True, initial=0.0)
    relative = unit * (32 + 16 * largest + case.n_k / 256)
    result: Floats = relative * (weights @ value + 1e-30)
    return result


Maker = Callable[[np.random.Generator], Case]


def plain(
    random: np.random.Generator,
    *,
    batch: int = 2,
    heads: int = 3,
    kv_heads: int | None = None,
    n_q: int = 5,
    n_k: int | None = None,
    d_k: int = 6,
    d_v: int | None = None,
) -> Case:
    """Queries, keys and values; n_k and d_v default to n_q and d_k."""
    kv_heads = heads if kv_heads is None else kv_heads
    n_k, d_v = n_q if n_k is None else n_k, d_k if d_v is None else d_v
    query = random.standard_normal((batch, heads, n_q, d_k)) * 1.3
    key = random.standard_normal((batch, kv_heads, n_k, d_k)) * 1.3
    value = random.standard_normal((batch, kv_heads, n_k, d_v)) * 2
    return Case(query, key, value, num_heads=heads)


def with_mask(random: np.random.Generator, case: Case) -> Case:
    """Booleans per batch entry, each row and each column both True and False somewhere."""
    shape = (len(case.query), 1, case.n_q, case.n_k)
    if min(shape[-2:]) < 3:  # too few rows or columns for all that
        i, j = np.arange(case.n_q)[:, None], np.arange(case.n_k)
        return replace(case, mask=np.broadcast_to((i + j) % 2 == 0, shape).copy())
    for _ in range(1000):
        mask = random.random(shape) < 0.55
        both = all(picked.any(axis).all() for picked in (mask, ~mask) for axis in (-1, -2))
        square = case.n_q == case.n_k
        if both and not (square and (mask == mask.swapaxes(-1, -2)).all()):
            return replace(case, mask=mask)
    raise AssertionError("such a mask is soon found")


def with_padding(random: np.random.Generator, case: Case) -> Case:
    """Real keys per batch entry: never all, never none, unlike from entry to entry."""
    n = case.n_k
    count = [max(1, n - 1 - 2 * (at % 2)) for at in range(len(case.query))]
    return replace(case, padding=np.array([np.arange(n) < real for real in count]))


def with_bias(random: np.random.Generator, case: Case) -> Case:
    """Numbers per head, both signs."""
    return replace(case, bias=random.standard_normal((case.query.shape[1], case.n_q, case.n_k)) * 1.5)


def with_past(random: np.random.Generator, case: Case, n_past: int) -> Case:
    """Earlier keys and values in front of the new ones."""
    shape = (*case.key.shape[:2], n_past)
    past_key = random.standard_normal((*shape, case.key.shape[-1])) * 1.3
    past_value = random.standard_normal((*shape, case.value.shape[-1])) * 2
    turned = None if case.rotary_base is None else turn(case, past_key, 0)
    return replace(case, past_key=past_key, past_value=past_value, past_key_turned=turned)
