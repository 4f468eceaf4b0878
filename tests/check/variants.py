"""Right and wrong attention in eight families, each variant by its own formula, apart from the checker.

A family is (contract, how a case becomes arguments, variants); a variant is name -> (function, what it has to
be called). RIGHT: not a mistake, or one that changes nothing. The order of each family is that of facts.json.
"""

import numpy as np

RIGHT = "right"
CAP, WINDOW, BASE = 1.5, 3, 100.0  # what the checker's cases have


def softmax(z, axis=-1):
    top = z.max(axis, keepdims=True)
    e = np.exp(z - np.where(np.isneginf(top), 0, top))
    total = e.sum(axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


def dots(q, k):
    return np.einsum("bhid,bhjd->bhij", q, k)


def mix(p, v):
    return np.einsum("bhij,bhjd->bhid", p, v)


def scaled(q, k):
    return dots(q, k) / np.sqrt(q.shape[-1])


def with_scale(factor):
    """factor: a rule on (H, n_k, d)."""
    return lambda q, k, v: mix(softmax(dots(q, k) * factor(q.shape[1], k.shape[2], q.shape[3])), v)


def with_weights(rule):
    return lambda q, k, v: mix(rule(scaled(q, k)), v)


def with_output(rule):
    return lambda q, k, v: rule(mix(softmax(scaled(q, k)), v), q, k, v)


def right(q, k, v):
    return mix(softmax(scaled(q, k)), v)


def exp_over(rule):
    return lambda s: np.exp(s) / rule(np.exp(s))


def cosine(q, k, v):
    length = [x / np.sqrt((x * x).sum(-1, keepdims=True)) for x in (q, k)]
    return mix(softmax(dots(*length)), v)


def hard(s):
    top = s == s.max(-1, keepdims=True)
    return top / top.sum(-1, keepdims=True)


def per_head(rule):
    def weights(s):
        return softmax(np.stack([rule(s)] * s.shape[1], 1))

    return weights


def swapped(a, b):
    def run(q, k, v):
        return np.swapaxes(right(*(np.swapaxes(x, a, b) for x in (q, k, v))), a, b)

    return run


def like(take):
    return with_output(lambda o, q, k, v: take(o) + 0 * o)


A = {
    "right": (right, RIGHT),
    "no scale": (with_scale(lambda h, n, d: 1), "no scale"),
    "1/d": (with_scale(lambda h, n, d: 1 / d), "scale 1/d_k"),
    "twice": (lambda q, k, v: right(q / np.sqrt(q.shape[-1]), k, v), "scale 1/d_k"),
    "root d": (with_scale(lambda h, n, d: d**0.5), "scale times root d_k"),
    "d": (with_scale(lambda h, n, d: d), "scale times d_k"),
    "d_model": (with_scale(lambda h, n, d: (h * d) ** -0.5), "scale 1/root d_model"),
    "heads": (with_scale(lambda h, n, d: h**-0.5), "scale 1/root H"),
    "keys": (with_scale(lambda h, n, d: n**-0.5), "scale 1/root n_k"),
    "one side": (with_scale(lambda h, n, d: d**-0.25), "scale on one side"),
    "late": (lambda q, k, v: mix(softmax(dots(q, k)) / np.sqrt(q.shape[-1]), v), "scale after softmax"),
    "exp2": (with_weights(lambda s: 2**s / (2**s).sum(-1, keepdims=True)), "exp2 without log2(e)"),
    "exp2 twice": (
        with_weights(lambda s: softmax(s * np.log2(np.e) ** 2 * np.log(2))),
        "exp2 with log2(e) twice",
    ),
    "over queries": (with_weights(lambda s: softmax(s, -2)), "softmax over queries"),
    "over heads": (with_weights(lambda s: softmax(s, 1)), "softmax over heads"),
    "over batch": (with_weights(lambda s: softmax(s, 0)), "softmax over batch"),
    "over matrix": (
        with_weights(exp_over(lambda e: e.sum((-2, -1), keepdims=True))),
        "softmax over the matrix",
    ),
    "no softmax": (with_weights(lambda s: s), "softmax missing"),
    "no sum": (with_weights(np.exp), "not normalised"),
    "no exponential": (with_weights(lambda s: s / np.abs(s).sum(-1, keepdims=True)), "no exponential"),
    "logarithm": (with_weights(lambda s: np.log(softmax(s))), "log-softmax"),
    "sigmoid": (with_weights(lambda s: 1 / (1 + np.exp(-s))), "sigmoid"),
    "plus one": (with_weights(exp_over(lambda e: 1 + e.sum(-1, keepdims=True))), "softmax plus one"),
    "softmax twice": (with_weights(lambda s: softmax(softmax(s))), "softmax twice"),
    "hard": (with_weights(hard), "hard maximum"),
    "uniform": (with_weights(lambda s: np.ones_like(s) / s.shape[-1]), "uniform"),
    "reshaped": (
        lambda q, k, v: mix(
            softmax(q @ k.reshape(*k.shape[:2], k.shape[3], k.shape[2]) / np.sqrt(q.shape[-1])), v
        ),
        "keys reshaped",
    ),
    "scores transposed": (lambda q, k, v: mix(softmax(scaled(k, q)), v), "scores transposed"),
    "weights transposed": (
        lambda q, k, v: np.einsum("bhji,bhjd->bhid", softmax(scaled(q, k)), v),
        "weights transposed",
    ),
    "query twice": (lambda q, k, v: right(q, q, v), "query with query"),
    "key twice": (lambda q, k, v: right(k, k, v), "key with key"),
    "query for key": (lambda q, k, v: right(k, q, v), "scores transposed"),
    "key for value": (lambda q, k, v: right(q, v, k), "key and value swapped"),
    "blends keys": (lambda q, k, v: right(q, k, k), "keys as values"),
    "cosine": (cosine, "cosine similarity"),
    "softmin": (with_weights(lambda s: softmax(-s)), "softmin"),
    "adds query": (with_output(lambda o, q, k, v: o + q), "query added"),
    "adds value": (with_output(lambda o, q, k, v: o + v), "value added"),
    "mean score": (with_weights(per_head(lambda s: s.mean(1))), "scores averaged over heads"),
    "sum of scores": (with_weights(per_head(lambda s: s.sum(1))), "scores summed over heads"),
    "across heads": (swapped(1, 2), "attends across heads"),
    "across batch": (swapped(0, 2), "attends across the batch"),
    "last query": (like(lambda o: o[:, :, -1:]), "last query for all"),
    "reversed": (with_output(lambda o, q, k, v: o[:, ::-1]), "heads reversed"),
    "first head": (like(lambda o: o[:, :1]), "first head for all"),
    "first entry": (like(lambda o: o[:1]), "first entry for all"),
    "doubled": (with_output(lambda o, q, k, v: o + o), "output twice"),
    "divided": (with_output(lambda o, q, k, v: o / k.shape[2]), "output over n_k"),
    "stray maximum": (
        with_weights(lambda s: np.exp(s - s.max((-2, -1), keepdims=True)) / np.exp(s).sum(-1, keepdims=True)),
        "stray maximum",
    ),
}


def rows(q, k):
    return np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None]


