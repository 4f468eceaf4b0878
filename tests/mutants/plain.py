"""Attention in plain NumPy, whole matrices at a time, right or with one classic fault put in.

It stands in for `headwise.attention` in the tests, to see whether they notice. Refusals are the real ones.
"""

import numpy as np
import torch

import headwise
from headwise.compute.problem import build_problem
from headwise.compute.request import Aux
from headwise.reference.dropout import dropout_factors
from headwise.reference.statistics import dense_statistics
from headwise.reference.visibility import per_batch

FAULTS = {
    # scores
    "scale left out": "the scores are not scaled",
    "scale 1/d": "the square root is missing",
    "scale of the whole layer": "1/sqrt(H d_k) in place of 1/sqrt(d_k)",
    "keys reshaped": "the keys are reshaped to (d, n) in place of transposed",
    "heads tiled": "query head h uses key head h % H_kv",
    "first batch entry": "the keys of batch entry 0 serve all",
    "soft cap last": "the soft cap comes after bias and mask",
    "bias scaled": "the bias is scaled with the scores",
    "slopes one-sided": "ALiBi without the absolute value",
    # who sees whom
    "mask inverted": "True hides",
    "mask added": "the boolean mask is added as 0 and 1",
    "mask finite": "hidden scores are set to -1e4",
    "mask late": "weights are hidden after the softmax and not renormalised",
    "mask of entry 0": "the mask of batch entry 0 serves all",
    "causal strict": "the own position is hidden",
    "causal upper left": "offsets are ignored",
    "window wider": "one key more to the left",
    "lengths one more": "the first padded key is seen",
    "lengths of entry 0": "the lengths of batch entry 0 serve all",
    "segments ignored": "packed sequences see each other",
    # softmax
    "over queries": "the softmax runs over the queries",
    "no maximum": "exp without subtracting the maximum",
    "maximum from zero": "the running maximum starts at 0",
    "not normalised": "exp is not divided by its sum",
    "extra one": "the denominator has 1 more",
    "sinks left out": "sink logits are not in the denominator",
    "empty rows average": "a row that sees nothing takes the mean of all values",
    "empty rows NaN": "a row that sees nothing is 0 / 0",
    # values and after
    "last key lost": "the last key is skipped where no tile of 64 ends with it",
    "NaN times zero": "hidden values are multiplied by 0",
    "float32 underneath": "float64 is computed in float32",
    "dropout not rescaled": "kept weights do not grow",
    "dropout always": "a tenth is dropped when nobody asked",
    "head mask squared": "the head mask is applied twice",
}


def attention_with(fault=None):
    """The stand-in; ``fault`` is a name of FAULTS, or None for the right one."""
    assert fault is None or fault in FAULTS

    def attention(
        query,
        key,
        value,
        attn_mask=None,
        dropout_p=0.0,
        is_causal=False,
        scale=None,
        enable_gqa=None,
        **options,
    ):
        positional = (attn_mask, dropout_p, is_causal, scale, enable_gqa)
        real = headwise.attention(query, key, value, *positional, **options)  # refuses what is to be refused
        request = options.pop("return_aux", None)
        arrays = [np.asarray(x) for x in (query, key, value)]
        mask = None if attn_mask is None else np.asarray(attn_mask)
        rng = options.pop("rng", None)
        with np.errstate(all="ignore"):
            output, aux = _attend(fault, *arrays, mask, dropout_p, rng, is_causal, scale, request, **options)
        output = output.astype(arrays[0].dtype)
        if isinstance(query, torch.Tensor):
            output = torch.from_numpy(output)
        return output if request is None else (output, aux if isinstance(query, np.ndarray) else real[1])

    return attention


