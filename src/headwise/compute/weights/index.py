"""NumPy indexing without the array: an index becomes the rows and columns that it asks for."""

import operator
from typing import Any, NamedTuple

import numpy as np

from headwise.plain.types import Booleans, Integers


class Product(NamedTuple):
    """Every combination of one vector per axis; ``pick`` then indexes the block that they make."""

    vectors: list[Integers]
    pick: tuple[Any, ...]


class Points(NamedTuple):
    """Single entries: one coordinate array per axis, all of the shape of the result."""

    coordinates: list[Integers]


def resolve(index: Any, shape: tuple[int, ...]) -> tuple[int, Product | tuple[Any, ...]]:
    """Number of entries that ``index`` asks for, and how: as a product, or as an index to `points`.

    Raises:
        IndexError: as NumPy does, for an index that does not fit ``shape``.
    """
    entries = _expanded(index, shape)
    arrays = [entry for entry in entries if isinstance(entry, np.ndarray)]
    if len(arrays) > 1 or any(entry.dtype == np.bool_ and entry.ndim != 1 for entry in arrays):
        nothing: Booleans = np.broadcast_to(np.False_, shape)
        return nothing[entries].size, entries
    vectors: list[Integers] = []
    pick: list[Any] = []
    for entry in entries:
        if entry is None or entry is Ellipsis:
            pick.append(entry)
            continue
        n = shape[len(vectors)]
        if isinstance(entry, slice):
            vectors.append(np.arange(n)[entry])
            pick.append(slice(None))
        elif isinstance(entry, int):
            vectors.append(_inside(np.array([entry]), n, len(vectors)))
            pick.append(0)
        elif entry.dtype == np.bool_:
            if entry.size != n:
                raise IndexError(f"boolean index of length {entry.size} on axis {len(vectors)} of size {n}")
            vectors.append(np.flatnonzero(entry))
            pick.append(np.arange(len(vectors[-1])))
        else:
            vectors.append(_inside(entry.ravel(), n, len(vectors)))
            pick.append(np.arange(entry.size).reshape(entry.shape))
    return int(np.prod([len(vector) for vector in vectors], dtype=object)), Product(vectors, tuple(pick))


def points(entries: tuple[Any, ...], shape: tuple[int, ...]) -> Points:
    """The coordinates of every entry, found by indexing each axis' own numbers."""
    coordinates = []
    for axis, n in enumerate(shape):
        along = np.arange(n).reshape([-1 if a == axis else 1 for a in range(len(shape))])
        coordinates.append(np.asarray(np.broadcast_to(along, shape)[entries]))
    return Points(coordinates)


def vector(index: Any, n: int, axis: int) -> Integers:
    """One axis' index (int, slice, range, whole numbers or booleans) as whole numbers."""
    _, found = resolve((index,), (n,))
    if not isinstance(found, Product) or index is None:
        raise IndexError(f"axis {axis} takes an int, a slice, or a vector of whole numbers or booleans")
    return found.vectors[0]


def _expanded(index: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """One entry per axis (a boolean array: per axis of its own) beside the new axes."""
    entries = [_entry(entry) for entry in (index if isinstance(index, tuple) else (index,))]
    dots = [at for at, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index holds one ellipsis ('...') at most")
    used = sum(
        0
        if entry is None or entry is Ellipsis
        else entry.ndim
        if isinstance(entry, np.ndarray) and entry.dtype == np.bool_
        else 1
        for entry in entries
    )
    if used > len(shape):
        raise IndexError(f"too many indices: {used} for {len(shape)} axes")
    at = dots[0] if dots else len(entries)
    rest: list[Any] = [slice(None)] * (len(shape) - used)
    if dots and not rest:
        rest = [Ellipsis]  # it stands for no axis, but makes an array of what would be a single number
    return (*entries[:at], *rest, *entries[at + 1 :])


def _entry(entry: Any) -> Any:
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return entry
    if not isinstance(entry, bool | np.bool_):
        try:
            return operator.index(entry)
        except TypeError:
            pass
    array = np.asarray(entry)
    if array.size == 0 and isinstance(entry, list | tuple):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise IndexError("indices are ints, slices, '...', None, and arrays of whole numbers or booleans")
    return array if array.dtype == np.bool_ else array.astype(np.int64, copy=False)


def _inside(numbers: Integers, n: int, axis: int) -> Integers:
    wrong = (numbers < -n) | (numbers >= n)
    if wrong.any():
        raise IndexError(f"index {numbers[wrong][0]} is out of bounds for axis {axis} with size {n}")
    return np.where(numbers < 0, numbers + n, numbers)
