"""Scores that need a pass of their own: taken from every row of a short text, from passages of a long one.

Each function takes the rows (``rows.Rows``) and what the main pass knows of them, and gives sums. ``of`` is
(1, r) or (H, r): the rows that see a key.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.inspect.score.rows import Rows, plain
from headwise.inspect.score.tally import Alignment, Booleans, Floats, Mean, mean_over, ratio_over


def without_first(
    rows: Rows, lse: Floats, first: Floats, of: Booleans, value: Any, is_special: Booleans | None
) -> dict[str, Mean]:
    """Distance over the weight off the first token; with values, the first token's share by norm; and the
    confidence, where the first token is the only special one.

    Args:
        lse, first: (H, r) of the main pass: log-sum-exp, and the mass on the first token.
        value: (1, H_kv, n_k, d_v), or None.
        is_special: (r,) the special rows, or None where confidence is not asked for.
    """
    hide = np.arange(rows.n_k) == 0
    asked = {
        "lse": True,
        "distance": True,
        "max_weight": is_special is not None,
        "sink_logit_mass": rows.call.options.get("sinks") is not None,
    }
    sizes = None
    if value is None:
        found = rows.statistics(hide, **asked)
    else:
        sizes = np.linalg.norm(plain(value)[0], axis=-1, keepdims=True)
        output, found = rows.attend(sizes, hide, **asked)
    rest = _left(found["lse"], lse)
    away = np.isfinite(found["distance"])
    weight = rest * (1.0 - np.nan_to_num(found["sink_logit_mass"])) if asked["sink_logit_mass"] else rest
    means = {"distance_without_first": ratio_over(rest * found["distance"], weight, away, of)}
    if is_special is not None:
        means["confidence"] = _confidence(found, lse, of, is_special)
    if sizes is not None:
        of_first = first * _each_head(sizes[:, 0, 0], len(lse))[:, None]
        every = of_first + rest * output[..., 0]
        means["first_by_norm"] = ratio_over(of_first, every, np.isfinite(every), of)
    return means


def _left(hidden: Floats, whole: Floats) -> Floats:
    """The part of the softmax denominator that is left with some keys hidden; 0 in rows that see nothing."""
    with np.errstate(invalid="ignore"):
        left: Floats = np.where(hidden == -np.inf, 0.0, np.exp(hidden - whole))
    return left


def confidence(rows: Rows, lse: Floats, special: Booleans, of: Booleans, is_special: Booleans) -> Mean:
    """The largest weight on a key that is no special token, over rows that are none.

    Args:
        special: (n_k,) the special keys; is_special: (r,) the special rows.
    """
    return _confidence(rows.statistics(special, lse=True, max_weight=True), lse, of, is_special)


def _confidence(found: dict[str, Floats], lse: Floats, of: Booleans, is_special: Booleans) -> Mean:
    largest = _left(found["lse"], lse) * found["max_weight"]
    return mean_over(largest, np.isfinite(found["max_weight"]) & ~is_special, of)


def norms(output: npt.NDArray[Any], of: Booleans) -> Mean:
    """‖output‖ over rows; output is (H, r, d_v)."""
    return mean_over(np.sqrt(np.einsum("hrd,hrd->hr", output, output).astype(np.float64)), of, of)


def uniform_norms(rows: Rows, value: Any, of: Booleans, options: dict[str, Any]) -> dict[str, Mean]:
    """What equal weights give: ‖mean of the visible values‖ of each head, the first token's share by norm.

    Args:
        options: those of the uniform call.
    """
    call, values = rows.call, plain(value)[0]
    heads = call.query.shape[-3]
    sizes = np.linalg.norm(values, axis=-1, keepdims=True)
    every = np.broadcast_to(of, (heads, of.shape[-1]))
    if set(options) <= {"is_causal", "query_offset"}:
        means, first = _plain_means(rows, values, bool(options.get("is_causal")))
        weighted, _ = _plain_means(rows, sizes, bool(options.get("is_causal")))
    else:
        query = np.zeros((*call.query.shape[:-1], 1), call.query.dtype)
        key = np.zeros((*call.key.shape[:-1], 1), call.key.dtype)
        equal = rows.changed(query=query, key=key, options=options)
        means, _ = equal.attend(values)
        weighted, found = equal.attend(sizes, sink_mass=1)
        first = np.nan_to_num(found["sink_mass"])
    found_means = {"output_norm": norms(means, every)}
    if call.kind == "self":
        of_first = first * _each_head(sizes[:, 0, 0], heads)[:, None]
        found_means["first_by_norm"] = ratio_over(of_first, weighted[..., 0], every, every)
    return found_means


def _plain_means(rows: Rows, values: npt.NDArray[Any], is_causal: bool) -> tuple[Floats, Floats]:
    """The mean (H, r, d) of the values that each row sees, from running sums, and the weight (1, r) of the
    first; for causal attention or for rows that see everything."""
    n_k, heads = values.shape[1], rows.call.query.shape[-3]
    seen = np.full(len(rows.at), n_k)
    if is_causal:
        seen = np.clip(rows.at + rows.start + 1, 0, n_k)
    stops, where = np.unique(np.maximum(seen, 1), return_inverse=True)
    starts = np.append(0, stops[:-1])
    between = np.add.reduceat(values[:, : stops[-1]], starts, axis=1, dtype=np.float64)
    sums = np.cumsum(between, axis=1)[:, where]
    means = np.where(seen[:, None] > 0, sums / np.maximum(seen, 1)[:, None], 0.0)
    first = np.where(seen > 0, 1 / np.maximum(seen, 1), 0.0)[None]
    return np.repeat(means, heads // len(means), axis=0), first


def _each_head(of_key_heads: npt.NDArray[Any], heads: int) -> Floats:
    """(H_kv,) -> (H,): query head h uses key head h // (H / H_kv)."""
    return np.repeat(of_key_heads.astype(np.float64), heads // len(of_key_heads))


def own_norms(rows: Rows, value: Any, of: Booleans) -> Mean:
    """‖output‖ where the model's own output is not known: attention of the rows over the values."""
    return norms(rows.attend(plain(value)[0])[0], of)


def attended_positions(rows: Rows, of: Booleans, places: Floats) -> tuple[dict[str, Mean], Alignment]:
    """Where the attended keys stand, how far they spread, and whether they move along with the queries.

    In float64: a spread of one token among thousands would drown in float32.

    Args:
        places: (r,) where the rows stand in their own text.
    """
    call = rows.call
    options = dict(call.options)
    for name in ("attn_mask", "attn_bias"):
        if options.get(name) is not None and options[name].dtype != np.bool_:
            options[name] = options[name].astype(np.float64)
    wide = rows.changed(
        query=call.query.astype(np.float64),
        key=np.broadcast_to(call.key[:1].astype(np.float64), call.key.shape),
        options=options,
    )
    centre = (rows.n_k - 1) / 2
    at = np.arange(rows.n_k) - centre
    output, found = wide.attend(np.stack([at, at**2, np.ones_like(at)], axis=-1)[None])
    mass = np.where(output[..., 2] > 0, output[..., 2], np.nan)  # 1 but for sink logits
    mean, square = output[..., 0] / mass, output[..., 1] / mass
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    sees = np.isfinite(mean)
    means = {"expected_key": mean_over(mean + centre, sees, of), "key_spread": mean_over(spread, sees, of)}
    entered = sees & of
    x, y = np.broadcast_to(places, mean.shape), np.where(entered, mean, 0.0)
    parts = [np.ones_like(mean), x, y, x * x, y * y, x * y]
    sums = np.stack([np.where(entered, part, 0.0).sum(axis=1) for part in parts], axis=1)
    return means, Alignment(sums)
