"""Positions that a user names: special tokens, classes of tokens, candidates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.errors import HeadwiseError


def marked(argument: str, given: Any, n: int) -> list[int]:
    """Different positions from 0 to n − 1, sorted; a mask (``special_tokens_mask``) is not taken for them.

    Raises:
        HeadwiseError: anything else; the message names ``argument``.
    """
    if given is None:
        return []
    hint = "of a mask: np.flatnonzero(mask)"
    expected = f"different positions from 0 to {n - 1}"
    try:
        found: npt.NDArray[Any] = np.asarray([given] if isinstance(given, str) else given)
    except (TypeError, ValueError):
        raise HeadwiseError(argument, expected, f"{type(given).__name__}", hint) from None
    if found.size == 0:
        return []
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise HeadwiseError(argument, expected, f"{found.dtype} of shape {found.shape}", hint)
    at = sorted(found.tolist())
    if len(set(at)) < len(at) or not 0 <= at[0] <= at[-1] < n:
        raise HeadwiseError(argument, expected, f"{found.tolist()}"[:80], hint)
    return at


def members(argument: str, given: Any, shown: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(n,) True at the members of a class: different positions, or every place of the tokens named.

    Args:
        given: positions, or tokens as they are ``shown``.

    Raises:
        HeadwiseError: positions that do not exist; tokens of which none stands in the text.
    """
    words = list(given) if isinstance(given, list | tuple | set | frozenset | np.ndarray) else []
    if not words or not all(isinstance(word, str) for word in words):
        return booleans_at(argument, given, len(shown))
    where = np.array([token in frozenset(words) for token in shown])
    if not where.any():
        listed = ", ".join(map(repr, words))[:60]
        raise HeadwiseError(argument, "tokens of the text, as they are shown, or positions", listed)
    return where


def booleans_at(argument: str, given: Any, n: int) -> npt.NDArray[np.bool_]:
    """(n,) True at the positions."""
    where = np.zeros(n, bool)
    where[marked(argument, given, n)] = True
    return where
