"""A cache in pages: entries of very different lengths, and entries that share a beginning."""

import torch
from torch import Tensor

from headwise.errors import CapabilityError
from headwise.torch.arguments import positive
from headwise.torch.caches.cache import Cache, Place, Seen, entries_of
from headwise.torch.caches.contiguous import only_read, refuse_gradients


class PagedCache(Cache):
    """Keeps everything in pages of ``block_size`` tokens, taken from a pool when an entry needs one.

    An entry holds the pages of its own length only, and :meth:`reorder` lets entries share pages: a shared
    page is copied when one of them writes into it. Attention reads the pages of a call joined into one array,
    which is a copy for the time of that call.

    It writes in place, so it serves inference: keys that record gradients are refused.

    Args:
        block_size: tokens of a page.
        num_blocks: pages of the pool; None means a pool that doubles when it is used up.

    Attributes:
        tables: for every entry its pages, oldest first.

    Raises:
        HeadwiseError: a size that is no whole number >= 1.
    """

    def __init__(self, block_size: int = 16, num_blocks: int | None = None) -> None:
        super().__init__()
        self.block_size = positive("block_size", block_size)
        self.num_blocks = None if num_blocks is None else positive("num_blocks", num_blocks)
        self._forget()

    def reset(self) -> None:
        super().reset()
        self._forget()

    def _forget(self) -> None:
        self.tables: list[list[int]] = []
        self._free: list[int] = []
        self._users: list[int] = []  # of each page: entries that hold it

    @property
    def blocks_used(self) -> int:
        """Pages that some entry holds."""
        return sum(users > 0 for users in self._users)

    def _heads_of(self, held: Tensor) -> int:
        return held.shape[2]

    def _store(self, key: Tensor, value: Tensor, place: Place) -> Seen:
        refuse_gradients(self, key, value)
        entries, device = entries_of(place), key.device
        if not self.tables:
            self.tables = [[] for _ in range(entries)]
        if self._keys is None or only_read(self._keys):
            self._keys, self._values = (
                new.new_zeros(0, self.block_size, new.shape[1], new.shape[3])
                if held is None
                else held.clone()
                for new, held in ((key, self._keys), (value, self._values))
            )
        start = self._lengths(entries, device)
        if place.real is None:
            first, count = torch.zeros_like(start), torch.full_like(start, place.n)
        else:
            first, count = (part.to(device) for part in place.real)
        ends = start + count
        self._take_pages(start.tolist(), ends.tolist())
        table = self._block_table(device)
        steps = torch.arange(place.n, device=device)
        real = (steps >= first[:, None]) & (steps < (first + count)[:, None])
        entry, row = real.nonzero(as_tuple=True)
        position = start[entry] + row - first[entry]
        page, within = table[entry, position // self.block_size], position % self.block_size
        assert self._keys is not None and self._values is not None
        self._keys[page, within] = key.transpose(1, 2)[entry, row]
        self._values[page, within] = value.transpose(1, 2)[entry, row]
        longest = int(ends.max()) if entries else 0
        # (B, pages, block, H, d) -> (B, H, pages * block, d)
        keys, values = (
            held[table].flatten(1, 2)[:, :longest].transpose(1, 2) for held in (self._keys, self._values)
        )
        equal = place.real is None and isinstance(self.length, int)
        offset = place.position.reshape(-1) if isinstance(place.position, Tensor) else place.position
        return Seen(keys, values, offset, None if equal else ends, 0)

    def _take_pages(self, starts: list[int], ends: list[int]) -> None:
        """Give every entry the pages that it is about to write into, each of them its own."""
        size = self.block_size
        wanted: list[tuple[list[int], int, int | None]] = []
        for table, start, end in zip(self.tables, starts, ends, strict=True):
            if end == start:
                continue
            for index in range(start // size, -(-end // size)):
                if index >= len(table):
                    wanted.append((table, index, None))
                elif self._users[table[index]] > 1:
                    wanted.append((table, index, table[index]))
        # The last entry to leave a shared page could keep it: then one page more than needed is asked for.
        self._provide(len(wanted))
        assert self._keys is not None and self._values is not None
        for table, index, shared in wanted:
            page = self._free.pop()
            self._users[page] = 1
            if shared is None:
                table.append(page)
                continue
            self._keys[page], self._values[page] = self._keys[shared], self._values[shared]
            self._users[shared] -= 1
            table[index] = page
            if self._users[shared] == 0:
                self._free.append(shared)

    def _provide(self, number: int) -> None:
        """Have that many free pages."""
        missing = number - len(self._free)
        if missing <= 0:
            return
        assert self._keys is not None and self._values is not None
        pages = self._keys.shape[0]
        if self.num_blocks is None:
            added = max(missing, pages)
        else:
            added = self.num_blocks - pages
            if added < missing:
                expected = f"at most {self.num_blocks} pages of {self.block_size} tokens (num_blocks)"
                received = f"{pages - len(self._free) + number} needed"
                hint = "num_blocks=None lets the pool grow; truncate() and reset() give pages back"
                raise CapabilityError("cache", expected, received, hint)
        self._keys, self._values = (
            torch.cat([held, held.new_zeros(added, *held.shape[1:])]) for held in (self._keys, self._values)
        )
        self._free += range(pages + added - 1, pages - 1, -1)
        self._users += [0] * added

    def _block_table(self, device: torch.device) -> Tensor:
        """``(B, pages)``; short entries repeat page 0, which their length hides."""
        most = max(map(len, self.tables), default=0)
        rows = [table + [0] * (most - len(table)) for table in self.tables]
        return torch.tensor(rows, dtype=torch.long, device=device).reshape(len(rows), most)

    def _give_back(self, pages: list[int]) -> None:
        for page in pages:
            self._users[page] -= 1
            if self._users[page] == 0:
                self._free.append(page)

    def _reorder(self, index: Tensor) -> None:
        tables = [list(self.tables[entry]) for entry in index.tolist()]
        for table in tables:
            for page in table:
                self._users[page] += 1
        for table in self.tables:
            self._give_back(table)
        self.tables = tables

    def _truncate(self, length: int) -> None:
        for table in self.tables:
            needed = -(-length // self.block_size)
            self._give_back(table[needed:])
            del table[needed:]

    def _extra(self) -> str:
        return f", blocks_used={self.blocks_used}, block_size={self.block_size}"
