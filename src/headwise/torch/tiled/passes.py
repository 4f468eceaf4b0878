"""Exact attention in tiles of torch tensors, on any device: the output, and its gradients.

The forward pass keeps, for each row, the running maximum m, the sum l of e^(score - m), and the sum of
values under the same factors; a new tile of keys rescales them by e^(m - m') (Milakov and Gimelshein 2018;
Rabe and Staats 2021). The backward pass makes every tile's weights anew from the log-sum-exp (Dao et al.
2022). Memory grows with n, not with n_q x n_k.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from headwise.torch.tiled.tiles import Tile, Tiles

NOTHING = -torch.inf


class Rows(NamedTuple):
    """What a forward pass knows of each row, ``(B, H_kv, G, n_q, ...)``."""

    output: Tensor
    lse: Tensor
    seen: Tensor
    max_score: Tensor
    argmax: Tensor


def forward(tiles: Tiles) -> Rows:
    """Output, log-sum-exp, whether a row sees a key, its largest score and the first key that has it."""
    shape, dtype, device = tiles.row_shape, tiles.dtype, tiles.device
    rows = Rows(
        torch.zeros(*shape, tiles.d_v, dtype=dtype, device=device),
        torch.full(shape, NOTHING, dtype=dtype, device=device),
        torch.zeros(shape, dtype=torch.bool, device=device),
        torch.full(shape, NOTHING, dtype=dtype, device=device),
        torch.full(shape, -1, dtype=torch.int64, device=device),
    )
    for part in tiles.parts():
        for span in tiles.row_ranges():
            here = (*part, slice(None), span)
            output, lse, seen, max_score, argmax = (whole[here] for whole in rows)
            largest, total = torch.full_like(lse, NOTHING), torch.zeros_like(lse)
            if tiles.sinks is not None:
                sinks = tiles.sinks[part.heads][None, :, :, None, :]
                largest = largest.maximum(sinks.amax(-1))
                total = total + (sinks - largest[..., None]).exp().sum(-1)
            for tile in tiles.tiles(part, span):
                scores, hidden, _ = tiles.scores(tile)
                seen |= True if hidden is None else (~hidden).any(-1)
                best, first = scores.max(-1)
                greater = (best > max_score) | ((argmax < 0) & (best > NOTHING))
                argmax.copy_(torch.where(greater, first + tile.keys.start, argmax))
                max_score.copy_(max_score.maximum(best))
                new = largest.maximum(best)
                shift = torch.where(new == NOTHING, 0, new)
                factor = (largest - shift).exp_()
                weights = scores.sub_(shift[..., None]).exp_()
                total = total * factor + weights.sum(-1)
                kept = tiles.kept(tile)
                output.mul_(factor[..., None])
                output += weighted_values(tiles, tile, weights if kept is None else weights * kept, hidden)
                largest = new
            # A row that sees keys whose scores are all -inf (an overflow) is NaN, not empty.
            largest = torch.where(seen & (largest == NOTHING), torch.nan, largest)
            output.copy_(torch.where(seen[..., None], output / total[..., None], 0))
            lse.copy_(largest + total.log())
    return rows


def weighted_values(tiles: Tiles, tile: Tile, weights: Tensor, hidden: Tensor | None) -> Tensor:
    """weights @ value; what a hidden value holds reaches no row that does not see it."""
    shape = tiles.tile_shape(tile)
    flat = weights.reshape(shape[0] * shape[1], -1, shape[-1])
    if tiles.clean or hidden is None:
        return torch.bmm(flat, tiles.keys_of(tiles.value, tile)).view(*shape[:-1], -1)
    value = tiles.keys_of(tiles.value, tile)
    product = torch.bmm(flat, tiles.keys_of(tiles.safe_value, tile))
    seen = (~hidden).expand(shape).reshape(flat.shape).to(flat.dtype)
    weighed = ((flat > 0) & (seen > 0)).to(flat.dtype)

    def meets(rows: Tensor, where: Tensor) -> Tensor:
        return torch.bmm(rows, where.to(rows.dtype)) > 0

    up, down = meets(weighed, value == torch.inf), meets(weighed, value == -torch.inf)
    # 0 * infinity is NaN too.
    lost = meets(seen, value.isnan()) | meets(seen - weighed, value.isinf()) | (up & down)
    product = torch.where(up, torch.inf, torch.where(down, -torch.inf, product))
    return torch.where(lost, torch.nan, product).view(*shape[:-1], -1)


class Wanted(NamedTuple):
    """Which gradients are wanted."""

    query: bool = True
    key: bool = True
    value: bool = True
    mask: bool = False
    bias: bool = False
    alibi_slopes: bool = False
    sinks: bool = False


class Upstream(NamedTuple):
    """Gradients of the answers, ``(B, H_kv, G, n_q, ...)``, with the answers that they need."""

    output: Tensor
    lse: Tensor
    grad_output: Tensor
    grad_lse: Tensor | None
    entropy: Tensor | None
    grad_entropy: Tensor | None


class Gradients(NamedTuple):
    """Gradients in the normal form of :class:`Tiles`; None where not wanted."""

    query: Tensor | None
    key: Tensor | None
    value: Tensor | None
    added: list[Tensor | None]
    alibi_slopes: Tensor | None
    sinks: Tensor | None


def backward(tiles: Tiles, upstream: Upstream, wanted: Wanted, wanted_added: list[bool]) -> Gradients:
    """Gradients, one tile at a time.

    With P the weights, D the dropout factors and dP = D * (dO V^T), a row's scores have the gradient
    ``P * (dP - sum(dO * O) + dlse - dH * (ln P + 1 + H - sum P))``: the last two terms are those of a
    differentiated log-sum-exp and entropy H. An empty row has gradient 0.

    Args:
        wanted_added: for each of ``tiles.added``, whether its gradient is wanted.
    """
    scale, cap = tiles.problem.scale, tiles.problem.rules.softcap
    clean = tiles.clean and not bool((upstream.lse.isnan() | (upstream.lse == torch.inf)).any())
    empty = upstream.lse == NOTHING
    if not clean:  # a row of NaN that the loss leaves out gives nothing either
        out = empty.clone().fill_(True)
        for grad in (upstream.grad_output, upstream.grad_lse, upstream.grad_entropy):
            if grad is not None:
                out &= (grad == 0).all(-1) if grad.ndim > out.ndim else grad == 0
        empty |= out
    lse = torch.where(empty, torch.inf, upstream.lse)
    grad_output = torch.where(empty[..., None], 0, upstream.grad_output).contiguous()
    output = upstream.output if clean else torch.where(empty[..., None], 0, upstream.output)
    # What a row subtracts from the gradient of each of its weights.
    taken = (grad_output * output).sum(-1)
    if upstream.grad_lse is not None:
        taken = taken - torch.where(empty, 0, upstream.grad_lse)
    grad_entropy = upstream.grad_entropy
    if grad_entropy is not None and upstream.entropy is not None:
        without = upstream.entropy.isnan()
        grad_entropy = torch.where(without & ~lse.isnan(), 0, grad_entropy)
        entropy = torch.where(without & ~lse.isnan(), 0, upstream.entropy)
        mass = torch.ones_like(lse)
        if tiles.sinks is not None:
            mass = 1 - (tiles.sinks[None, :, :, None, :] - lse[..., None]).exp().sum(-1)
        taken = taken + grad_entropy * (entropy - mass)

    query = torch.zeros_like(tiles.query) if wanted.query else None
    key = torch.zeros_like(tiles.key) if wanted.key else None
    value = torch.zeros_like(tiles.value) if wanted.value else None
    added = [
        torch.zeros(one.shape, dtype=tiles.dtype, device=tiles.device) if want else None
        for one, want in zip(tiles.added, wanted_added, strict=True)
    ]
    slopes = torch.zeros_like(tiles.slopes) if wanted.alibi_slopes and tiles.slopes is not None else None

    for part in tiles.parts():
        for span in tiles.row_ranges():
            here = (*part, slice(None), span)
            row_lse, row_taken = lse[here][..., None], taken[here][..., None]
            row_entropy = None if grad_entropy is None else grad_entropy[here][..., None]
            for tile in tiles.tiles(part, span):
                shape = tiles.tile_shape(tile)
                flat = (shape[0] * shape[1], shape[2] * shape[3], shape[4])
                out = tiles.rows_of(grad_output, tile)
                scores, hidden, tanh = tiles.scores(tile)
                logs = scores.sub_(row_lse)
                weights = logs.exp()
                if not clean:
                    outside = empty[here][..., None]
                    outside = outside if hidden is None else outside | hidden
                    weights.masked_fill_(outside, 0)
                kept = tiles.kept(tile)
                if value is not None:
                    dropped = weights if kept is None else weights * kept
                    into = value[part.batch, part.heads, tile.keys]
                    into += torch.bmm(dropped.view(flat).transpose(1, 2), out).view(into.shape)
                grad = torch.bmm(out, tiles.keys_of(tiles.value, tile).transpose(1, 2)).view(shape)
                if kept is not None:
                    grad *= kept
                grad -= row_taken
                if row_entropy is not None:
                    grad -= row_entropy * torch.where(weights > 0, logs + 1, 0)
                grad *= weights
                if not clean:
                    grad.masked_fill_(outside, 0)
                for sums in added:
                    if sums is not None:
                        into = tiles.cut(sums, tile)
                        into += grad.sum_to_size(into.shape)
                if slopes is not None:
                    into = slopes[part]
                    into -= (grad * tiles.positions(tile).abs()).sum((-2, -1), keepdim=True)
                if tanh is not None and cap is not None:
                    grad *= 1 - tanh.square_()
                grad = grad.view(flat)
                if query is not None:
                    into = query[here]
                    product = torch.bmm(grad, tiles.keys_of(tiles.safe_key, tile)).view(into.shape)
                    into.add_(product, alpha=scale)
                if key is not None:
                    into = key[part.batch, part.heads, tile.keys]
                    product = torch.bmm(grad.transpose(1, 2), tiles.rows_of(tiles.safe_query, tile))
                    into.add_(product.view(into.shape), alpha=scale)

    sinks = None
    if wanted.sinks and tiles.sinks is not None:
        masses = (tiles.sinks[None, :, :, None, :] - lse[..., None]).exp()
        sinks = -(masses * taken[..., None]).sum((0, 3))
    return Gradients(query, key, value, added, slopes, sinks)
