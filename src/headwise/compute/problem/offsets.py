"""Where the queries stand among the keys, and how far they see: offsets, windows, lengths."""

from typing import Any

import numpy as np

from headwise.compute.arrays import integers
from headwise.compute.options import ALIGNMENTS, both_readings
from headwise.compute.problem.sizes import Shape
from headwise.compute.request import LARGEST_POSITION
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.types import Integers
from headwise.plain.values import is_whole, shown

Window = tuple[int | None, int | None]
Lengths = Integers | None


def check_offset(
    offset: Any,
    alignment: Any,
    lead: Shape,
    n_q: int,
    n_k: int,
    needed_by: str | None,
    query_lengths: Lengths = None,
    kv_lengths: Lengths = None,
) -> int | Integers:
    """Position of query 0 among the keys: one number, or one per batch entry.

    Args:
        needed_by: the option or statistic that uses positions, or None.
        query_lengths, kv_lengths: checked; they move the last query and the last key of "lower_right".
    """
    if offset is None and alignment is None:
        if needed_by is not None and n_q != n_k:
            expected = "causal_alignment= or query_offset= beside it, as it uses positions and n_q != n_k"
            received = f"neither, with {n_q} queries and {n_k} keys"
            raise ShapeError(needed_by, expected, received, both_readings(n_q, n_k))
        return 0
    if alignment is not None:
        if not isinstance(alignment, str) or alignment not in ALIGNMENTS:
            expected = 'None, "upper_left" or "lower_right"'
            raise HeadwiseError("causal_alignment", expected, shown(alignment), both_readings(n_q, n_k))
        if offset is not None:
            received = f"query_offset={shown(offset)} and causal_alignment={shown(alignment)}"
            hint = "either one says where the queries stand"
            raise HeadwiseError("query_offset", "query_offset or causal_alignment, not both", received, hint)
        if alignment == "upper_left":
            return 0
        if query_lengths is None and kv_lengths is None:
            return n_k - n_q
        last_key = np.int64(n_k) if kv_lengths is None else kv_lengths
        last_query = np.int64(n_q) if query_lengths is None else query_lengths
        return np.asarray(last_key - last_query)
    if not is_whole(offset) and (isinstance(offset, list | tuple) or hasattr(offset, "shape")):
        offsets = per_batch("query_offset", integers("query_offset", offset), lead)
        far = (offsets > LARGEST_POSITION) | (offsets < -LARGEST_POSITION)
        if not far.any():
            return offsets
        offset = int(offsets[far].flat[0])
    if not is_whole(offset) or abs(int(offset)) > LARGEST_POSITION:
        expected = f"whole numbers between -{LARGEST_POSITION} and {LARGEST_POSITION}"
        hint = "it is the position of query 0 among the keys, one for all or one per batch entry"
        raise HeadwiseError("query_offset", expected, shown(offset), hint)
    return int(offset)


def check_lengths(name: str, lengths: Any, lead: Shape, n: int, what: str) -> Integers:
    """How many of the n queries or keys are real, one number per batch entry."""
    numbers = integers(name, [lengths] if is_whole(lengths) else lengths)
    numbers = np.broadcast_to(numbers[0], lead) if is_whole(lengths) else per_batch(name, numbers, lead)
    wrong = (numbers < 0) | (numbers > n)
    if wrong.any():
        expected = f"whole numbers between 0 and {n}, the number of {what}"
        hint = f"the first {name} {what} of each batch entry are real, the others padding"
        raise HeadwiseError(name, expected, str(numbers[wrong].flat[0]), hint)
    return numbers


def per_batch(name: str, numbers: Integers, lead: Shape) -> Integers:
    if numbers.shape != lead:
        expected = f"one number per batch entry, shape {lead}"
        hint = "a single whole number serves every batch entry"
        raise ShapeError(name, expected, f"shape {numbers.shape}", hint)
    return numbers


def check_window(window: Any) -> Window:
    """(left, right): keys seen before and after the query's own position; None = open."""
    hint = "window_size=(3, 0) is the query's own position and 3 before it; (None, 0) is causal"
    if not isinstance(window, tuple | list) or len(window) != 2:
        expected = "a pair (left, right), each a whole number >= 0 or None (open)"
        raise HeadwiseError("window_size", expected, shown(window), hint)
    for side in window:
        if side is not None and not (is_whole(side) and 0 <= side <= LARGEST_POSITION):
            expected = f"whole numbers between 0 and {LARGEST_POSITION}, or None (open)"
            raise HeadwiseError("window_size", expected, shown(tuple(window)), hint)
    left, right = (None if side is None else int(side) for side in window)
    return left, right
