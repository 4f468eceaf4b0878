"""Memory for what is kept while a model runs."""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

LEAST = 1 << 16  # bytes; smaller arrays find a place between others


def on_own_pages(array: npt.NDArray[Any]) -> Any:
    """The same numbers on pages of their own, outside the heap.

    An array that stays, put into the gap that a large tensor of the model left, keeps the next such tensor
    from using it again: a long text then took one more tensor's memory for every layer.
    """
    if array.nbytes < LEAST:
        return array
    kept = np.frombuffer(mmap.mmap(-1, array.nbytes), array.dtype).reshape(array.shape)
    kept[...] = array
    return kept
