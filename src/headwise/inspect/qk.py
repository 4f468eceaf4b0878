"""Scoring arrays that come from elsewhere: query and key of one or more layers, without a model."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.compute.arrays import integers, take
from headwise.compute.problem import build_problem
from headwise.errors import HeadwiseError, ShapeError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.marks import booleans_at
from headwise.inspect.call.text import Text
from headwise.inspect.report.assemble import assemble
from headwise.inspect.report.report import HeadReport
from headwise.inspect.score.scorer import Scorer
from headwise.inspect.watch.watchers import Watchers

PLACED = (
    "is_causal",
    "causal_alignment",
    "query_offset",
    "window_size",
)  # options that say where queries stand


def inspect_qk(
    query: Any,
    key: Any,
    value: Any = None,
    *,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    ids: Any = None,
    key_ids: Any = None,
    special: Sequence[int] | None = None,
    key_special: Sequence[int] | None = None,
    classes: Mapping[str, Sequence[int] | Sequence[str]] | None = None,
    pairs: Sequence[Sequence[int]] | None = None,
    pair_candidates: Sequence[int] | None = None,
    pairs_both_ways: bool = False,
    redundancy: bool = True,
    rollout: Any = None,
    is_causal: bool = False,
    causal_alignment: str | None = None,
    query_offset: int | None = None,
    window_size: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Any = None,
    attn_mask: Any = None,
    attn_bias: Any = None,
    segment_ids: Any = None,
    name: str = "arrays",
    source: str | None = None,
    text_source: str | None = None,
    notes: Sequence[str] = (),
    num_threads: int | None = None,
) -> HeadReport:
    """Score attention heads from their queries and keys, wherever these come from.

    The scores are those of ``inspect_heads``; no n_q x n_k array is made. Layers are numbered from 0 in their
    order. Where n_q != n_k, and nothing says where the queries stand among the keys, the layers are taken for
    cross-attention: scores of positions give way to those of the attended position and of alignment.

    Args:
        query: (H, n_q, d_k), or (layers, H, n_q, d_k), or a list with one (H, n_q, d_k) per layer; (n_q, d_k)
            is one head of one layer. NumPy, torch (CPU) or JAX (CPU), float32 or float64, as the model has
            them when it multiplies them: rotated, and not yet scaled.
        key: the same with H_kv heads and n_k tokens.
        value: the same with H_kv heads, n_k tokens and any width; None leaves output norms out.
        tokens: n_q strings to show; key_tokens: n_k, in cross-attention. None shows the ids.
        ids, key_ids: token ids, for duplicate and induction scores.
        special, key_special: positions of special tokens, from 0.
        classes: name -> positions of keys, or tokens as they are shown: the weight on each class becomes a
            score.
        pairs: gold pairs (query, key): for every head, how often its strongest key is a gold one, and the
            weight on them.
        pair_candidates: positions among which the strongest key is sought; None: all keys.
        pairs_both_ways: score w[i, j] + w[j, i] instead of w[i, j].
        redundancy: whether to compare all heads with each other.
        rollout: None; or how many groups of tokens, or the groups as (start, stop): attention rollout from
            layer to layer, between groups.
        is_causal, causal_alignment, query_offset, window_size, scale, softcap, sinks, attn_mask, attn_bias,
            segment_ids: as for ``headwise.attention``, the same for every layer.
        name, source, text_source, notes: what the report says about where all this comes from.
        num_threads: threads of our kernel; None: its own default.

    Raises:
        ShapeError, DtypeError, HeadwiseError: arrays or options that do not fit; the message names them.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> report = inspect_qk(*rng.standard_normal((2, 4, 9, 16)), is_causal=True)
    >>> report
    HeadReport(arrays, 1 layers x 4 heads, 9 tokens)
    >>> round(report.layers[0]["heads"][2]["scores"]["entropy"]["null"], 4)  # mean of ln 1, ln 2, ... ln 9
    1.4224
    """
    queries, keys = _layers("query", query), _layers("key", key)
    values: list[Any] = [None] * len(queries) if value is None else _layers("value", value)
    for argument, found in (("key", keys), ("value", values)):
        if len(found) != len(queries):
            expected = f"{len(queries)} layers, as query has"
            raise ShapeError(argument, expected, f"{len(found)} layers")
    n_q, n_k = queries[0].shape[-2], keys[0].shape[-2]
    _same_lengths("query", queries, n_q)
    _same_lengths("key", keys, n_k)
    if not n_q or not n_k:
        raise ShapeError("query and key", "at least one token each", f"{n_q} queries and {n_k} keys")
    given = {
        "is_causal": is_causal,
        "window_size": window_size,
        "query_offset": _offset(causal_alignment, query_offset, n_q, n_k),
        "scale": scale,
        "softcap": softcap,
        "sinks": sinks,
        "attn_mask": attn_mask,
        "attn_bias": attn_bias,
        "segment_ids": _segments(segment_ids),
    }
    options = {
        option: number for option, number in given.items() if number is not None and number is not False
    }
    cross = n_q != n_k and not any(option in options for option in PLACED)
    for option in ("is_causal", "window_size"):
        if n_q != n_k and option in options and "query_offset" not in options:
            hint = "query_offset=n_k - n_q for queries at the end of the keys"
            raise ShapeError(option, "query_offset= or causal_alignment= beside it, as n_q != n_k",
                             f"{n_q} queries and {n_k} keys", hint)  # fmt: skip
    for q, k, v in zip(queries, keys, values, strict=True):
        _check(q[None], k[None], None if v is None else v[None], options)
    texts = _texts(n_q, n_k, cross, tokens, key_tokens, ids, key_ids, special, key_special, classes)
    scorer = Scorer(sum(layer.shape[-3] for layer in queries), num_threads)
    watchers = Watchers(
        pairs=pairs,
        pair_candidates=pair_candidates,
        pairs_both_ways=pairs_both_ways,
        redundancy=redundancy,
        rollout=rollout,
        heads=scorer.heads,
    ).attach(scorer, *texts)
    for number, (q, k, v) in enumerate(zip(queries, keys, values, strict=True)):
        call = AttentionCall(
            layer=number,
            name=f"layer {number}",
            kind="cross" if cross else "self",
            query=q[None],
            key=k[None],
            value=None if v is None else v[None],
            options=options,
        )
        scorer.observe(call, *texts)
    heads = max(layer.shape[-3] for layer in queries)
    return assemble(
        scorer.entries(),
        model={
            "name": name,
            "source": source or "",
            "architecture": "query and key",
            "layers": len(queries),
            "heads": heads,
            "kv_heads": max(layer.shape[-3] for layer in keys),
            "head_dim": int(queries[0].shape[-1]),
            "causal": bool(is_causal),
        },
        text_source=text_source,
        notes=notes,
        watchers=watchers.report,
    )


def _check(query: Any, key: Any, value: Any, options: Mapping[str, Any]) -> None:
    """Refuse what ``headwise.attention`` would, before anything is computed."""
    given = dict(options)
    (q, k, v, mask, bias), _ = take(
        {
            "query": query,
            "key": key,
            "value": key if value is None else value,
            "attn_mask": given.pop("attn_mask", None),
            "attn_bias": given.pop("attn_bias", None),
        }
    )
    build_problem(q, k, None if value is None else v, mask, attn_bias=bias, **given)


def _layers(argument: str, given: Any) -> list[npt.NDArray[Any]]:
    """One (H, n, d) view per layer."""
    listed = isinstance(given, list | tuple)
    if listed and not given:
        raise ShapeError(argument, "at least one layer", "an empty list")
    arrays = [take({argument: part})[0][0] for part in (given if listed else [given])]
    most = 3 if listed else 4
    for array in arrays:
        if not 2 <= array.ndim <= most:
            expected = "(H, n, d) per layer" if listed else "(H, n, d), (layers, H, n, d) or (n, d)"
            hint = "one sequence at a time: call once per batch entry" if array.ndim > most else ""
            raise ShapeError(argument, expected, f"shape {array.shape}", hint)
    if not listed and arrays[0].ndim == 4:
        arrays = list(arrays[0])
        if not arrays:
            raise ShapeError(argument, "at least one layer", "none")
    return [array[None] if array.ndim == 2 else array for array in arrays]


def _same_lengths(argument: str, layers: Sequence[npt.NDArray[Any]], n: int) -> None:
    for number, layer in enumerate(layers):
        if layer.shape[-2] != n:
            received = f"{layer.shape[-2]} in layer {number}"
            raise ShapeError(argument, f"{n} tokens in every layer", received)


def _offset(alignment: str | None, offset: Any, n_q: int, n_k: int) -> int | None:
    if alignment is None:
        if offset is not None and (isinstance(offset, bool) or not isinstance(offset, int | np.integer)):
            raise HeadwiseError("query_offset", "a whole number", repr(offset)[:60])
        return None if offset is None else int(offset)
    if offset is not None:
        raise HeadwiseError("query_offset", "query_offset or causal_alignment, not both", "both")
    if alignment not in ("upper_left", "lower_right"):
        raise HeadwiseError("causal_alignment", '"upper_left" or "lower_right"', repr(alignment)[:60])
    return 0 if alignment == "upper_left" else n_k - n_q


def _segments(given: Any) -> Any:
    if given is None:
        return None
    pair = given if isinstance(given, tuple) else (given, given)
    return tuple(integers("segment_ids", part).reshape(1, -1) for part in pair)


def _texts(
    n_q: int,
    n_k: int,
    cross: bool,
    tokens: Any,
    key_tokens: Any,
    ids: Any,
    key_ids: Any,
    special: Any,
    key_special: Any,
    classes: Any,
) -> tuple[Text, Text]:
    """What the queries and the keys are: one text, or two."""
    one = n_q == n_k and key_tokens is None and key_ids is None and key_special is None
    queries = Text(
        n_q,
        _ids("ids", ids, n_q),
        booleans_at("special", special, n_q),
        name="text",
        words=_words("tokens", tokens, n_q),
    )
    if one:
        queries = queries.with_classes(classes)
        return queries, queries
    keys = Text(
        n_k,
        _ids("key_ids", key_ids, n_k),
        booleans_at("key_special", key_special, n_k),
        name="source" if cross else "keys",
        words=_words("key_tokens", key_tokens, n_k),
    )
    return queries, keys.with_classes(classes)


def _ids(argument: str, given: Any, n: int) -> npt.NDArray[np.int64] | None:
    if given is None:
        return None
    found = integers(argument, given)
    if found.shape != (n,):
        raise ShapeError(argument, f"{n} token ids", f"shape {found.shape}")
    return found


def _words(argument: str, given: Any, n: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or len(given) != n:
        received = "one string" if isinstance(given, str) else f"{len(given)}"
        raise HeadwiseError(
            argument, f"{n} strings, one per token", received, f"leave {argument} out to show ids"
        )
    return tuple(str(word) for word in given)
