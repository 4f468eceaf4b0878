"""The statistics of the weights in a pass of their own: once the log-sum-exp is known, every tile's weights
follow from its scores, and each statistic is a sum over tiles."""

from collections.abc import Callable

import torch
from torch import Tensor

from headwise.compute.request import ANSWERS, AuxRequest, distance_buckets
from headwise.torch.tiled.passes import NOTHING, Rows
from headwise.torch.tiled.tiles import Tile, Tiles


def statistics(tiles: Tiles, rows: Rows, request: AuxRequest) -> dict[str, Tensor]:
    """Everything that is asked for, ``(B, H_kv, G, ...)``, under the names of ``headwise.Aux``."""
    empty = ~rows.seen
    answers: dict[str, Tensor] = {}
    if request.lse:
        answers["lse"] = rows.lse
    if request.max_weight:
        answers["max_weight"] = torch.where(empty, torch.nan, (rows.max_score - rows.lse).exp())
    if request.argmax:
        answers["argmax"] = rows.argmax
    if request.sink_logit_mass:
        answers["sink_logit_mass"] = _sink_logit_mass(tiles, rows)
    collectors = _Collectors(tiles, request)
    if not collectors.steps:
        return answers
    lse = torch.where(empty, torch.inf, rows.lse)
    for part in tiles.parts():
        for span in tiles.row_ranges():
            row_lse = lse[(*part, slice(None), span)][..., None]
            for tile in tiles.tiles(part, span):
                scores, hidden, _ = tiles.scores(tile)
                weights = scores.sub_(row_lse).exp_()
                if hidden is not None:
                    weights.masked_fill_(hidden, 0)
                for step in collectors.steps:
                    step(tile, weights, hidden)
    return answers | collectors.finished(rows.seen)


