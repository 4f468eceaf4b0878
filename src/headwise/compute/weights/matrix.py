"""A matrix that is indexed like an array and computed like a function."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from headwise.compute.arrays import take
from headwise.compute.problem import Problem
from headwise.compute.weights.entries import At
from headwise.compute.weights.index import Product, points, resolve, vector
from headwise.errors import CapabilityError
from headwise.plain.numbers import binary
from headwise.plain.types import Array, Floats, Integers

PIECE = 2**20  # numbers that are worked on at a time


class LazyMatrix(ABC):
    """A matrix ``(..., H, n_q, n_k)`` whose entries are computed when they are asked for.

    Attributes:
        shape, ndim, size, dtype, nbytes: those of the dense array.
        memory_limit: largest dense piece, in bytes, that an index or ``np.asarray`` may make; can be set.
    """

    def __init__(self, problem: Problem, query: Any, memory_limit: int) -> None:
        self._problem = problem
        self._query = query
        _, self._restore = take({"query": query})
        self.memory_limit = memory_limit
        head = () if problem.one_head else (*problem.lead, problem.heads)
        self.shape = (*head, problem.n_q, problem.n_k)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        return self.size * self._problem.query.dtype.itemsize

    @property
    def dtype(self) -> Any:
        return getattr(self._query, "dtype", self._problem.query.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        """The entries at a NumPy index, and no others: ints, slices, ``...``, None, index arrays, booleans.

        The result is of the kind of ``query``.

        Raises:
            IndexError: the index does not fit.
            CapabilityError: the result is larger than ``memory_limit``.
        """
        size, found = resolve(index, self.shape)
        self._allow(size)
        result = (
            self._product(found.vectors)[found.pick]
            if isinstance(found, Product)
            else self._points(points(found, self.shape).coordinates)
        )
        return (
            result if isinstance(result, np.generic) and self._plain() else self._restore(np.asarray(result))
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        self._allow(self.size)
        if copy is False:
            raise ValueError(f"{type(self).__name__} is no array yet: it cannot become one without a copy")
        dense = self._product([np.arange(n) for n in self.shape])
        return dense if dtype is None else dense.astype(dtype)

    def rows(self, *i: Any) -> Any:
        """Rows of every head: ``(..., H, number of rows, n_k)``.

        Args:
            i: whole numbers; or one slice, or one vector of whole numbers or booleans.
        """
        return self.window(i[0] if len(i) == 1 else list(i), slice(None))

    def columns(self, *j: Any) -> Any:
        """Columns of every head: ``(..., H, n_q, number of columns)``; ``j`` as in :meth:`rows`."""
        return self.window(slice(None), j[0] if len(j) == 1 else list(j))

    def window(self, rows: Any, columns: Any) -> Any:
        """The block of some rows and some columns of every head, ``(..., H, rows, columns)``.

        Args:
            rows, columns: each an int, a slice, or a vector of whole numbers or booleans; neither axis is
                dropped.
        """
        *head, n_q, n_k = self.shape
        vectors = [*map(np.arange, head), vector(rows, n_q, -2), vector(columns, n_k, -1)]
        self._allow(int(np.prod([len(v) for v in vectors], dtype=object)))
        return self._restore(self._product(vectors))

    def _plain(self) -> bool:
        return isinstance(self._query, np.ndarray)

    def _allow(self, size: int) -> None:
        needed = size * self._problem.query.dtype.itemsize
        if needed > self.memory_limit:
            expected = f"at most {binary(self.memory_limit)} of dense entries (memory_limit)"
            received = f"{binary(needed)} out of shape {self.shape}"
            hint = f"ask for fewer entries, w[..., :8, :], or set w.memory_limit = {needed}"
            raise CapabilityError(type(self).__name__, expected, received, hint)

    def _product(self, vectors: list[Integers]) -> Array:
        """Every combination of the given indices, one vector per axis."""
        *head, rows, columns = vectors
        if self._problem.one_head:
            head = [np.zeros(1, np.int64)]
        block = np.empty([len(v) for v in (*head, rows, columns)], self._problem.query.dtype)
        if block.size:
            step = max(1, PIECE // len(columns))
            for entry in np.ndindex(*(len(v) for v in head)):
                at = tuple(int(v[e]) for v, e in zip(head, entry, strict=True))
                for first in range(0, len(rows), step):
                    part = slice(first, first + step)
                    block[(*entry, part)] = self._entries(at, rows[part, None], columns[None])
        return block[0] if self._problem.one_head else block

    def _points(self, coordinates: list[Integers]) -> Array:
        """Single entries."""
        shape = coordinates[0].shape
        flat = [c.reshape(-1) for c in coordinates]
        if self._problem.one_head:
            flat = [np.zeros_like(flat[0]), *flat]
        result = np.empty(flat[0].size, self._problem.query.dtype)
        step = max(1, PIECE // self._problem.d_k)
        for first in range(0, result.size, step):
            *at, i, j = (c[first : first + step] for c in flat)
            result[first : first + step] = self._entries(tuple(at), i, j)
        return result.reshape(shape)

    @abstractmethod
    def _entries(self, at: At, i: Integers, j: Integers) -> Floats:
        """What stands at rows i and columns j of the heads ``at``, one number for each."""
