"""Random attention problems: sizes that are all different, odd layouts, every kind of mask.

Values are normal, signed and of mean zero: with positive ones most wrong kernels pass.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

PRIMES = (1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
EDGES = (15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 96, 97, 127, 128, 129, 200)
LAYOUTS = ("plain", "heads_inside", "transposed", "reversed", "every_second", "repeated_rows", "read_only")
MASKS = ("none", "boolean", "boolean_keys", "boolean_heads", "additive", "additive_inf", "all_false")


@dataclass
class Case:
    """One problem: the arrays and the options of a call."""

    query: Any
    key: Any
    value: Any
    options: dict = field(default_factory=dict)


def laid_out(array, layout):
    """The same numbers in another memory layout."""
    if layout == "heads_inside":  # (..., n, H, d) in memory, as a projection leaves it
        array = np.ascontiguousarray(np.moveaxis(array, -3, -2))
        return np.moveaxis(array, -2, -3)
    if layout == "transposed":  # (..., d, n) in memory
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(array, -1, -2)), -1, -2)
    if layout == "reversed":  # negative strides on every axis
        flipped = tuple(slice(None, None, -1) for _ in array.shape)
        return np.ascontiguousarray(array[flipped])[flipped]
    if layout == "every_second":
        wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if layout == "repeated_rows":  # stride 0 along n
        return np.broadcast_to(array[..., :1, :], array.shape)
    if layout == "read_only":
        array = array.copy()
        array.flags.writeable = False
    return array


def random_mask(rng, kind, lead, heads, n_q, n_k, dtype):
    """A mask of the given kind; "boolean" leaves some rows without any key."""
    if kind == "none":
        return None
    if kind == "all_false":
        return np.zeros((n_q, n_k), bool)
    if kind == "boolean_keys":
        return rng.random((n_k,)) < 0.7
    if kind == "boolean_heads":
        return rng.random((heads, 1, n_k)) < 0.7
    full = (*lead, heads, n_q, n_k)
    if kind == "boolean":
        mask = rng.random(full) < 0.6
        mask[..., ::5, :] = False
        return mask
    bias = rng.normal(size=(heads, n_q, n_k)).astype(dtype)
    if kind == "additive_inf":
        bias[rng.random(bias.shape) < 0.4] = -np.inf
        bias[..., ::7, :] = -np.inf
    return bias


def random_rules(rng, lead, heads, n_q, n_k, dtype, likely):
    """Every option beyond mask, causal and scale, each with probability ``likely``."""

    def chosen():
        return rng.random() < likely

    rules = {}
    if lead and chosen():
        rules["query_offset"] = rng.integers(-n_q - 1, n_k + 2, lead)
    if chosen():
        bias = rng.normal(size=(heads, n_q, n_k)).astype(dtype)
        bias[rng.random(bias.shape) < 0.2] = -np.inf
        rules["attn_bias"] = bias
    if chosen():
        rules["window_size"] = tuple(
            int(rng.integers(0, n)) if chosen() else None for n in (n_k + 1, n_q + 1)
        )
    for name, n in (("query_lengths", n_q), ("kv_lengths", n_k)):
        if chosen():
            rules[name] = rng.integers(0, n + 1, lead)
    if chosen():
        sides = [rng.integers(0, 3, (*lead, n)) for n in (n_q, n_k)]
        if rng.random() < 0.7:
            sides = [np.sort(side, axis=-1) for side in sides]  # packed sequences
        rules["segment_ids"] = sides[0] if n_q == n_k and rng.random() < 0.5 else tuple(sides)
    if chosen():
        rules["softcap"] = float(rng.choice([0.5, 4.0, 50.0]))
    if chosen():
        rules["alibi_slopes"] = rng.normal(size=(heads,) if rng.random() < 0.5 else (*lead, heads)) / 4
    if chosen():
        sinks = rng.normal(size=(heads,) if rng.random() < 0.5 else (heads, 3)) * 3
        rules["sinks"] = sinks.astype(dtype)
    if chosen():
        rules["head_mask"] = rng.normal(size=(heads,) if rng.random() < 0.5 else (*lead, heads))
    if chosen():
        rules["dropout_p"], rules["rng"] = float(rng.choice([0.1, 0.5, 0.9])), int(rng.integers(0, 2**63))
    return rules


@st.composite
def cases(draw, sizes=PRIMES, masks=MASKS, layouts=LAYOUTS, max_n=None):
    """A random :class:`Case`. Numbers come from one drawn seed, so failing cases shrink by their shape."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1), label="seed"))
    dtype = draw(st.sampled_from([np.float32, np.float64]), label="dtype")
    lead = draw(st.sampled_from([(), (2,), (3,), (2, 3)]), label="lead")
    kv_heads, group = draw(st.sampled_from([(1, 1), (2, 3), (2, 1), (1, 5), (3, 2)]), label="heads")
    sizes = [n for n in sizes if max_n is None or n <= max_n]
    n_q, n_k = (draw(st.sampled_from(sizes), label=label) for label in ("n_q", "n_k"))
    d_k, d_v = draw(st.sampled_from([(3, 5), (8, 4), (1, 1), (17, 2), (16, 16), (2, 33)]), label="widths")
    heads = kv_heads * group
    shapes = ((*lead, heads, n_q, d_k), (*lead, kv_heads, n_k, d_k), (*lead, kv_heads, n_k, d_v))
    spread = draw(st.sampled_from([1.0, 3.0]), label="spread")
    query, key, value = (
        laid_out(
            rng.normal(size=shape).astype(dtype) * dtype(spread),
            draw(st.sampled_from(layouts), label="layout"),
        )
        for shape in shapes
    )
    kind = draw(st.sampled_from(masks), label="mask")
    options = {"attn_mask": random_mask(rng, kind, lead, heads, n_q, n_k, dtype)}
    options["is_causal"] = draw(st.booleans(), label="is_causal")
    options["scale"] = draw(st.sampled_from([None, 0.5, -0.7, 0.0]), label="scale")
    if options["is_causal"] or draw(st.booleans(), label="placed"):
        options["query_offset"] = draw(st.integers(-n_q - 1, n_k + 1), label="query_offset")
    return Case(query, key, value, options)