class _Collectors:
    """Sums over tiles, one method for each kind of statistic."""

    def __init__(self, tiles: Tiles, request: AuxRequest) -> None:
        self.tiles, self.request = tiles, request
        self.sums: dict[str, Tensor] = {}
        self.steps: list[Callable[[Tile, Tensor, Tensor | None], None]] = []
        problem, shape = tiles.problem, tiles.row_shape
        head = shape[:-1]
        if request.entropy:
            self._collect("entropy", shape, self._entropy)
        if request.sum_squares:
            self._collect("sum_squares", shape, self._sum_squares)
        if request.distance:
            self._collect("distance", shape, self._distance)
            buckets = distance_buckets(tiles.n_q, tiles.n_k)
            self.sums["distance_histogram"] = self._zeros((*head, buckets))
            self.edges = torch.tensor([2**i for i in range(buckets - 1)], device=tiles.device)
        if request.sink_mass:
            self._collect("sink_mass", shape, self._sink_mass)
        if request.relative:
            self._collect("relative", (*shape, len(request.relative)), self._relative)
        if problem.key_tokens is not None:
            self.key_tokens = tiles._whole(problem.key_tokens)
            self.query_tokens = tiles._whole(problem.query_tokens)
            self._collect("duplicate", shape, self._matches)
            self.sums["induction"] = self._zeros(shape)
            for name in ("duplicate_count", "induction_count"):
                self.sums[name] = self._zeros(shape, torch.int64)
        if problem.classes is not None:
            self.classes = tiles._whole(problem.classes)
            self._collect("classes", (*shape, request.class_count + 1), self._classes)
        if request.top_k:
            self._collect("top_k_weight", (*shape, request.top_k), self._top_k)
            self.sums["top_k_weight"] -= 1
            self.sums["top_k_index"] = self._zeros((*shape, request.top_k), torch.int64) - 1
        if request.received:
            self._collect("received", (*head, tiles.n_k), self._received)
            self.sums["received_count"] = self._zeros((*head, tiles.n_k), torch.int64)
        if request.pooled:
            down, across = (-(-n // request.pooled) for n in (tiles.n_q, tiles.n_k))
            self._collect("pooled", (*head, down, across), self._pooled)

    def finished(self, seen: Tensor) -> dict[str, Tensor]:
        """The answers: empty rows are missing, means are over the rows that see a key."""
        sums, request = dict(self.sums), self.request
        for name, mass in self.sums.items():
            _, (first, *others), whole = ANSWERS[name]
            if first == "n_q" and not whole and name != "top_k_weight":
                sums[name] = torch.where(seen[..., None] if others else seen, mass, torch.nan)
        if "classes" in sums:
            sums["classes"] = sums["classes"][..., 1:].contiguous()
        if "top_k_weight" in sums:
            sums["top_k_weight"] = torch.where(sums["top_k_index"] < 0, 0, sums["top_k_weight"])
        if "distance_histogram" in sums:
            sums["distance_histogram"] = sums["distance_histogram"] / seen.sum(-1, keepdim=True)
        if "pooled" in sums:
            block = request.pooled
            rows = self._zeros(sums["pooled"].shape[:-1], torch.int64)
            index = torch.arange(self.tiles.n_q, device=self.tiles.device) // block
            rows.index_add_(-1, index, seen.to(torch.int64))
            sums["pooled"] = sums["pooled"] / rows[..., None]
        return sums

    def _collect(
        self, name: str, shape: tuple[int, ...], step: Callable[[Tile, Tensor, Tensor | None], None]
    ) -> None:
        self.sums[name] = self._zeros(shape)
        self.steps.append(step)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return torch.zeros(shape, dtype=dtype or self.tiles.dtype, device=self.tiles.device)

    def _rows(self, name: str, tile: Tile) -> Tensor:
        return self.sums[name][(*tile.part, slice(None), tile.rows)]

    def _key_index(self, tile: Tile) -> Tensor:
        return torch.arange(tile.keys.start, tile.keys.stop, device=self.tiles.device)

    def _entropy(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        into = self._rows("entropy", tile)
        into += torch.special.entr(weights).sum(-1)

    def _sum_squares(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        into = self._rows("sum_squares", tile)
        into += weights.square().sum(-1)

    def _distance(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        distance = self.tiles.positions(tile).abs()
        into = self._rows("distance", tile)
        into += (weights * distance).sum(-1)
        bucket = torch.bucketize(distance, self.edges, right=True).expand(weights.shape)
        histogram = self.sums["distance_histogram"][tile.part]
        of_rows = weights.new_zeros(*weights.shape[:-1], histogram.shape[-1])
        histogram += of_rows.scatter_add_(-1, bucket, weights).sum(-2)

    def _sink_mass(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        into = self._rows("sink_mass", tile)
        into += weights[..., : max(0, self.request.sink_mass - tile.keys.start)].sum(-1)

    def _relative(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        # Query i stands behind + j at its keys: the key at distance o from it is the one with behind = -o.
        behind = self.tiles.positions(tile)
        into = self._rows("relative", tile)
        for column, offset in enumerate(self.request.relative):
            into[..., column] += (weights * (behind == -offset)).sum(-1)

    def _matches(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        batch, keys = tile.part.batch, tile.keys
        behind = self.tiles.positions(tile)
        tokens = self.query_tokens[batch, tile.rows][:, None, None, :, None]
        for name, back in (("duplicate", 0), ("induction", 1)):
            # The key itself, or the one before it; before the first there is none.
            start = max(keys.start - back, 0)
            same = self.key_tokens[batch, start : keys.stop - back][:, None, None, None, :] == tokens
            if keys.start == 0 and back:
                same = torch.nn.functional.pad(same, (1, 0), value=False)
            away = behind + back
            same = same & ((away > 0) if self.tiles.problem.is_causal else (away != 0))
            if hidden is not None:
                same = same & ~hidden
            mass, count = self._rows(name, tile), self._rows(f"{name}_count", tile)
            mass += (weights * same).sum(-1)
            count += same.sum(-1)

    def _classes(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        classes = self.classes[tile.part.batch, tile.keys][:, None, None, None, :] + 1  # -1, no class: to 0
        self._rows("classes", tile).scatter_add_(-1, classes.expand(weights.shape), weights)

    def _top_k(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        """Merge with the heaviest so far; in a stable order, so that equal weights keep the first key."""
        if hidden is not None:
            weights = weights.masked_fill(hidden, -1)
        index = self._key_index(tile).expand(weights.shape)
        if hidden is not None:
            index = index.masked_fill(hidden, -1)
        best, best_index = self._rows("top_k_weight", tile), self._rows("top_k_index", tile)
        merged, order = torch.cat([best, weights], -1).sort(dim=-1, descending=True, stable=True)
        indices = torch.cat([best_index, index], -1).gather(-1, order)
        best.copy_(merged[..., : self.request.top_k])
        best_index.copy_(indices[..., : self.request.top_k])

    def _received(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        where = (*tile.part, slice(None), tile.keys)
        received, count = self.sums["received"][where], self.sums["received_count"][where]
        received += weights.sum(-2)
        if hidden is None:
            count += weights.shape[-2]
        else:
            count += (~hidden).expand(weights.shape).sum(-2)

    def _pooled(self, tile: Tile, weights: Tensor, hidden: Tensor | None) -> None:
        block, device = self.request.pooled, self.tiles.device
        columns = self._key_index(tile) // block
        across = weights.new_zeros(*weights.shape[:-1], self.sums["pooled"].shape[-1])
        across.index_add_(-1, columns, weights)
        down = torch.arange(tile.rows.start, tile.rows.stop, device=device) // block
        self.sums["pooled"][tile.part].index_add_(-2, down, across)


def _sink_logit_mass(tiles: Tiles, rows: Rows) -> Tensor:
    """Weight of the sink logits in each row that sees a key; NaN in the others."""
    mass = torch.zeros_like(rows.lse)
    if tiles.sinks is not None:
        lse = torch.where(rows.lse == NOTHING, torch.inf, rows.lse)
        mass = (tiles.sinks[None, :, :, None, :] - lse[..., None]).exp().sum(-1)
    return torch.where(rows.seen, mass, torch.nan)
