"""The layer written out: dense, head by head, in torch operations that autograd follows.

It shares nothing with headwise but the layer's weights, and judges the layer.
"""

import math

import torch


def turned(x, positions, rope):
    """Rotary features as multiplications of complex numbers. ``x``: (n, d), ``positions``: (n,)."""
    width = x.shape[-1] if rope.width is None else rope.width
    pairs = torch.arange(width // 2, dtype=torch.float64)
    angles = positions.double()[:, None] * rope.base ** (-2 * pairs / width)
    turns = torch.polar(torch.ones_like(angles), angles)
    head, rest = x[:, :width], x[:, width:]
    if rope.interleaved:
        number = torch.complex(head[:, 0::2], head[:, 1::2]) * turns
        both = torch.stack([number.real, number.imag], -1).flatten(-2)
    else:
        number = torch.complex(head[:, : width // 2], head[:, width // 2 :]) * turns
        both = torch.cat([number.real, number.imag], -1)
    return torch.cat([both, rest], -1)


def t5_bucket(distance, bidirectional, buckets, farthest):
    """T5's bucket of key position - query position."""
    first = 0
    if bidirectional:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    grown = math.log(distance / exact) / math.log(farthest / exact) * (buckets - exact)
    return first + min(exact + int(grown), buckets - 1)


def plain_pass(
    layer, query, key=None, value=None, *, offset=0, visible=None, bias=None, key_mask=None, head_mask=None,
    is_causal=None, positions=None, key_positions=None,
):  # fmt: skip
    """Output (n_q, out_dim) and weights (H, n_q, n_k) of one sequence: ``query`` is (n_q, embed_dim)."""
    own = key is None
    key = query if own else key
    value = key if value is None else value
    n_q, n_k = len(query), len(key)
    at = torch.arange(n_q) + offset
    query_at = at if positions is None else positions
    key_at = key_positions
    if key_at is None:
        key_at = positions if own and positions is not None else torch.arange(n_k)
    causal = layer.is_causal if is_causal is None else is_causal
    distance = torch.arange(n_k) - at[:, None]
    left, right = layer.window_size
    sees = torch.ones(n_q, n_k, dtype=torch.bool) if visible is None else visible
    if causal:
        sees = sees & (distance <= 0)
    if left is not None:
        sees = sees & (distance >= -left)
    if right is not None:
        sees = sees & (distance <= right)
    if key_mask is not None:
        sees = sees & key_mask
    outputs, all_weights = [], []
    for head in range(layer.num_heads):
        kv_head = head // (layer.num_heads // layer.num_kv_heads)
        rows = slice(head * layer.head_dim, (head + 1) * layer.head_dim)
        kv_rows = slice(kv_head * layer.head_dim, (kv_head + 1) * layer.head_dim)
        v_rows = slice(kv_head * layer.v_head_dim, (kv_head + 1) * layer.v_head_dim)
        q = part(layer.q_proj, query, rows)
        k = part(layer.k_proj, key, kv_rows)
        v = part(layer.v_proj, value, v_rows)
        if layer.q_norm is not None:
            q, k = layer.q_norm(q), layer.k_norm(k)
        if layer.rope is not None:
            q, k = turned(q, query_at, layer.rope), turned(k, key_at, layer.rope)
        scores = q @ k.T * (1 / math.sqrt(layer.head_dim) if layer.scale is None else layer.scale)
        if layer.softcap is not None:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        if bias is not None:
            scores = scores + bias[head]
        if layer.alibi is not None:
            scores = scores - layer.alibi.slopes[head] * distance.abs()
        if layer.rel_bias is not None:
            relative = layer.rel_bias
            sizes = (relative.bidirectional, relative.num_buckets, relative.max_distance)
            buckets = torch.tensor([[t5_bucket(d, *sizes) for d in row] for row in distance.tolist()])
            scores = scores + relative.weight[buckets.reshape(n_q, n_k), head]
        seen = sees[head] if sees.ndim == 3 else sees
        exponentials = torch.exp(scores - scores.detach().max()) * seen
        total = exponentials.sum(-1, keepdim=True)
        if layer.sinks is not None:
            total = total + torch.exp(layer.sinks[head] - scores.detach().max()).sum()
        weights = exponentials / torch.where(total > 0, total, 1.0)
        all_weights.append(weights)
        factor = 1.0 if head_mask is None else head_mask[head]
        outputs.append(factor * (weights @ v))
    joined = torch.cat(outputs, -1)
    return joined @ layer.out_proj.weight.T + (0 if layer.out_proj.bias is None else layer.out_proj.bias), (
        torch.stack(all_weights)
    )


def part(projection, x, rows):
    """The rows of a projection that one head owns, applied."""
    result = x @ projection.weight[rows].T
    return result if projection.bias is None else result + projection.bias[rows]