def _attend(
    fault, query, key, value, mask, dropout_p, rng, is_causal, scale, request, *,
    attn_bias=None, causal_alignment=None, query_offset=None, window_size=None, query_lengths=None,
    kv_lengths=None, segment_ids=None, softcap=None, alibi_slopes=None, sinks=None, head_mask=None,
    implementation="auto", num_threads=None,
):  # fmt: skip
    one_head = query.ndim == 2
    if one_head:
        query, key, value = query[None], key[None], value[None]
    *lead, heads, n_q, d_k = query.shape
    kv_heads, n_k = key.shape[-3:-1]
    full, group, dtype = (*lead, heads, n_q, n_k), heads // kv_heads, query.dtype
    work = np.float32 if fault == "float32 underneath" else np.float64
    owner = np.arange(heads) % kv_heads if fault == "heads tiled" else np.arange(heads) // group
    keys, values = (x.astype(work)[..., owner, :, :] for x in (key, value))
    if fault == "first batch entry" and lead and lead[0]:
        keys = np.broadcast_to(keys[:1], keys.shape)

    # scores
    turned = keys.reshape(*keys.shape[:-2], d_k, n_k) if fault == "keys reshaped" else keys.swapaxes(-1, -2)
    factor = {"scale left out": 1.0, "scale 1/d": 1 / d_k, "scale of the whole layer": (heads * d_k) ** -0.5}
    default = factor.get(fault, d_k**-0.5)
    scale = default if scale is None else scale
    scores = scale * (query.astype(work) @ turned)
    if softcap is not None and fault != "soft cap last":
        scores = softcap * np.tanh(scores / softcap)

    # where everyone stands
    i, j = np.arange(n_q)[:, None], np.arange(n_k)
    if causal_alignment == "lower_right":
        query_offset = np.asarray(n_k if kv_lengths is None else kv_lengths) - np.asarray(
            n_q if query_lengths is None else query_lengths
        )
    place = i + (0 if query_offset is None or fault == "causal upper left" else per_batch(query_offset))
    bias = np.zeros(full)
    visible = np.ones(full, bool)
    for added in (mask, attn_bias):
        if added is None:
            continue
        if fault == "mask of entry 0" and added.ndim == len(full) and lead and lead[0]:
            added = np.broadcast_to(added[:1], added.shape)
        if added.dtype == np.bool_ and fault == "mask added":
            bias = bias + added
        elif added.dtype == np.bool_:
            visible = visible & (~added if fault == "mask inverted" else added)
        else:
            visible = visible & (added != -np.inf)
            bias = bias + np.where(added == -np.inf, 0, added) * (scale if fault == "bias scaled" else 1)
    if alibi_slopes is not None:
        gap = place - j if fault == "slopes one-sided" else np.abs(place - j)
        bias = bias - np.asarray(alibi_slopes)[..., None, None] * gap
    if is_causal:
        visible = visible & (j < place if fault == "causal strict" else j <= place)
    left, right = window_size or (None, None)
    if left is not None:
        visible = visible & (j >= place - left - (fault == "window wider"))
    if right is not None:
        visible = visible & (j <= place + right)
    for at, lengths in ((i, query_lengths), (j, kv_lengths)):
        if lengths is not None:
            lengths = np.broadcast_to(lengths, lead)
            if fault == "lengths of entry 0" and lengths.size:
                lengths = np.full(lengths.shape, lengths.flat[0])
            visible = visible & (at < per_batch(lengths) + (fault == "lengths one more"))
    if segment_ids is not None and fault != "segments ignored":
        query_ids, key_ids = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
        same = np.asarray(query_ids)[..., :, None] == np.asarray(key_ids)[..., None, :]
        visible = visible & same[..., None, :, :]
    if fault == "last key lost":
        visible = visible & (j < n_k - (n_k > 64 and n_k % 64 > 0))
    scores = scores + bias
    if softcap is not None and fault == "soft cap last":
        scores = softcap * np.tanh(scores / softcap)

    # softmax
    hidden = {"mask late": scores, "mask finite": np.where(visible, scores, -1e4)}
    scores = hidden.get(fault, np.where(visible, scores, -np.inf))
    logits = np.zeros((heads, 0)) if sinks is None else np.asarray(sinks, float).reshape(heads, -1)
    if fault == "sinks left out":
        logits = logits[:, :0]
    logits = np.broadcast_to(logits[:, None], (*lead, heads, n_q, logits.shape[-1]))
    both = np.concatenate([scores, logits], axis=-1)
    top = both.max(-1, keepdims=True, initial=0.0 if fault == "maximum from zero" else -np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    if fault == "no maximum":
        top = np.zeros_like(top)
    e = np.exp(scores - top)
    total = e.sum(-2 if fault == "over queries" else -1, keepdims=True)
    if fault != "over queries":
        total = total + np.exp(logits - top).sum(-1, keepdims=True) + (fault == "extra one")
    if fault == "not normalised":
        total = np.ones_like(total)
    empty = ~visible.any(-1, keepdims=True)
    weights = e / total if fault == "empty rows NaN" else e / np.where(total == 0, 1, total)
    if fault == "empty rows average" and n_k:
        weights = np.where(empty, 1 / n_k, weights)
    elif fault != "empty rows NaN":
        weights = np.where(empty & (fault != "mask finite"), 0.0, weights)
    if fault == "mask late":
        weights = np.where(visible, weights, 0.0)
    lse = (
        np.where(total[..., 0] > 0, top[..., 0] + np.log(total[..., 0]), -np.inf)
        if total.shape[-2] == n_q
        else None
    )

    # values
    kept = weights
    if dropout_p > 0:
        factors = dropout_factors(full, dropout_p, rng)
        kept = kept * (factors > 0 if fault == "dropout not rescaled" else factors)
    elif fault == "dropout always":
        kept = kept * dropout_factors(full, 0.1, 0)
    if fault == "NaN times zero":
        output = kept @ values
    else:  # 0 * NaN is NaN: a row takes up only what it sees
        clean = np.where(np.isfinite(values), values, 0)
        strange = (
            (visible[..., None] & ~np.isfinite(values)[..., None, :, :]).any(-2) if clean.size else False
        )
        output = np.where(strange, np.nan, kept @ clean)
    if head_mask is not None:
        output = output * np.asarray(head_mask)[..., None, None] ** (2 if fault == "head mask squared" else 1)

    aux = None
    if request is not None:
        offset = 0 if query_offset is None else query_offset
        problem = build_problem(query, key, value, return_aux=request, query_offset=offset)
        answers = dense_statistics(
            weights,
            visible,
            request,
            lse=np.full(full[:-1], np.nan) if lse is None else lse,
            is_causal=is_causal,
            query_offset=offset,
            key_tokens=problem.key_tokens,
            query_tokens=problem.query_tokens,
        )
        aux = Aux(**{n: a if a.dtype.kind == "i" else a.astype(dtype) for n, a in answers.items()})
        aux = aux.map(lambda answer: answer[0]) if one_head else aux
    return (output[0] if one_head else output), aux
