"""One attention problem in tiles of torch tensors: which keys a tile hides, and its scores.

A tile is a few queries times a few keys of a few heads, ``(b, h, G, rows, keys)``: b batch entries, h key
heads, G query heads on each. It is all that ever exists of the ``n_q x n_k`` matrix. Sizes of tiles depend on
the shape only, so that the same call gives the same bits whatever is asked beside it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headwise.compute.problem import Problem
from headwise.plain.types import Integers
from headwise.torch.tiled.dropout import head_keys, kept_weights

# Elements of a tile, and the most queries or keys of one head in it: on a processor a tile stays near the
# caches, elsewhere it keeps the device busy.
CPU_TILE, CPU_SIDE = 1 << 18, 256
DEVICE_TILE, DEVICE_SIDE = 1 << 25, 1024


class Part(NamedTuple):
    """A range of batch entries and of key heads."""

    batch: slice
    heads: slice


class Tile(NamedTuple):
    """A part, and a range of queries and of keys."""

    part: Part
    rows: slice
    keys: slice


@dataclass(frozen=True, eq=False, slots=True)
class Extras:
    """Tensors that are added to the scores, and what they came as."""

    mask: Tensor | None
    bias: Tensor | None
    alibi_slopes: Tensor | None
    sinks: Tensor | None


class Tiles:
    """The problem on its device, in the dtype of the computation.

    Attributes:
        query: ``(B, H_kv, G, n_q, d_k)``, all leading axes in one; key and value ``(B, H_kv, n_k, d)``.
        clean: no NaN or infinity in query, key and value.
    """

    def __init__(self, problem: Problem, query: Tensor, key: Tensor, value: Tensor, extras: Extras) -> None:
        self.problem = problem
        self.device = query.device
        self.dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        self.heads, self.kv_heads = problem.heads, problem.kv_heads
        self.group = self.heads // self.kv_heads
        self.n_q, self.n_k, self.d_k, self.d_v = problem.n_q, problem.n_k, problem.d_k, value.shape[-1]
        self.batch = int(np.prod(problem.lead))
        self.query = self._plain(query).view(self.batch, self.kv_heads, self.group, self.n_q, self.d_k)
        self.key = self._plain(key).view(self.batch, self.kv_heads, self.n_k, self.d_k)
        self.value = self._plain(value).view(self.batch, self.kv_heads, self.n_k, self.d_v)
        self.clean = all(bool(torch.isfinite(x).all()) for x in (self.query, self.key, self.value))
        self.safe_key = self.key if self.clean else zeroed(self.key)
        self.safe_query = self.query if self.clean else zeroed(self.query)
        self.safe_value = self.value if self.clean else zeroed(self.value)

        rules = problem.rules
        self.boolean: list[Tensor] = []
        self.added: list[Tensor] = []
        for array in (extras.mask, extras.bias):
            if array is not None:
                flat = flatten_lead(array, problem.lead)
                (self.boolean if flat.dtype == torch.bool else self.added).append(flat)
        self.sinks = None
        if rules.sinks is not None and extras.sinks is not None:
            self.sinks = self._small(extras.sinks).view(self.kv_heads, self.group, -1)
        self.slopes = None
        if extras.alibi_slopes is not None:
            slopes = self._small(extras.alibi_slopes).expand(*problem.lead, self.heads)
            self.slopes = slopes.reshape(self.batch, self.kv_heads, self.group, 1, 1)

        offsets = np.asarray(problem.offset) if rules.query_offsets is None else rules.query_offsets
        self._offsets = offsets.reshape(-1)  # one for all, or one per batch entry
        self.offsets = self._whole(self._offsets).view(-1, 1, 1, 1, 1)
        self._query_lengths = self._whole(rules.query_lengths)
        self._kv_lengths = self._whole(rules.kv_lengths)
        self._most_keys = None if rules.kv_lengths is None else rules.kv_lengths.reshape(-1)
        self._query_ids = self._whole(rules.query_segments)
        self._key_ids = self._whole(rules.key_segments)
        left, right = rules.window
        self._left, self._right = left, right
        if problem.is_causal:
            self._right = 0 if right is None else min(right, 0)
        self._dropout = None
        if rules.dropout_p > 0:
            self._dropout = head_keys(self.batch * self.heads, rules.seed, self.device)

        on_cpu = self.device.type == "cpu"
        limit, side = (CPU_TILE, CPU_SIDE) if on_cpu else (DEVICE_TILE, DEVICE_SIDE)
        self._keys = max(1, min(self.n_k, side))
        self._rows = max(1, min(self.n_q, side, limit // (self._keys * self.group)))
        self._parts = max(1, limit // (self._keys * self._rows * self.group))

    @property
    def row_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.kv_heads, self.group, self.n_q

    def parts(self) -> Iterator[Part]:
        """All batch entries and heads, a few at a time: whole entries, or heads of one entry."""
        at_once = min(self._parts, self.kv_heads)
        entries = max(1, self._parts // self.kv_heads) if at_once == self.kv_heads else 1
        for b in range(0, self.batch, entries):
            for h in range(0, self.kv_heads, at_once):
                yield Part(slice(b, min(b + entries, self.batch)), slice(h, min(h + at_once, self.kv_heads)))

    def row_ranges(self) -> Iterator[slice]:
        for i in range(0, self.n_q, self._rows):
            yield slice(i, min(i + self._rows, self.n_q))

    def tiles(self, part: Part, rows: slice) -> Iterator[Tile]:
        """The tiles of these rows that hold a key which position and length let them see."""
        first, last = 0, self.n_k
        offsets = self._offsets if self._offsets.size == 1 else self._offsets[part.batch]
        if offsets.size == 0:
            return
        if self._left is not None:
            first = max(first, rows.start + int(offsets.min()) - self._left)
        if self._right is not None:
            last = min(last, rows.stop + int(offsets.max()) + self._right)
        if self._most_keys is not None:
            last = min(last, int(self._most_keys[part.batch].max()))
        for j in range(first - first % self._keys, last, self._keys):
            yield Tile(part, rows, slice(j, min(j + self._keys, self.n_k)))

    def positions(self, tile: Tile) -> Tensor:
        """Position of each query minus that of each key, ``(b or 1, 1, 1, rows, keys)``."""
        i = torch.arange(tile.rows.start, tile.rows.stop, device=self.device)
        j = torch.arange(tile.keys.start, tile.keys.stop, device=self.device)
        offsets = self.offsets if len(self.offsets) == 1 else self.offsets[tile.part.batch]
        return i[:, None] - j + offsets

    def hidden(self, tile: Tile) -> Tensor | None:
        """True where a row does not see a key, in a shape that broadcasts to the tile's; None = sees all."""
        found: list[Tensor] = []
        rows, keys, batch = tile.rows, tile.keys, tile.part.batch
        offsets = self._offsets if self._offsets.size == 1 else self._offsets[batch]
        right = self._right is not None and keys.stop - 1 > rows.start + int(offsets.min()) + self._right
        left = self._left is not None and keys.start < rows.stop - 1 + int(offsets.max()) - self._left
        if left or right:
            behind = self.positions(tile)
            if right:
                found.append(behind < -self._right)  # type: ignore[operator]
            if left:
                found.append(behind > self._left)
        if self._query_lengths is not None:
            i = torch.arange(rows.start, rows.stop, device=self.device).view(-1, 1)
            found.append(i >= self._query_lengths[batch].view(-1, 1, 1, 1, 1))
        if self._kv_lengths is not None:
            j = torch.arange(keys.start, keys.stop, device=self.device)
            found.append(j >= self._kv_lengths[batch].view(-1, 1, 1, 1, 1))
        if self._query_ids is not None and self._key_ids is not None:
            query_ids, key_ids = self._query_ids[batch, rows], self._key_ids[batch, keys]
            found.append((query_ids[:, :, None] != key_ids[:, None, :])[:, None, None])
        found += [~self.cut(mask, tile) for mask in self.boolean]
        found += [self.cut(added, tile) == -torch.inf for added in self.added]
        hidden = None
        for one in found:
            hidden = one if hidden is None else hidden | one
        return hidden

    def scores(self, tile: Tile) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Scores with all that is added, -inf where hidden; what is hidden; the tanh of the soft cap."""
        query = self.rows_of(self.query, tile)
        key = self.keys_of(self.key, tile)
        shape = self.tile_shape(tile)
        scores = torch.baddbmm(
            query.new_empty(()), query, key.transpose(1, 2), beta=0, alpha=self.problem.scale
        ).view(shape)
        tanh, cap = None, self.problem.rules.softcap
        if cap is not None:
            tanh = (scores / cap).tanh_()
            scores = tanh * cap
        for added in self.added:
            scores += self.cut(added, tile)
        if self.slopes is not None:
            scores -= self.cut_slopes(tile.part) * self.positions(tile).abs()
        hidden = self.hidden(tile)
        if hidden is not None:
            scores.masked_fill_(hidden, -torch.inf)
        return scores, hidden, tanh

    def kept(self, tile: Tile) -> Tensor | None:
        """0 for each dropped weight of the tile and 1 / (1 - p) for each kept one; None without dropout."""
        if self._dropout is None:
            return None
        first, second = (
            words.view(self.batch, self.kv_heads, self.group, 1, 1)[tile.part] for words in self._dropout
        )
        rows, keys, dropout_p = tile.rows, tile.keys, self.problem.rules.dropout_p
        return kept_weights((first, second), rows, keys, dropout_p, self.dtype)

    def tile_shape(self, tile: Tile) -> tuple[int, int, int, int, int]:
        sizes = [s.stop - s.start for s in (tile.part.batch, tile.part.heads, tile.rows, tile.keys)]
        return sizes[0], sizes[1], self.group, sizes[2], sizes[3]

    def rows_of(self, array: Tensor, tile: Tile) -> Tensor:
        """``(B, H_kv, G, n_q, d)`` -> the tile's rows of all heads of a group, ``(b h, G rows, d)``."""
        batch, heads = tile.part
        piece = array[batch, heads, :, tile.rows]
        return piece.reshape(piece.shape[0] * piece.shape[1], -1, piece.shape[-1])

    def keys_of(self, array: Tensor, tile: Tile) -> Tensor:
        """``(B, H_kv, n_k, d)`` -> ``(b h, keys, d)``."""
        batch, heads = tile.part
        return array[batch, heads, tile.keys].flatten(0, 1)

    def cut(self, array: Tensor, tile: Tile) -> Tensor:
        """The tile of an array ``(B or 1, H or 1, n_q or 1, n_k or 1)``, five axes, broadcast ones kept."""
        part, group = tile.part, self.group
        if array.shape[0] > 1:
            array = array[part.batch]
        if array.shape[1] > 1:
            array = array[:, part.heads.start * group : part.heads.stop * group].unflatten(1, (-1, group))
        else:
            array = array.unsqueeze(1)
        if array.shape[3] > 1:
            array = array[:, :, :, tile.rows]
        if array.shape[4] > 1:
            array = array[..., tile.keys]
        return array

    def cut_slopes(self, part: Part) -> Tensor:
        assert self.slopes is not None
        return self.slopes[part]

    def _plain(self, array: Tensor) -> Tensor:
        return array.detach().to(self.dtype).contiguous()

    def _small(self, array: Tensor) -> Tensor:
        return array.detach().to(self.device, self.dtype)

    def _whole(self, array: Integers | None) -> Any:
        """Whole numbers on the device, their leading axes in one."""
        if array is None:
            return None
        per_row = array.ndim > len(self.problem.lead)
        flat = array.reshape(self.batch, array.shape[-1]) if per_row else array.reshape(-1)
        return torch.from_numpy(np.array(flat, np.int64)).to(self.device)


def zeroed(array: Tensor) -> Tensor:
    """The same with 0 in the place of NaN and infinity."""
    return torch.where(torch.isfinite(array), array, 0)


def flatten_lead(array: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A mask that broadcasts to ``(*lead, H, n_q, n_k)`` as ``(B or 1, H or 1, n_q or 1, n_k or 1)``."""
    array = array.detach()
    array = array.reshape((1,) * (len(lead) + 3 - array.ndim) + array.shape)
    own = array.shape[:-3]
    if all(n == 1 for n in own) and (not lead or int(np.prod(lead)) > 0):
        return array.reshape(1, *array.shape[-3:])
    # Along the leading axes a mask that has some of them is repeated; along heads, queries and keys never.
    return array.expand(*lead, *array.shape[-3:]).reshape(math.prod(lead), *array.shape[-3:])