def corner(seen):
    """seen: a rule on (row, key, n_k - n_q)."""

    def run(q, k, v, fill=-np.inf):
        i, j = rows(q, k)
        return mix(softmax(np.where(seen(i, j, k.shape[2] - q.shape[2]), scaled(q, k), fill)), v)

    return run


def filled(number):
    return lambda q, k, v: corner(lambda i, j, o: j <= i + o)(q, k, v, number)


def later(q, k):
    i, j = rows(q, k)
    return j > i + k.shape[2] - q.shape[2]


def on_first(axis):
    def run(q, k, v):
        causal, free = corner(lambda i, j, o: j <= i + o)(q, k, v), right(q, k, v)
        first = np.arange(q.shape[axis]) == 0
        return np.where(first.reshape([-1 if a == axis else 1 for a in range(4)]), causal, free)

    return run


def renormalised(q, k, v):
    p = softmax(scaled(q, k)) * ~later(q, k)
    return mix(p / p.sum(-1, keepdims=True), v)


B = {
    "right": (corner(lambda i, j, o: j <= i + o), RIGHT),
    "top-left": (corner(lambda i, j, o: j <= i), "causal from the other corner"),
    "not causal": (right, "causal ignored"),
    "strict": (corner(lambda i, j, o: j < i + o), "causal one too few"),
    "strict top-left": (corner(lambda i, j, o: j < i), "causal one too few, other corner"),
    "one more": (corner(lambda i, j, o: j <= i + o + 1), "causal one too many"),
    "future": (corner(lambda i, j, o: j >= i + o), "causal reversed"),
    "future top-left": (corner(lambda i, j, o: j >= i), "causal reversed, other corner"),
    "inverted": (corner(lambda i, j, o: j > i + o), "causal inverted"),
    "upside down": (corner(lambda i, j, o: (j <= i + o)[::-1]), "causal rows reversed"),
    "zero": (filled(0.0), "hidden scores 0"),
    "tiny": (filled(1e-9), "hidden scores 0"),
    "product": (lambda q, k, v: mix(softmax(scaled(q, k) * ~later(q, k)), v), "hidden scores 0"),
    "added": (lambda q, k, v: mix(softmax(scaled(q, k) + ~later(q, k)), v), "mask added as 0 and 1"),
    "minus one": (filled(-1.0), "hidden scores -1"),
    "subtracted": (lambda q, k, v: mix(softmax(scaled(q, k) - later(q, k)), v), "mask added as 0 and 1"),
    "late": (lambda q, k, v: mix(softmax(scaled(q, k)) * ~later(q, k), v), "mask after softmax"),
    "first head": (on_first(1), "mask on the first head"),
    "first entry": (on_first(0), "mask on the first entry"),
    "-1e9": (filled(-1e9), RIGHT),
    "late, renormalised": (renormalised, RIGHT),
    "last key": (corner(lambda i, j, o: j < j.max() + 0 * i), "last key hidden"),
    "own key": (corner(lambda i, j, o: j == i + o), "own key only"),
}


