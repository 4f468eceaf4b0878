"""Attention written out with the whole matrix in float64 torch operations, for autograd to differentiate.

Which keys a row sees comes from the specification; nothing is shared with the code under test.
"""

import math

import numpy as np
import torch

from headwise.reference import visible_and_bias
from headwise.reference.dropout import dropout_factors


def dense(query, key, value, mask=None, bias=None, slopes=None, sinks=None, head_mask=None, **options):
    """Output, log-sum-exp and entropy of ``(..., H, n, d)`` tensors; gradients flow to every one of them.

    A row that sees no key has output 0, log-sum-exp -inf (or that of its sinks) and entropy NaN, and takes no
    part in gradients, but for its log-sum-exp's into the sinks.
    """
    if query.ndim == 2:
        found = dense(query[None], key[None], value[None], mask, bias, slopes, sinks, head_mask, **options)
        return tuple(x[0] for x in found)
    query, key, value = (x.double() for x in (query, key, value))
    scale, softcap = options.pop("scale", None), options.pop("softcap", None)
    dropout_p, seed = options.pop("dropout_p", 0.0), options.pop("rng", 0)
    group = query.shape[-3] // key.shape[-3]
    shape = (*query.shape[:-1], key.shape[-2])
    arrays = {"attn_mask": mask, "attn_bias": bias}
    arrays = {name: None if x is None else x.detach().numpy() for name, x in arrays.items()}
    visible, _ = visible_and_bias(shape, **arrays, **options)
    visible = torch.from_numpy(visible)

    # What a row does not see must not reach it, not as 0 * NaN either.
    keys, values = (x.repeat_interleave(group, -3) for x in (key, value))
    scores = (
        query
        @ torch.nan_to_num(keys).transpose(-1, -2)
        * (scale if scale is not None else 1 / math.sqrt(query.shape[-1]))
    )
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    for added in (mask, bias):
        if added is not None and added.dtype != torch.bool:
            scores = scores + torch.where(torch.isinf(added), 0.0, added.double())
    if slopes is not None:
        offset = np.asarray(options.get("query_offset", 0))
        offset = offset[..., None, None, None] if offset.ndim else offset
        position = np.arange(shape[-2])[:, None] + offset
        distance = torch.from_numpy(np.abs(position - np.arange(shape[-1])).astype(float))
        scores = scores - slopes.double()[..., None, None] * distance
    scores = torch.where(visible, scores, -torch.inf)
    seen = visible.any(-1)
    logits = scores
    if sinks is not None:
        flat = sinks.double().reshape(query.shape[-3], -1)
        logits = torch.cat([scores, flat[:, None, :].expand(*shape[:-1], flat.shape[-1])], -1)
    some = (logits > -torch.inf).any(-1)
    lse = torch.where(some, torch.logsumexp(torch.where(some[..., None], logits, 0.0), -1), -torch.inf)
    log_weights = torch.where(visible, scores, 0.0) - torch.where(some, lse, 0.0)[..., None]
    weights = torch.where(visible, log_weights.exp(), 0.0)
    entropy = torch.where(seen, -(weights * log_weights).sum(-1), torch.nan)
    kept = weights
    if dropout_p:
        kept = weights * torch.from_numpy(dropout_factors(shape, dropout_p, seed))
    output = kept @ torch.nan_to_num(values)
    if head_mask is not None:
        output = output * head_mask.double()[..., None, None]
    return output, lse, entropy
