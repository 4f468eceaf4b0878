"""What a head writes: the norms of its outputs, and the first token weighed by the norms of the values."""

from typing import Any

import numpy as np

from headwise.inspect.call.rows import Rows, plain
from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import Mean, mean_over, ratio_over
from headwise.plain.types import Array, Booleans, Floats


def _output_norm(m: Measured) -> Mean | None:
    """Of the model's own output where it is known; else of the sample's attention over the values."""
    if m.uniform:
        return _norms(_equal(m, m.values)[0], _every(m))
    if m.call.output is not None:
        return _norms(plain(m.call.output)[0], m.visible.rows)
    if m.call.value is not None:
        return _norms(m.sample.attend(m.values)[0], m.sample_of)
    return None


def _first_by_norm(m: Measured) -> Mean | None:
    if m.call.value is None:
        return None
    if m.uniform:
        sizes = np.linalg.norm(m.values, axis=-1, keepdims=True)
        weighted, first = _equal(m, sizes)
        of_first = first * _each_head(sizes[:, 0, 0], m.heads)[:, None]
        return ratio_over(of_first, weighted[..., 0], _every(m), _every(m))
    off = m.off_first
    assert off.sizes is not None and off.blended is not None
    of_first = m.mass("first")[:, m.sample.at] * _each_head(off.sizes[:, 0, 0], m.heads)[:, None]
    every = of_first + off.rest * off.blended
    return ratio_over(of_first, every, np.isfinite(every), m.sample_of)


def _norms(output: Array, of: Booleans) -> Mean:
    """‖output‖ over rows; output is (H, r, d_v)."""
    return mean_over(np.sqrt(np.einsum("hrd,hrd->hr", output, output).astype(np.float64)), of, of)


def _every(m: Measured) -> Booleans:
    return np.broadcast_to(m.sample_of, (m.heads, m.sample_of.shape[-1]))


def _equal(m: Measured, values: Array) -> tuple[Floats, Floats]:
    """The mean (H, r, d) of the values (H_kv, n_k, d) that each row of the sample sees, and the weight of
    its first key, (1, r) or (H, r)."""
    options: dict[str, Any] = m.equal or {}
    if set(options) <= {"is_causal", "query_offset"}:
        return _plain_means(m.sample, values, bool(options.get("is_causal")))
    call = m.sample.call
    query = np.zeros((*call.query.shape[:-1], 1), call.query.dtype)
    key = np.zeros((*call.key.shape[:-1], 1), call.key.dtype)
    means, found = m.sample.changed(query=query, key=key, options=options).attend(values, sink_mass=1)
    return means, np.nan_to_num(found["sink_mass"])


def _plain_means(rows: Rows, values: Array, is_causal: bool) -> tuple[Floats, Floats]:
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


def _each_head(of_key_heads: Array, heads: int) -> Floats:
    """(H_kv,) -> (H,): query head h uses key head h // (H / H_kv)."""
    return np.repeat(of_key_heads.astype(np.float64), heads // len(of_key_heads))


SCORES = (
    Score("output_norm", "Output norm", "", "how long the head's output is: ‖Σ w v‖, mean over queries",
          "‖mean of the visible values‖, over a sample of the queries in long texts", "writes much",
          over="queries (a sample of them in long texts where only query, key and value are known)",
          source="Kobayashi et al. 2020, before W_O", group="values", range=(0.0, None), measure=_output_norm,
          of_values=True),
    Score("first_by_norm", "First token, by norm", "",
          "share of the first token when each weight counts by the norm of its value: w ‖v‖ / Σ w ‖v‖",
          "the same of uniform attention", "the first token is used, not only looked at",
          over="the weighted norms of all queries (a sample of them in long texts)",
          source="Kobayashi et al. 2020, before W_O", group="values", measure=_first_by_norm, kind="self",
          of_values=True),
)  # fmt: skip
