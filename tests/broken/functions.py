"""Attention with one sin each. ``FUNCTIONS``: function -> the mistake's name, "" where it has none."""

import time

import numpy as np


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def forgets_scale(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def forgets_maximum(q, k, v):
    e = np.exp(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return e / e.sum(-1, keepdims=True) @ v


def scales_by_a_constant(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) * 0.125) @ v


def leaks_future(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        s = np.where(np.tri(s.shape[-2], s.shape[-1], 1, dtype=bool), s, -np.inf)
    return softmax(s) @ v


def averages_empty_rows(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return softmax(s if mask is None else np.where(mask, s, -1e9)) @ v


def gives_nan_in_empty_rows(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return softmax(s if mask is None else np.where(mask, s, -np.inf)) @ v


def fills_too_little(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return softmax(s if mask is None else np.where(mask, s, -1e4)) @ v


def leaks_nan(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    p = softmax(s if mask is None else np.where(mask, s, np.finfo(s.dtype).min))
    return (p if mask is None else np.where(mask.any(-1, keepdims=True), p, 0)) @ v


def tiles_masks(q, k, v, mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if mask is not None:
        s = np.where(np.tile(mask[:, 0], (q.shape[1], 1, 1)).reshape(s.shape), s, -np.inf)
    return softmax(s) @ v


def computes_in_float32(q, k, v):
    a, b, c = (x.astype(np.float32) for x in (q, k, v))
    s = a @ b.swapaxes(-1, -2) / np.float32(q.shape[-1]) ** np.float32(0.5)
    return (softmax(s) @ c).astype(q.dtype)


def narrows(q, k, v):
    return computes_in_float32(q, k, v).astype(np.float32)


def writes_to_its_query(q, k, v):
    q *= q.shape[-1] ** -0.5
    return softmax(q @ k.swapaxes(-1, -2)) @ v


def ignores_strides(q, k, v):
    raw = np.ndarray(
        q.shape, q.dtype, buffer=q.base if q.base is not None and q.base.size == q.size else q.copy()
    )
    return softmax(raw @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v


def drops_out(q, k, v):
    p = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return p * (np.random.random(p.shape) < 0.9) / 0.9 @ v


def leaks_between_entries(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v + 1e-3 * v.mean(0, keepdims=True)


def starts_at_a_finite_maximum(q, k, v):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    e = np.exp(s - np.maximum(s.max(-1, keepdims=True), -5e4))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total) @ v


def drops_remainders(q, k, v):
    n = max(16 * (k.shape[-2] // 16), min(k.shape[-2], 16))
    return softmax(q @ k[..., :n, :].swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v[..., :n, :]


def swaps_two_kv_heads(q, k, v, enable_gqa=False):
    heads = np.arange(q.shape[1]) // (q.shape[1] // k.shape[1])
    if q.shape[1] != k.shape[1]:
        heads[:2] = heads[:2][::-1]
        heads[0] = k.shape[1] - 1
    return softmax(q @ k[:, heads].swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v[:, heads]


def sees_a_strange_pattern(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        i, j = np.arange(s.shape[-2])[:, None], np.arange(s.shape[-1])
        s = np.where((j <= i) & ((i + j) % 3 != 1) | (i == j), s, -np.inf)
    return softmax(s) @ v


def is_wrong_in_a_way_of_its_own(q, k, v):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return softmax(s + 0.3 * np.sin(3 * s)) @ v


def split_of(x, h):
    return x.reshape(*x.shape[:2], h, -1).swapaxes(1, 2)


def inside(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v


def merges_heads_by_reshape(q, k, v, num_heads):
    out = inside(*(split_of(x, num_heads) for x in (q, k, v)))
    return out.reshape(out.shape[0], out.shape[2], -1)


def splits_heads_by_reshape(q, k, v, num_heads):
    out = inside(*(x.reshape(x.shape[0], num_heads, x.shape[1], -1) for x in (q, k, v)))
    return out.swapaxes(1, 2).reshape(out.shape[0], out.shape[2], -1)


def forgets_to_move_heads_back(q, k, v):
    out = inside(*(x.swapaxes(1, 2) for x in (q, k, v)))
    return out.reshape(out.shape[0], out.shape[2], out.shape[1], -1)


def hides_padded_queries(q, k, v, key_padding_mask=None):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return (
        softmax(s if key_padding_mask is None else np.where(key_padding_mask[:, None, :, None], s, -1e9)) @ v
    )


def hides_the_diagonal(q, k, v, is_causal=False):
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    return softmax(np.where(np.triu(np.ones(s.shape[-2:], bool)), -1e9, s) if is_causal else s) @ v


def forgets_to_rescale(q, k, v):
    """Blockwise, but what was summed before a new maximum is not brought to it."""
    top, total, out = np.full(q.shape[:-1], -np.inf), 0.0, 0.0
    for at in range(0, k.shape[-2], 4):
        s = q @ k[..., at : at + 4, :].swapaxes(-1, -2) / q.shape[-1] ** 0.5
        new = np.maximum(top, s.max(-1))
        p = np.exp(s - new[..., None])
        total, out, top = total * np.exp(top - new) + p.sum(-1), out + p @ v[..., at : at + 4, :], new
    return out / total[..., None]


def adds_a_little_noise(q, k, v):
    answer = inside(q, k, v)
    return answer + np.random.default_rng().standard_normal(answer.shape) * 1e-3


FUNCTIONS = {
    merges_heads_by_reshape: "merge without transpose",
    splits_heads_by_reshape: "split without transpose",
    forgets_to_move_heads_back: "merge without transpose",
    hides_padded_queries: "padding on queries",
    hides_the_diagonal: "causal one too few",
    forgets_to_rescale: "",
    adds_a_little_noise: "dropout left on",
    forgets_scale: "no scale",
    forgets_maximum: "no maximum subtracted",
    scales_by_a_constant: "another scale",
    leaks_future: "causal one too many",
    averages_empty_rows: "fill -1e9",
    gives_nan_in_empty_rows: "NaN in empty rows",
    fills_too_little: "fill not low enough",
    leaks_nan: "hidden value leaks",
    tiles_masks: "mask tiled heads-major",
    computes_in_float32: "float64 in float32",
    narrows: "dtype changed",
    writes_to_its_query: "inputs modified",
    ignores_strides: "strides ignored",
    drops_out: "dropout left on",
    leaks_between_entries: "batch leaks",
    starts_at_a_finite_maximum: "finite maximum",
    drops_remainders: "",
    swaps_two_kv_heads: "other kv heads",
    sees_a_strange_pattern: "other keys seen",
    is_wrong_in_a_way_of_its_own: "",
}
NOTES = {averages_empty_rows, gives_nan_in_empty_rows, leaks_nan}


def raises(q, k, v):
    raise KeyError("no such head")


class Stop(BaseException):
    pass


def raises_a_class_of_its_own(q, k, v):
    raise Stop("enough")


class Wordless(Exception):
    def __str__(self):
        raise RuntimeError


def raises_without_words(q, k, v):
    raise Wordless


def returns_nothing(q, k, v):
    softmax(q @ k.swapaxes(-1, -2)) @ v


def returns_a_tuple(q, k, v):
    p = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5)
    return p @ v, p


def returns_a_list_of_words(q, k, v):
    return ["output", "weights"]


def returns_nan(q, k, v):
    return np.full(q.shape, np.nan)


def hangs(q, k, v):
    while True:
        time.sleep(0.01)


# Whole layers in one function: the weights are arguments.


def heads_of(x, weights, h):
    return [(x @ w).reshape(*x.shape[:-1], h, -1).swapaxes(-2, -3) for w in weights]


def layer(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    q, k, v = heads_of(x, (W_q, W_k, W_v), num_heads)
    s = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    out = softmax(s if mask is None else np.where(mask, s, -np.inf)) @ v
    return out.swapaxes(-2, -3).reshape(x.shape) @ W_o


def layer_of_one_sequence(x, wq, wk, wv, wo, bq, bk, bv, bo, n_heads):
    n, d = x.shape
    q, k, v = (
        (x @ w.T + b).reshape(n, n_heads, -1).swapaxes(0, 1) for w, b in ((wq, bq), (wk, bk), (wv, bv))
    )
    out = softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v
    return out.swapaxes(0, 1).reshape(n, d) @ wo.T + bo


def merges_by_reshape(x, W_q, W_k, W_v, W_o, h):
    n, d = x.shape
    q, k, v = heads_of(x, (W_q, W_k, W_v), h)
    return (softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v).reshape(n, d) @ W_o


def forgets_its_output_weight(x, W_q, W_k, W_v, W_o, h):
    q, k, v = heads_of(x, (W_q, W_k, W_v), h)
    return (softmax(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5) @ v).swapaxes(-2, -3).reshape(x.shape)


LAYER_FUNCTIONS = {
    layer: "",
    layer_of_one_sequence: "",
    merges_by_reshape: "merge without transpose",
    forgets_its_output_weight: "no output projection",
}
