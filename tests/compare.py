"""Comparing a computed answer with the float64 specification. Every function here asserts.

The error of an output element is measured against the sum of the |weight * value| that make it up, so that
neither cancellation to 0 nor the size of the values matters. What a right kernel may lose grows with the size
of its scores: the relative error of a weight is about the absolute error of its score.
"""

import numpy as np

from headwise.reference import visible_and_bias


def unit(dtype):
    """Unit roundoff."""
    return float(np.finfo(dtype).eps) / 2


def weight_error(query, key, visible, bias, scale):
    """Bound on the relative error of each row's weights, (..., H, n_q)."""
    d_k, heads, kv_heads = query.shape[-1], query.shape[-3], key.shape[-3]
    scale = 1 / np.sqrt(d_k) if scale is None else scale
    sizes = np.abs(np.where(np.isfinite(key), key, 0)).astype(float).repeat(heads // kv_heads, axis=-3)
    scores = abs(scale) * (np.abs(query).astype(float) @ np.swapaxes(sizes, -1, -2)) + np.abs(bias)
    largest = np.where(visible, scores, 0).max(-1, initial=0.0)
    return unit(query.dtype) * (32 + 16 * largest + key.shape[-2] / 256)


def assert_output(output, expected, weights, value, bound):
    """The output within ``bound`` (..., H, n_q), in units of the values that each row sees."""
    assert output.shape == expected.shape
    assert output.dtype == value.dtype
    sizes = np.abs(np.where(np.isfinite(value), value, 0)).astype(float)
    sizes = sizes.repeat(output.shape[-3] // value.shape[-3], axis=-3)
    # Where sinks or other keys are e^87 times heavier, weights are below the smallest normal number: then 0.
    nothing = 64 * np.finfo(output.dtype).tiny * (1 + sizes.sum(-2, keepdims=True))
    allowed = bound[..., None] * (np.nan_to_num(weights) @ sizes) + nothing
    assert_within(output, expected, allowed, "output")


def assert_within(found, expected, allowed, name):
    """|found - expected| <= allowed everywhere; NaN and infinity exactly where expected."""
    assert found.shape == expected.shape, f"{name}: shape {found.shape}, expected {expected.shape}"
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[special], expected[special], err_msg=name)
    excess = np.abs(np.where(special, 0, found) - np.where(special, 0, expected)) - allowed
    worst = np.unravel_index(np.argmax(excess), excess.shape) if excess.size else None
    assert worst is None or excess[worst] <= 0, (
        f"{name}{list(map(int, worst))}: {found[worst]!r}, expected {expected[worst]!r} "
        f"within {np.broadcast_to(allowed, excess.shape)[worst]:.3g}"
    )


def assert_statistics(aux, expected, weights, visible, bound, dtype):
    """Every statistic against its dense definition. ``bound``: relative error of the weights of each row."""
    n_q, n_k = weights.shape[-2:]
    assert set(aux.asked()) == set(expected)
    width = bound[..., None]
    allowed = {
        "lse": bound + unit(dtype) * np.abs(np.nan_to_num(expected.get("lse", 0.0), neginf=0.0)),
        "max_weight": bound,
        "sum_squares": 2 * bound,
        "sink_logit_mass": bound,
        "entropy": bound * (4 + 2 * np.log(n_k + 1)),
        "distance": bound * (n_k + n_q + np.abs(np.nan_to_num(expected.get("distance", 0.0)))),
        "distance_histogram": bound.max(-1, initial=0.0)[..., None],
        "sink_mass": bound,
        "relative": width,
        "duplicate": bound,
        "induction": bound,
        "classes": width,
        "top_k_weight": width,
        "received": (np.nan_to_num(weights) * width).sum(-2) + unit(dtype) * n_q,
        "pooled": bound.max(-1, initial=0.0)[..., None, None],
    }
    for name, answer in expected.items():
        found = getattr(aux, name)
        if name in allowed:
            assert found.dtype == dtype, name
            assert_within(found, answer, allowed[name], name)
        elif name.endswith("_count"):
            assert found.dtype == np.int64, name
            np.testing.assert_array_equal(found, answer, err_msg=name)
        else:
            assert found.dtype == np.int64, name
            picked = found[..., None] if name == "argmax" else found
            best = answer[..., None] if name == "argmax" else answer
            assert_same_weights(picked, best, weights, visible, width, name)


def assert_same_weights(found, expected, weights, visible, allowed, name):
    """Two choices of heaviest keys agree: the same keys, or keys whose weights differ by rounding only."""
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found == -1, expected == -1, err_msg=name)
    if not found.size or not weights.shape[-1]:
        return
    chosen = found >= 0
    assert np.take_along_axis(visible, np.maximum(found, 0), -1)[chosen].all(), (
        f"{name}: a key that is not seen"
    )
    ordered = np.sort(np.where(chosen, found, -1 - np.arange(found.shape[-1])), axis=-1)
    assert (np.diff(ordered, axis=-1) != 0).all(), f"{name}: a key twice"
    with_found, with_expected = (
        np.where(chosen, np.take_along_axis(weights, np.maximum(index, 0), -1), 0)
        for index in (found, expected)
    )
    assert_within(with_found, with_expected, 2 * allowed, name)


def seen_by(query, key, attn_mask, is_causal=False, query_offset=0, **rules):
    """visible and bias of the specification, (..., H, n_q, n_k)."""
    shape = (*query.shape[:-1], key.shape[-2])
    return visible_and_bias(shape, attn_mask, is_causal, query_offset, **rules)
