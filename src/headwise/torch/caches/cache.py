"""Caches of keys and values: what a layer remembers between the pieces of a sequence.

One cache serves one layer: ``layer(x, cache=cache)``. The cache knows how many real tokens it has seen, so
it, and not the caller, says where the next queries stand. Padding is not stored: each batch entry keeps a
length of its own, and pieces that are padded on the left or on the right give what the unpadded sequences
give.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.plain.values import is_whole, shown
from headwise.torch.arguments import Shape, check_key_mask

Offset = int | Tensor  # one number for all entries, or one per entry


@dataclass(frozen=True, eq=False)
class Place:
    """Where the tokens of one piece stand: ``(*lead, n)`` of them, the same number of real ones or not.

    Attributes:
        lead, n: shape of the piece.
        position: position of its first row in the sequence; per entry where entries differ. With padding on
            the left it is that of the first real token minus the padding, so that row i stands at position +
            i.
        real: None, or (index of the first real row, number of real rows), each ``(B,)``, B = all entries.
    """

    lead: Shape
    n: int
    position: int | Tensor
    real: tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False)
class Seen:
    """What the queries of one piece see, as keyword arguments of ``attention``.

    Attributes:
        key, value: ``(*lead, H_kv, n_k, d)``, what is kept of the past and the piece itself.
        query_offset: position of the piece's first query among these keys.
        kv_lengths: None, or how many of them are real, ``(*lead,)``.
        dropped: how many of the oldest keys the cache has let go; per entry where entries differ.
    """

    key: Tensor
    value: Tensor
    query_offset: int | Tensor
    kv_lengths: Tensor | None
    dropped: int | Tensor


class Cache:
    """What all caches do; storage is theirs.

    Attributes:
        length: real tokens seen, which is the position of the next one: a number, or ``(*lead,)`` once
            padding made the entries differ.
    """

    def __init__(self) -> None:
        self.length: int | Tensor = 0
        self._lead: Shape | None = None
        self._user: int | None = None
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    # ---- what a layer calls ----

    def place(self, lead: Shape, n: int, key_mask: Tensor | None = None) -> Place:
        """Where the next n tokens stand; changes nothing.

        Args:
            lead: leading axes of the layer's input.
            n: rows of the piece.
            key_mask: ``(*lead, n)``, True = real token; the real ones of an entry lie side by side.

        Raises:
            ShapeError: other leading axes than before, a mask of another shape.
            HeadwiseError: padding between real tokens.
        """
        if self._lead is not None and lead != self._lead:
            hint = "a cache belongs to one batch; reset() empties it, reorder() picks entries"
            raise ShapeError("cache", f"input with leading axes {self._lead}", f"{lead}", hint)
        if key_mask is None:
            return Place(lead, n, self.length, None)
        check_key_mask(key_mask, (*lead, n))
        if bool(key_mask.all()):
            return Place(lead, n, self.length, None)
        flat = key_mask.reshape(-1, n)
        count, first = flat.sum(-1), flat.to(torch.uint8).argmax(-1)
        steps = torch.arange(n, device=flat.device)
        run = (steps >= first[:, None]) & (steps < (first + count)[:, None])
        if not torch.equal(run, flat):
            expected = "real tokens side by side in every entry: padding on the left or on the right"
            hint = "a cache gives each entry one position per row; take the holes out of the sequence"
            raise HeadwiseError("key_mask", expected, "padding between real tokens", hint)
        position = self._lengths(flat.shape[0], flat.device) - first
        return Place(lead, n, position.reshape(lead), (first, count))

    def write(self, key: Tensor, value: Tensor, place: Place) -> Seen:
        """Take in the keys and values of a piece and show what its queries see.

        The piece counts only after :meth:`commit`, so a call that fails in between can be made again.

        Args:
            key, value: ``(*lead, H_kv, n, d)``, n new rows, rotated where the layer rotates.
            place: from :meth:`place`.

        Raises:
            ShapeError, DtypeError: unlike what the cache holds.
        """
        self._check(key, value)
        flat_key, flat_value = _flat(key), _flat(value)
        seen, lead = self._store(flat_key, flat_value, place), place.lead
        if len(lead) == 1:
            return seen
        return Seen(
            seen.key.reshape(*lead, *seen.key.shape[1:]),
            seen.value.reshape(*lead, *seen.value.shape[1:]),
            _over(lead, seen.query_offset),
            None if seen.kv_lengths is None else seen.kv_lengths.reshape(lead),
            _over(lead, seen.dropped),
        )

    def commit(self, place: Place) -> None:
        """Count the piece that was written."""
        self._lead = place.lead
        if place.real is None:
            self.length = self.length + place.n
        else:
            first, count = place.real
            lengths = self._lengths(count.shape[0], count.device) + count
            self.length = lengths.reshape(place.lead)

    def append(self, key: Tensor, value: Tensor, key_mask: Tensor | None = None) -> Seen:
        """All three steps at once, for use with ``headwise.torch.attention`` itself.

        >>> from headwise.torch import DynamicCache
        >>> cache = DynamicCache()
        >>> seen = cache.append(torch.zeros(2, 4, 3, 8), torch.zeros(2, 4, 3, 8))
        >>> seen.key.shape, seen.query_offset, cache.length
        (torch.Size([2, 4, 3, 8]), 0, 3)
        """
        place = self.place(tuple(key.shape[:-3]), key.shape[-2], key_mask)
        seen = self.write(key, value, place)
        self.commit(place)
        return seen

    def check_window(self, window: tuple[int | None, int | None]) -> None:
        """Refuse a layer that would look back further than the cache does; for caches that let tokens go."""

    def check_user(self, layer: nn.Module) -> None:
        """Refuse a second layer: one cache for all layers of a model would mix their keys, in silence.

        Raises:
            CapabilityError: tokens of another layer are in it.
        """
        if torch.compiler.is_compiling():  # a graph cannot ask who it serves
            return
        if self._user not in (None, id(layer)) and (isinstance(self.length, Tensor) or self.length):
            received = f"a {type(self).__name__} that holds the keys of another layer"
            hint = "caches = [DynamicCache() for layer in layers]; reset() empties one"
            raise CapabilityError("cache", "a cache of its own for each layer", received, hint)
        self._user = id(layer)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_user": None}

    # ---- what a caller calls ----

    def reset(self) -> None:
        """Empty the cache; memory that it holds may be used again."""
        self.length, self._lead, self._keys, self._values = 0, None, None, None

    def reorder(self, index: Tensor | Sequence[int]) -> None:
        """Entry i becomes what entry ``index[i]`` was, as beam search asks for; for one leading axis.

        Raises:
            ShapeError: the cache has not one leading axis.
        """
        if self._lead is None:
            return
        if len(self._lead) != 1:
            hint = "a batch with one leading axis can be reordered"
            raise ShapeError("cache", "one leading axis", f"leading axes {self._lead}", hint)
        picked, entries = torch.as_tensor(index, dtype=torch.long), self._lead[0]
        inside = picked.numel() == 0 or 0 <= int(picked.min()) <= int(picked.max()) < entries
        if picked.ndim != 1 or not inside:
            expected = f"one axis of whole numbers between 0 and {entries - 1}"
            raise HeadwiseError(
                "index", expected, shown(index), "the entries of the batch, such as [0, 0, 2]"
            )
        self._reorder(picked)
        self._lead = (len(picked),)
        if isinstance(self.length, Tensor):
            self.length = self.length[picked.to(self.length.device)]

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` tokens of every entry, as after a rejected draft.

        Raises:
            HeadwiseError: ``length`` is no whole number >= 0.
            CapabilityError: a rolling cache that has let go of what would be needed.
        """
        if not is_whole(length) or length < 0:
            hint = "cache.length - 1 forgets one token"
            raise HeadwiseError("length", "a whole number >= 0", shown(length), hint)
        self._truncate(int(length))
        if isinstance(self.length, Tensor):
            self.length = self.length.clamp(max=int(length))
        else:
            self.length = min(self.length, int(length))

    @property
    def nbytes(self) -> int:
        """Bytes that the cache holds, unused room included."""
        held = (self._keys, self._values)
        return sum(t.numel() * t.element_size() for t in held if t is not None)

    def __repr__(self) -> str:
        length = self.length.tolist() if isinstance(self.length, Tensor) else self.length
        return f"{type(self).__name__}(length={length}{self._extra()})"

    # ---- storage: what a cache of another kind defines, over (B, H, n, d) ----

    def _store(self, key: Tensor, value: Tensor, place: Place) -> Seen:
        raise NotImplementedError

    def _reorder(self, index: Tensor) -> None:
        assert self._keys is not None and self._values is not None
        index = index.to(self._keys.device)
        self._keys, self._values = self._keys[index], self._values[index]

    def _truncate(self, length: int) -> None:
        pass

    def _extra(self) -> str:
        return ""

    def _lengths(self, entries: int, device: torch.device) -> Tensor:
        """Length of each entry, ``(entries,)``."""
        if isinstance(self.length, Tensor):
            return self.length.reshape(-1).to(device)
        return torch.full((entries,), self.length, dtype=torch.long, device=device)

    def _check(self, key: Tensor, value: Tensor) -> None:
        for name, new, held in (("key", key, self._keys), ("value", value, self._values)):
            if held is None:
                continue
            if (new.shape[-3], new.shape[-1]) != (self._heads_of(held), held.shape[-1]):
                expected = f"{self._heads_of(held)} heads of width {held.shape[-1]}, as the cache holds"
                raise ShapeError(name, expected, f"shape {tuple(new.shape)}", "one cache serves one layer")
            if new.dtype != held.dtype or new.device != held.device:
                expected = f"{held.dtype} on {held.device}, as the cache holds"
                raise DtypeError(name, expected, f"{new.dtype} on {new.device}", "reset() empties the cache")

    def _heads_of(self, held: Tensor) -> int:
        return held.shape[1]


def entries_of(place: Place) -> int:
    """Number of batch entries, all leading axes together."""
    return math.prod(place.lead)


def _flat(heads: Tensor) -> Tensor:
    """(*lead, H, n, d) -> (B, H, n, d)."""
    *lead, h, n, d = heads.shape
    return heads if len(lead) == 1 else heads.reshape(math.prod(lead), h, n, d)


def _over(lead: Shape, number: int | Tensor) -> int | Tensor:
    return number.reshape(lead) if isinstance(number, Tensor) else number