def masks(rule, bias=None):
    """rule: what is seen, of mask (B, 1, n, n) and padding (B, 1, 1, n); bias: of (scores, bias, root d)."""

    def run(q, k, v, mask, pad, b):
        seen = rule(mask, pad[:, None, None, :])
        root = np.sqrt(q.shape[-1])
        s = dots(q, k) / root + b if bias is None else bias(dots(q, k), b, root)
        return mix(softmax(np.where(seen, s, -np.inf)), v)

    return run


def both(m, p):
    return m & p


def pad_queries(q, k, v, mask, pad, b):
    return mix(softmax(np.where(mask & pad[:, None, :, None], scaled(q, k) + b, -np.inf)), v)


def bias_late(q, k, v, mask, pad, b):
    return mix(softmax(np.where(mask & pad[:, None, None], scaled(q, k), -np.inf)) + b, v)


def mask_added(q, k, v, mask, pad, b):
    return mix(softmax(np.where(pad[:, None, None], scaled(q, k) + b + mask, -np.inf)), v)


def rows_zeroed(q, k, v, mask, pad, b):
    return masks(both)(q, k, v, mask, pad, b) * pad[:, None, :, None]


def values_zeroed(q, k, v, mask, pad, b):
    return mix(softmax(scaled(q, k) + b) * (mask & pad[:, None, None]), v)


C = {
    "right": (masks(both), RIGHT),
    "mask inverted": (masks(lambda m, p: ~m & p), "mask inverted"),
    "padding inverted": (masks(lambda m, p: m & ~p), "padding inverted"),
    "both inverted": (masks(lambda m, p: ~m & ~p), "mask and padding inverted"),
    "mask transposed": (masks(lambda m, p: np.swapaxes(m, -1, -2) & p), "mask transposed"),
    "padded queries": (pad_queries, "padding on queries"),
    "padding of entry 0": (masks(lambda m, p: m & p[:1]), "padding of the first entry"),
    "padding crossed": (masks(lambda m, p: m & p[::-1]), "padding of another entry"),
    "or": (masks(lambda m, p: m | p), "mask or padding"),
    "no padding": (masks(lambda m, p: m & np.ones_like(p)), "padding ignored"),
    "no mask": (masks(lambda m, p: np.ones_like(m) & p), "mask ignored"),
    "neither": (masks(lambda m, p: np.ones_like(m) | p), "mask and padding ignored"),
    "no bias": (masks(both, lambda s, b, r: s / r), "bias ignored"),
    "bias scaled": (masks(both, lambda s, b, r: (s + b) / r), "bias scaled too"),
    "bias subtracted": (masks(both, lambda s, b, r: s / r - b), "bias subtracted"),
    "bias multiplied": (masks(both, lambda s, b, r: s / r * b), "bias multiplied"),
    "bias late": (bias_late, "bias after softmax"),
    "bias transposed": (masks(both, lambda s, b, r: s / r + np.swapaxes(b, -1, -2)), "bias transposed"),
    "bias reversed": (masks(both, lambda s, b, r: s / r + b[::-1]), "bias heads reversed"),
    "bias of head 0": (masks(both, lambda s, b, r: s / r + b[:1]), "bias of the first head"),
    "mask added": (mask_added, "mask added as 0 and 1"),
    "rows zeroed": (rows_zeroed, "padded rows zeroed"),
    "values zeroed": (values_zeroed, "mask after softmax"),
}


