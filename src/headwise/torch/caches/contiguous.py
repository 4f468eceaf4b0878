"""Caches that hold the tokens of every entry side by side: dynamic, static, rolling."""

import math

import torch
from torch import Tensor

from headwise.errors import CapabilityError, ShapeError
from headwise.torch.arguments import positive
from headwise.torch.caches.cache import Cache, Place, Seen, entries_of


class DynamicCache(Cache):
    """Keeps everything; its room doubles when it is full, so that n tokens cost O(n) copies.

    Gradients reach what it holds: where keys or values record gradients they are joined, not written over.
    """

    def __init__(self) -> None:
        super().__init__()
        # Position of the token in slot 0: not 0 only where old tokens were let go.
        self._base: int | Tensor = 0

    def reset(self) -> None:
        super().reset()
        self._base = 0

    def _store(self, key: Tensor, value: Tensor, place: Place) -> Seen:
        functional = _records(key) or _records(value)
        for held in (self._keys, self._values):
            functional = functional or (held is not None and held.requires_grad)
        self._make_room(key, value, place, functional)
        assert self._keys is not None and self._values is not None
        self._keys = self._put(self._keys, key, place, functional)
        self._values = self._put(self._values, value, place, functional)
        return self._shown(place, key.device)

    def _shown(self, place: Place, device: torch.device) -> Seen:
        """All slots in use, from the first one that a query of the piece may need."""
        assert self._keys is not None and self._values is not None
        ends = self._ends(place, device)
        start, end = self._first_slot(device), _largest(ends)
        offset = _per_entry(place.position) - self._base
        return Seen(
            self._keys[:, :, start:end],
            self._values[:, :, start:end],
            offset - start,
            ends - start if isinstance(ends, Tensor) else None,
            self._base + start,
        )

    def _first_slot(self, device: torch.device) -> int:
        return 0

    def _used(self, entries: int, device: torch.device) -> int | Tensor:
        """Slots in use, per entry where entries differ."""
        if isinstance(self.length, int) and isinstance(self._base, int):
            return self.length - self._base
        return self._lengths(entries, device) - self._base

    def _ends(self, place: Place, device: torch.device) -> int | Tensor:
        """The slot after the last token of the piece, per entry where entries differ."""
        added = place.n if place.real is None else place.real[1].to(device)
        return self._used(entries_of(place), device) + added

    def _make_room(self, key: Tensor, value: Tensor, place: Place, functional: bool) -> None:
        """Take over what is held into buffers with room for the piece."""
        if functional:
            if self._keys is None:
                self._keys, self._values = key[:, :, :0], value[:, :, :0]
            return
        used = _largest(self._used(entries_of(place), key.device))
        needed = used + place.n
        if self._keys is None or not self._fits(self._keys, needed):
            room = self._room(needed)
            self._keys = _moved(self._keys, key, used, room)
            self._values = _moved(self._values, value, used, room)

    def _fits(self, held: Tensor, needed: int) -> bool:
        return held.shape[2] >= needed and not only_read(held)

    def _room(self, needed: int) -> int:
        return max(16, 1 << max(needed - 1, 0).bit_length())

    def _put(self, room: Tensor, new: Tensor, place: Place, functional: bool) -> Tensor:
        used = self._used(entries_of(place), new.device)
        if isinstance(used, int) and place.real is None:
            if functional:
                return torch.cat([room[:, :, :used], new], dim=2)
            room[:, :, used : used + place.n] = new
            return room
        entry, slot, row = self._slots(place, used, new.device)
        # With the heads' axis behind the two that are indexed, rows are (pairs, H, d).
        rows = new.transpose(1, 2)[entry, row]
        if functional:
            longest = _largest(used)
            padded = torch.nn.functional.pad(room[:, :, :longest], (0, 0, 0, place.n))
            return padded.transpose(1, 2).index_put((entry, slot), rows).transpose(1, 2)
        room.transpose(1, 2)[entry, slot] = rows
        return room

    def _slots(self, place: Place, used: int | Tensor, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Entry, slot and row of every real token of the piece."""
        start = torch.zeros(entries_of(place), dtype=torch.long, device=device) + used
        if place.real is None:
            first, count = torch.zeros_like(start), torch.full_like(start, place.n)
        else:
            first, count = (part.to(device) for part in place.real)
        steps = torch.arange(place.n, device=device)
        real = (steps >= first[:, None]) & (steps < (first + count)[:, None])
        entry, row = real.nonzero(as_tuple=True)
        return entry, start[entry] + row - first[entry], row

    def _reorder(self, index: Tensor) -> None:
        super()._reorder(index)
        if isinstance(self._base, Tensor):
            self._base = self._base[index.to(self._base.device)]


class StaticCache(DynamicCache):
    """Room for ``max_length`` tokens, taken at the first piece and never moved.

    It writes in place, so it serves inference: keys that record gradients are refused.

    Raises:
        HeadwiseError: ``max_length`` is no whole number >= 1.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__()
        self.max_length = positive("max_length", max_length)

    def reset(self) -> None:
        self.length, self._lead = 0, None

    def _store(self, key: Tensor, value: Tensor, place: Place) -> Seen:
        refuse_gradients(self, key, value)
        if self._keys is not None and self._keys.shape[0] != entries_of(place):
            self._keys = self._values = None  # emptied, and used again for another batch
        end = _largest(self._ends(place, key.device))
        if end > self.max_length:
            hint = "a DynamicCache grows"
            raise ShapeError("cache", f"at most {self.max_length} tokens (max_length)", f"{end}", hint)
        return super()._store(key, value, place)

    def _room(self, needed: int) -> int:
        return self.max_length

    def _extra(self) -> str:
        return f", max_length={self.max_length}"


class RollingCache(DynamicCache):
    """Keeps the last ``window`` tokens, for layers with ``window_size=(w, ...)``, w <= window.

    Such a layer never looks further back, so its answers are those of the full sequence, in memory that does
    not grow with it.

    Raises:
        HeadwiseError: ``window`` is no whole number >= 1.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = positive("window", window)

    def check_window(self, window: tuple[int | None, int | None]) -> None:
        """Refuse a layer that looks back further than the cache does.

        Raises:
            CapabilityError: no window to the left, or a wider one.
        """
        left = window[0]
        if left is None or left > self.window:
            expected = f"at least the {left} tokens that the layer looks back"
            if left is None:
                expected = "a layer that looks back at most that far"
            received = f"RollingCache({self.window}) and window_size={window}"
            hint = f"window_size=({self.window}, 0) in the layer, or a DynamicCache, which keeps everything"
            raise CapabilityError("cache", expected, received, hint)

    def _first_slot(self, device: torch.device) -> int:
        if self._lead is None:
            return 0
        used = self._used(math.prod(self._lead), device)
        smallest = (int(used.min()) if used.numel() else 0) if isinstance(used, Tensor) else used
        return max(0, smallest - self.window)

    def _make_room(self, key: Tensor, value: Tensor, place: Place, functional: bool) -> None:
        held = self._keys
        if held is not None:
            used = self._used(entries_of(place), key.device)
            full = functional or not self._fits(held, _largest(used) + place.n)
            # The room of a long first piece is given back.
            if full or held.shape[2] > 2 * self._room(self.window + place.n):
                self._let_go(used)
        super()._make_room(key, value, place, functional)

    def _let_go(self, used: int | Tensor) -> None:
        """Move the last ``window`` tokens of every entry to slot 0."""
        assert self._keys is not None and self._values is not None
        if isinstance(used, int):
            start: int | Tensor = max(0, used - self.window)
            self._keys, self._values = self._keys[:, :, start:used], self._values[:, :, start:used]
        else:
            start = (used - self.window).clamp(min=0)
            steps = torch.arange(_largest(used - start), device=used.device)
            slot = (start[:, None] + steps).clamp(max=max(self._keys.shape[2] - 1, 0))[:, None, :, None]
            self._keys, self._values = (
                held.gather(2, slot.expand(-1, held.shape[1], -1, held.shape[3]))
                for held in (self._keys, self._values)
            )
        self._base = self._base + start

    def _room(self, needed: int) -> int:
        return max(needed, 2 * self.window)

    def _truncate(self, length: int) -> None:
        if self._lead is None:
            return
        held = _per_entry(self.length)
        smaller = min(length, held) if isinstance(held, int) else held.clamp(max=length)
        needed = smaller - self.window  # position of the oldest token that the next query may see
        lost = self._base > (max(needed, 0) if isinstance(needed, int) else needed.clamp(min=0))
        if bool(lost.any()) if isinstance(lost, Tensor) else lost:
            expected = "a length whose window is still held"
            hint = "truncate soon after the tokens were taken in, or keep everything in a DynamicCache"
            raise CapabilityError("length", expected, f"{length} of {self.length}", hint)

    def _extra(self) -> str:
        return f", window={self.window}"


def only_read(held: Tensor) -> bool:
    """Was it made in inference mode, which has ended? Such a tensor cannot be written to."""
    if torch.compiler.is_compiling():  # a graph cannot ask, and is made for one mode
        return False
    return held.is_inference() and not torch.is_inference_mode_enabled()


def refuse_gradients(cache: Cache, key: Tensor, value: Tensor) -> None:
    """A cache that writes in place serves inference.

    Raises:
        CapabilityError: key or value records gradients.
    """
    if _records(key) or _records(value):
        received = f"{type(cache).__name__} while keys or values record gradients"
        hint = "torch.no_grad() around inference; a DynamicCache passes gradients on"
        raise CapabilityError("cache", "one that passes gradients on", received, hint)


def _per_entry(number: int | Tensor) -> int | Tensor:
    """One number for all entries, or one axis of them: entries are stored in one axis, whatever leads."""
    return number.reshape(-1) if isinstance(number, Tensor) else number


def _records(tensor: Tensor) -> bool:
    return tensor.requires_grad and torch.is_grad_enabled()


def _largest(number: int | Tensor) -> int:
    if isinstance(number, Tensor):
        return int(number.max()) if number.numel() else 0
    return number


def _moved(held: Tensor | None, like: Tensor, used: int, room: int) -> Tensor:
    """A buffer (B, H, room, d) that begins with the used slots of ``held``."""
    made = like.new_zeros(*like.shape[:2], room, like.shape[-1])
    if held is not None:
        made[:, :, :used] = held[:, :, :used]
    return made
