"""The output of a model's own attention where transformers' "sdpa" function would need an n_q x n_k mask.

By torch, one block of queries at a time, in the order scale, soft cap, bias, mask, sink, softmax; or by our
kernel, in the same pass as the statistics.
"""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from headwise.compute.functional import attention
from headwise.compute.request import Aux, AuxRequest
from headwise.inspect.call.call import AttentionCall, Span

BLOCK_BYTES = 1 << 24  # of the scores or the mask of one block

Mask = Callable[[Span, Span], torch.Tensor]  # spans of queries and keys -> what broadcasts to their scores


def blockwise(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    bias: Mask | None = None,
    visible: Mask | None = None,
    reach: Callable[[Span], Span] | None = None,
) -> torch.Tensor:
    """(B, H, n_q, d_v): attention without an n_q x n_k array.

    Args:
        query, key, value: (B, H, n_q, d_k), (B, H_kv, n_k, d_k), (B, H_kv, n_k, d_v).
        scale, softcap: factor and cap of the scores.
        sinks: (H,), one logit in the denominator of each row.
        bias: of two spans, numbers to add; visible: of two spans, True = attend.
        reach: of a span of queries, the span of keys outside which they see nothing.
    """
    batch, heads, n_q, _ = query.shape
    n_k = key.shape[2]
    output = query.new_empty(batch, heads, n_q, value.shape[3])
    step = max(16, BLOCK_BYTES // max(1, batch * heads * n_k * 4))
    for start in range(0, n_q, step):
        queries = (start, min(n_q, start + step))
        keys = reach(queries) if reach else (0, n_k)
        if keys[0] >= keys[1]:
            output[:, :, slice(*queries)] = 0
            continue
        q = query[:, :, slice(*queries)]
        k, v = key[:, :, slice(*keys)], value[:, :, slice(*keys)]
        added = None if bias is None else bias(queries, keys).to(query.dtype)
        seen = None if visible is None else visible(queries, keys)
        if softcap is None and sinks is None:
            mask = seen if added is None else added if seen is None else added.masked_fill(~seen, -torch.inf)
            found = scaled_dot_product_attention(
                q, k, v, attn_mask=mask, scale=scale, enable_gqa=heads != key.shape[1]
            )
        else:
            found = _by_hand(q, k, v, scale, softcap, sinks, added, seen)
        output[:, :, slice(*queries)] = found
    return output


def _by_hand(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    softcap: float | None,
    sinks: torch.Tensor | None,
    added: torch.Tensor | None,
    seen: torch.Tensor | None,
) -> torch.Tensor:
    groups = query.shape[1] // key.shape[1]
    scores = query.unflatten(1, (key.shape[1], groups)) @ key[:, :, None].transpose(-1, -2)
    scores = scores.flatten(1, 2).mul_(scale)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if added is not None:
        scores = scores + added
    if seen is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    wide = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
    lse = wide.logsumexp(dim=-1, keepdim=True)
    if sinks is not None:
        lse = torch.logaddexp(lse, sinks.to(wide.dtype)[:, None, None])
    weights = torch.where(lse == -torch.inf, 0.0, torch.exp(wide - lse)).to(value.dtype)
    product = weights.unflatten(1, (key.shape[1], groups)) @ value[:, :, None]
    return product.flatten(1, 2)


def fuse(call: AttentionCall) -> None:
    """Let one pass of our kernel give the statistics of ``call`` and, on the way, its output."""

    def run(request: AuxRequest, num_threads: int | None) -> Aux:
        call.runner = None  # a second question needs no second output
        call.output, aux = attention(
            call.query,
            call.key,
            call.value,
            return_aux=request,
            num_threads=num_threads,
            **call.options,
        )
        found: Aux = aux
        return found

    call.runner = run


def ensure_output(call: AttentionCall) -> torch.Tensor:
    """The output of a call that ``fuse`` prepared, also where nobody asked for statistics."""
    if call.output is None:
        call.output = attention(call.query, call.key, call.value, **call.options)
    output: torch.Tensor = call.output
    return output