def cut(x, h):
    return x.reshape(x.shape[0], x.shape[1], h, -1).transpose(0, 2, 1, 3)


def paste(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def cut_rows(x, h):
    return x.reshape(x.shape[0], h, x.shape[1], -1)


def paste_rows(x):
    return x.reshape(x.shape[0], x.shape[2], -1)


def cut_columns(x, h):
    return np.stack([x[..., a::h] for a in range(h)], 1)


def paste_columns(x):
    return np.stack(list(np.moveaxis(x, 1, 0)), -1).reshape(x.shape[0], x.shape[2], -1)


def thirds(x, w, b):
    return np.split(x @ w.T + b, 3, -1)


def layer(cut=cut, paste=paste, order=(0, 1, 2), core=right, w=None, b=None, end=None):
    def run(x, w_in, b_in, w_out, b_out, h):
        w_in = w_in if w is None else w(w_in)
        b_in = b_in if b is None else b(b_in)
        z = thirds(x, w_in, b_in)
        merged = paste(core(*(cut(z[part], h) for part in order)))
        return merged @ w_out.T + b_out if end is None else end(merged, w_out, b_out)

    return run


def tiled(rule):
    return lambda x: np.concatenate([rule(x)] * x.shape[1], -1)


def one_head(keep):
    def run(x, w, b, wo, bo, h):
        q, k, v = (z[:, None] for z in thirds(x, w, b))
        width = x.shape[-1] / h if keep else x.shape[-1]
        return mix(softmax(dots(q, k) / np.sqrt(width)), v)[:, 0] @ wo.T + bo

    return run


def fused(shape):
    def run(x, w, b, wo, bo, h):
        z, d = x @ w.T + b, x.shape[-1] // h
        if shape == "h3d":
            z = z.reshape(*z.shape[:2], h, 3, d).transpose(3, 0, 2, 1, 4)
        else:
            z = z.reshape(*z.shape[:2], h, d, 3).transpose(4, 0, 2, 1, 3)
        return paste(right(*z)) @ wo.T + bo

    return run


def without(part):
    """The biases of some thirds set to 0."""

    def change(b):
        thirds = np.split(b, 3)
        return np.concatenate([0 * t if at in part else t for at, t in enumerate(thirds)])

    return change


def transposed(w):
    return np.concatenate([third.T for third in np.split(w, 3)])


def split_first(x, w, b, wo, bo, h):
    parts, d = cut(x, h), x.shape[-1] // h
    z = [
        parts @ third[:d, :d].T + bias[:d] for third, bias in zip(np.split(w, 3), np.split(b, 3), strict=True)
    ]
    return paste(right(*z)) @ wo.T + bo


def shared_weights(q, k, v):
    return mix(np.stack([softmax(scaled(q, k)).mean(1)] * q.shape[1], 1), v)


def wide_scale(q, k, v):
    return mix(softmax(dots(q, k) / np.sqrt(q.shape[1] * q.shape[-1])), v)


D = {
    "right": (layer(), RIGHT),
    "split by view": (layer(cut_rows), "split without transpose"),
    "split and merge by view": (layer(cut_rows, paste_rows), "split and merge without transpose"),
    "merge by view": (layer(paste=paste_rows), "merge without transpose"),
    "split (d h)": (layer(cut_columns), "split as (d H)"),
    "merge (d h)": (layer(paste=paste_columns), "merge as (d H)"),
    "split and merge (d h)": (layer(cut_columns, paste_columns), "split and merge as (d H)"),
    "summed": (layer(paste=tiled(lambda x: x.sum(1))), "heads summed"),
    "averaged": (layer(paste=tiled(lambda x: x.mean(1))), "heads averaged"),
    "reversed": (layer(paste=lambda x: paste(x[:, ::-1])), "heads reversed"),
    "one head": (one_head(False), "one head"),
    "one head, old scale": (one_head(True), "one head, scaled as many"),
    "scale of the width": (layer(core=wide_scale), "scale 1/root d_model"),
    "no W_O": (layer(end=lambda m, wo, bo: m), "no output projection"),
    "no b_O": (layer(end=lambda m, wo, bo: m @ wo.T), "output bias missing"),
    "W_O transposed": (layer(end=lambda m, wo, bo: m @ wo + bo), "output weight transposed"),
    "W transposed": (layer(w=transposed), "input weights transposed"),
    "k q v": (layer(order=(1, 0, 2)), "order k q v"),
    "v k q": (layer(order=(2, 1, 0)), "order v k q"),
    "q v k": (layer(order=(0, 2, 1)), "order q v k"),
    "by heads": (fused("h3d"), "fused rows as (H 3 d)"),
    "by threes": (fused("hd3"), "fused rows as (H d 3)"),
    "last axis 3": (
        lambda x, w, b, wo, bo, h: (
            paste(right(*(cut((x @ w.T + b).reshape(*x.shape[:2], -1, 3)[..., at], h) for at in range(3))))
            @ wo.T
            + bo
        ),
        "fused rows as (H d 3)",
    ),
    "no biases": (layer(b=without((0, 1, 2))), "input biases missing"),
    "no b_Q": (layer(b=without((0,))), "query bias missing"),
    "no b_K": (layer(b=without((1,))), RIGHT),
    "no b_V": (layer(b=without((2,))), "value bias missing"),
    "one projection": (layer(order=(0, 0, 0)), "one projection for q, k and v"),
    "keys as values": (layer(order=(0, 1, 1)), "keys as values"),
    "split first": (split_first, "one projection for all heads"),
    "across the batch": (layer(core=swapped(0, 2)), "attends across the batch"),
    "no projection": (lambda x, w, b, wo, bo, h: paste(right(*[cut(x, h)] * 3)), "no projections"),
    "input added": (lambda x, *rest: x + layer()(x, *rest), "input added"),
    "mean weights": (layer(core=shared_weights), "weights averaged over heads"),
}


def by_map(of_key, of_value=None):
    """Rules on (h, H_kv, group)."""

    def run(q, k, v):
        h, kv = np.arange(q.shape[1]), k.shape[1]
        g = q.shape[1] // kv
        return right(q, k[:, of_key(h, kv, g)], v[:, (of_value or of_key)(h, kv, g)])

    return run


def straight(h, kv, g):
    return h // g


def tile(h, kv, g):
    return h % kv


def mean_heads(q, k, v):
    return right(q, *(np.concatenate([x.mean(1, keepdims=True)] * q.shape[1], 1) for x in (k, v)))


def in_groups(x, kv):
    return x.reshape(x.shape[0], kv, -1, *x.shape[2:])


def mean_queries(q, k, v):
    g = q.shape[1] // k.shape[1]
    return by_map(straight)(np.repeat(in_groups(q, k.shape[1]).mean(2), g, 1), k, v)


def grouped_out(rule):
    def run(q, k, v):
        o = in_groups(by_map(straight)(q, k, v), k.shape[1])
        return rule(o).reshape(q.shape[0], q.shape[1], q.shape[2], -1)

    return run


def along_sequence(q, k, v):
    k, v = (np.concatenate([np.repeat(x[:, :1], q.shape[1], 1)] * 2, 2) for x in (k, v))
    return right(q, k, v)


def group_scale(q, k, v):
    g = q.shape[1] // k.shape[1]
    return by_map(straight)(q / np.sqrt(g), k, v)


E = {
    "right": (by_map(straight), RIGHT),
    "tiled": (by_map(tile), "kv heads tiled"),
    "by H_kv": (by_map(lambda h, kv, g: np.minimum(h // kv, kv - 1)), "group size mistaken"),
    "values tiled": (by_map(straight, tile), "values tiled"),
    "keys tiled": (by_map(tile, straight), "keys tiled"),
    "first": (by_map(lambda h, kv, g: 0 * h), "first kv head for all"),
    "last": (by_map(lambda h, kv, g: 0 * h + kv - 1), "last kv head for all"),
    "reversed": (by_map(lambda h, kv, g: kv - 1 - h // g), "groups reversed"),
    "tiled, reversed": (by_map(lambda h, kv, g: kv - 1 - h % kv), "kv heads tiled, reversed"),
    "mean of heads": (mean_heads, "kv heads averaged"),
    "mean of queries": (mean_queries, "queries averaged"),
    "merged crosswise": (
        grouped_out(lambda o: o.transpose(0, 2, 1, 3, 4)),
        "groups merged in the wrong order",
    ),
    "along the sequence": (along_sequence, "first kv head for all"),
    "scale of the group": (group_scale, "scale of the group"),
    "summed": (grouped_out(lambda o: np.repeat(o.sum(2, keepdims=True), o.shape[2], 2)), "groups summed"),
}


def turn(x, angle, pairs="half"):
    """Complex numbers do the turning: (a, b) is a + ib."""
    half = x.shape[-1] // 2
    a, b = (x[..., :half], x[..., half:]) if pairs == "half" else (x[..., 0::2], x[..., 1::2])
    z = (a + 1j * b) * np.exp(1j * angle)
    if pairs == "half":
        return np.concatenate([z.real, z.imag], -1)
    return np.stack([z.real, z.imag], -1).reshape(x.shape)


def angles(n, d, base, start=0):
    return (start + np.arange(n))[:, None] / base ** (2 * np.arange(d // 2) / d)


def rope(of_query, of_key=None, of_value=None):
    """Rules on (array, its angles)."""

    def run(q, k, v, base):
        a = angles(q.shape[2], q.shape[3], base)
        return right(of_query(q, a), (of_key or of_query)(k, a), v if of_value is None else of_value(v, a, q))

    return run


def by_angle(change):
    return rope(lambda x, a: turn(x, change(a)))


def mixture(x, a, table, partner):
    return x * table(np.cos(a)) + partner(x) * table(np.sin(a))


def half_partner(x):
    d = x.shape[-1] // 2
    return np.concatenate([-x[..., d:], x[..., :d]], -1)


def next_partner(x):
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def pair(rule):
    def one(x, a):
        d = x.shape[-1] // 2
        return np.concatenate(rule(x[..., :d], x[..., d:], np.cos(a), np.sin(a)), -1)

    return rope(one)


def wide_values(v, a, q):
    d = q.shape[-1]
    wide = np.concatenate([v, np.zeros((*v.shape[:-1], max(d - v.shape[-1], 0)))], -1)
    return turn(wide[..., :d], a)[..., : v.shape[-1]]


def plain(x, a):
    return x


def first_quarter(x, a):
    d = x.shape[-1]
    return np.concatenate([turn(x[..., : d // 2], a[:, : d // 4]), x[..., d // 2 :]], -1)


def other_base(factor):
    def run(q, k, v, base):
        return rope(turn)(q, k, v, base * factor)

    return run


def slow_exponent(q, k, v, base):
    d = q.shape[-1]
    a = np.arange(q.shape[2])[:, None] / base ** (np.arange(d // 2) / d)
    return right(turn(q, a), turn(k, a), v)


def step(a):
    """The angles of position 1, one row."""
    return a[1:2] - a[:1]


def overwritten(a, b, c, s):
    first = a * c - b * s
    return first, b * c + first * s


F = {
    "right": (rope(turn), RIGHT),
    "interleaved": (rope(lambda x, a: turn(x, a, "next")), "rotary pairs of the other layout"),
    "mixed": (
        rope(lambda x, a: mixture(x, a, lambda t: np.repeat(t, 2, -1), half_partner)),
        "rotary layouts mixed",
    ),
    "mixed, reverse": (
        rope(lambda x, a: mixture(x, a, lambda t: np.concatenate([t, t], -1), next_partner)),
        "rotary layouts mixed, reverse",
    ),
    "none": (rope(plain), "no rotation"),
    "queries only": (rope(turn, plain), "only queries turned"),
    "keys only": (rope(plain, turn), "only keys turned"),
    "values too": (rope(turn, None, wide_values), "values turned too"),
    "backwards": (by_angle(lambda a: -a), "rotation backwards"),
    "opposite": (rope(turn, lambda x, a: turn(x, -a)), "keys turned backwards"),
    "twice": (rope(lambda x, a: turn(turn(x, a), a)), "rotated twice"),
    "base x 10": (other_base(10), "base ten times larger"),
    "exponent i/d": (slow_exponent, "exponent i/d"),
    "exponent of d_model": (slow_exponent, "exponent i/d"),
    "reversed frequencies": (by_angle(lambda a: a[:, ::-1]), "frequencies reversed"),
    "from 1": (by_angle(lambda a: a + step(a)), RIGHT),
    "queries from 1": (rope(lambda x, a: turn(x, a + step(a)), turn), "query positions one ahead"),
    "keys at 0": (rope(turn, lambda x, a: turn(x, 0 * a)), "only queries turned"),
    "reversed positions": (by_angle(lambda a: a[::-1]), "rotation backwards"),
    "cosine for sine": (pair(lambda a, b, c, s: (a * s - b * c, b * s + a * c)), "rotation backwards"),
    "no minus": (pair(lambda a, b, c, s: (a * c + b * s, b * c + a * s)), "rotation without minus"),
    "overwritten": (pair(overwritten), "second half from turned first"),
    "half of them": (rope(first_quarter), "half of the features turned"),
    "degrees": (by_angle(lambda a: a * np.pi / 180), "angle in degrees"),
    "sinusoids": (rope(lambda x, a: x + np.concatenate([np.sin(a), np.cos(a)], -1)), "sinusoids added"),
    "half as far": (by_angle(lambda a: a / 2), "positions halved"),
}


def attend(q, k, v, offset):
    i, j = rows(q, k)
    return mix(softmax(np.where(j <= i + offset, scaled(q, k), -np.inf)), v)


def at(x, places, base):
    frequency = base ** (-2 * np.arange(x.shape[-1] // 2) / x.shape[-1])
    return turn(x, np.asarray(places, float)[:, None] * frequency)


def front(a, b):
    return np.concatenate([a, b], 2)


def cached(
    offset=lambda p, n: p,
    past=None,
    places_q=lambda p, n: range(p, p + n),
    places_k=None,
    join=None,
):
    """offset, places: rules on (P, n); past: on (past keys, past values, base); join: of the four parts."""
    key_places = places_q if places_k is None else places_k

    def run(pk, pv, q, k, v, base):
        p, n = pk.shape[2], q.shape[2]
        pk, pv = (at(pk, range(p), base), pv) if past is None else past(pk, pv, base)
        q, k = at(q, places_q(p, n), base), at(k, key_places(p, n), base)
        keys, values = (front(pk, k), front(pv, v)) if join is None else join(pk, pv, k, v)
        return attend(q, keys, values, offset(p, n))

    return run


def turned_past(change):
    return lambda pk, pv, base: change(at(pk, range(pk.shape[2]), base), pv)


def again(pk, pv, base):
    places = range(pk.shape[2])
    return at(at(pk, places, base), places, base), pv


def straight_on(p, n):
    return range(p, p + n)


def empty_slot(pk, pv, q, k, v, base):
    p, n = pk.shape[2], q.shape[2]
    q, k = at(q, straight_on(p, n), base), front(at(pk, range(p), base), at(k, straight_on(p, n), base))
    slot = np.zeros_like(k[:, :, :1])
    return right(q, front(k, slot), front(front(pv, v), np.zeros_like(v[:, :, :1])))


G = {
    "right": (cached(), RIGHT),
    "top-left": (cached(lambda p, n: 0), "causal as without cache"),
    "not causal": (cached(lambda p, n: 99), "causal ignored"),
    "one more": (cached(lambda p, n: p + 1), "cache offset one too many"),
    "one fewer": (cached(lambda p, n: p - 1), "cache offset one too few"),
    "behind": (cached(join=lambda pk, pv, k, v: (front(k, pk), front(v, pv))), "cache behind"),
    "ignored": (cached(lambda p, n: 0, join=lambda pk, pv, k, v: (k, v)), "cache ignored"),
    "new ones missing": (
        cached(lambda p, n: 99, join=lambda pk, pv, k, v: (pk, pv)),
        "new tokens not appended",
    ),
    "values behind": (cached(join=lambda pk, pv, k, v: (front(pk, k), front(v, pv))), "cached values behind"),
    "restart": (cached(places_q=lambda p, n: range(n)), "positions restart"),
    "queries restart": (
        cached(places_q=lambda p, n: range(n), places_k=straight_on),
        "query positions restart",
    ),
    "one place": (cached(places_q=lambda p, n: [p] * n), "one position for all new tokens"),
    "one ahead": (cached(places_q=lambda p, n: range(p + 1, p + 1 + n)), "positions one ahead"),
    "turned again": (cached(past=again), "cached keys turned again"),
    "never turned": (cached(past=lambda pk, pv, base: (pk, pv)), "cached keys never turned"),
    "entry 0": (
        cached(past=turned_past(lambda k, v: (k[:1] + 0 * k, v[:1] + 0 * v))),
        "cache of the first entry",
    ),
    "crossed": (cached(past=turned_past(lambda k, v: (k[::-1], v[::-1]))), "cache of another entry"),
    "evicted": (
        cached(lambda p, n: p - 1, past=turned_past(lambda k, v: (k[:, :, 1:], v[:, :, 1:]))),
        "first cached key dropped",
    ),
    "overwritten": (
        cached(lambda p, n: p - 1, past=turned_past(lambda k, v: (k[:, :, :-1], v[:, :, :-1]))),
        "last cached key overwritten",
    ),
    "reversed": (
        cached(join=lambda pk, pv, k, v: (front(pk, k[:, :, ::-1]), front(pv, v[:, :, ::-1]))),
        "new tokens in reverse",
    ),
    "empty slot": (empty_slot, "empty slot attended"),
}


def window(seen=None, cap=None, after=None):
    """seen: a rule on (row, key, W, n); cap: on (raw scores, c, root d); after: on (weights, c)."""

    def run(q, k, v, c, w):
        i, j = rows(q, k)
        root = np.sqrt(q.shape[-1])
        s = c * np.tanh(scaled(q, k) / c) if cap is None else cap(dots(q, k), c, root)
        keep = (j <= i) & (j >= i - w) if seen is None else seen(i, j, w, k.shape[2])
        p = softmax(np.where(keep, s, -np.inf))
        return mix(p if after is None else after(p, c), v)

    return run


def cap_last(q, k, v, c, w):
    i, j = rows(q, k)
    return mix(softmax(c * np.tanh(np.where((j <= i) & (j >= i - w), scaled(q, k), -np.inf) / c)), v)


H = {
    "right": (window(), RIGHT),
    "no cap": (window(cap=lambda s, c, r: s / r), "no soft cap"),
    "cap last": (cap_last, "soft cap after mask"),
    "cap first": (window(cap=lambda s, c, r: c * np.tanh(s / c) / r), "soft cap before scaling"),
    "tanh alone": (window(cap=lambda s, c, r: np.tanh(s / r / c)), "tanh without cap"),
    "no division": (window(cap=lambda s, c, r: c * np.tanh(s / r)), "tanh without division"),
    "clipped": (window(cap=lambda s, c, r: np.clip(s / r, -c, c)), "hard clip"),
    "weights capped": (
        window(cap=lambda s, c, r: s / r, after=lambda p, c: c * np.tanh(p / c)),
        "soft cap on weights",
    ),
    "W in all": (window(lambda i, j, w, n: (j <= i) & (j > i - w)), "window one too few"),
    "W + 1": (window(lambda i, j, w, n: (j <= i) & (j >= i - w - 1)), "window one too many"),
    "both ways": (window(lambda i, j, w, n: abs(i - j) <= w), "window both ways"),
    "no window": (window(lambda i, j, w, n: j <= i), "window ignored"),
    "not causal": (window(lambda i, j, w, n: j >= i - w), "window without causal"),
    "forwards": (window(lambda i, j, w, n: (j >= i) & (j <= i + w)), "window into the future"),
    "at the end": (window(lambda i, j, w, n: (j <= i) & ((j >= n - 1 - w) | (j == i))), "window at the end"),
    "blocks": (window(lambda i, j, w, n: (j <= i) & (i // (w + 1) == j // (w + 1))), "window in blocks"),
    "without itself": (window(lambda i, j, w, n: (j < i) & (j >= i - w)), "window without itself"),
}


def of_mask(fn, case):
    return fn(case.query, case.key, case.value, case.mask, case.padding, case.bias)


def of_layer(fn, case):
    return fn(case.x, case.w_in, case.b_in, case.w_out, case.b_out, case.num_heads)


def of_plain(fn, case):
    return fn(case.query, case.key, case.value)


def of_rope(fn, case):
    return fn(case.query, case.key, case.value, BASE)


def of_cache(fn, case):
    return fn(case.past_key, case.past_value, case.query, case.key, case.value, BASE)


def of_window(fn, case):
    return fn(case.query, case.key, case.value, CAP, WINDOW)


FAMILIES = {
    "A": (of_plain, (), A),
    "B": (of_plain, ("causal",), B),
    "C": (of_mask, ("mask", "padding", "bias"), C),
    "D": (of_layer, ("layer",), D),
    "E": (of_plain, ("gqa",), E),
    "F": (of_rope, ("rope",), F),
    "G": (of_cache, ("cache", "rope", "causal"), G),
    "H": (of_window, ("softcap", "window", "causal"), H),
}
