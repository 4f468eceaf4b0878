"""Masks, biases and ids: what they may hold, and how they are seen over a whole problem."""

from typing import Any

import numpy as np

from headwise.compute.problem.sizes import Shape
from headwise.compute.request import AuxRequest
from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.plain.types import Array, Integers

FEW_CLASSES = 1024


def check_mask(mask: Array, dtype: np.dtype[Any], full: Shape) -> Array:
    """The mask seen as (*lead, H, n_q, n_k), refused where its meaning would have to be guessed."""
    if mask.dtype != np.bool_:
        if mask.dtype.kind in "iu":
            expected = "booleans (True = attend) or floats (added to the scores)"
            raise DtypeError("attn_mask", expected, str(mask.dtype), "attn_mask != 0, if 1 means attend")
        if mask.dtype != dtype:
            expected = f"bool, or {dtype} as query has"
            hint = "nothing is cast in silence: convert the mask to the dtype of query"
            raise DtypeError("attn_mask", expected, str(mask.dtype), hint)
        if _only_zeros_and_ones(mask):
            expected = "booleans (True = attend) or floats (added to the scores)"
            received = f"{mask.dtype} with nothing but 0 and 1 in it, which would add 1 and hide no key"
            hint = "attn_mask != 0 (.bool() in torch), if 1 means attend; attn_bias= adds any numbers"
            raise HeadwiseError("attn_mask", expected, received, hint)
    return _over_all("attn_mask", mask, full)


def check_bias(bias: Array, dtype: np.dtype[Any], full: Shape) -> Array:
    """The bias seen as (*lead, H, n_q, n_k); its numbers are added, whatever they are."""
    if bias.dtype != dtype:
        hint = "nothing is cast in silence: convert the bias to the dtype of query"
        if bias.dtype == np.bool_:
            hint = "a boolean mask goes into attn_mask"
        raise DtypeError("attn_bias", f"{dtype}, as query has", str(bias.dtype), hint)
    return _over_all("attn_bias", bias, full)


def _over_all(name: str, mask: Array, full: Shape) -> Array:
    if mask.shape == full:
        return mask
    try:
        return np.broadcast_to(mask, full)
    except ValueError:
        expected = f"a shape that broadcasts, aligned at the right, to (*lead, H, n_q, n_k) = {full}"
        raise ShapeError(name, expected, f"shape {mask.shape}", _mask_hint(name, mask.shape, full)) from None


def _mask_hint(name: str, shape: Shape, full: Shape) -> str:
    batch, n_q, n_k = full[:-3], full[-2], full[-1]
    if len(batch) == 1 and shape == (*batch, n_k):
        return f"for one row per batch entry, {name}[:, None, None, :]"
    if len(batch) == 1 and shape == (*batch, n_q, n_k):
        return f"for one grid per batch entry, {name}[:, None]"
    if n_q != n_k and shape[-2:] == (n_k, n_q):
        return "rows are queries and columns are keys: swap the last two axes"
    names = [*(f"leading axis {i}" for i in range(len(batch))), "H", "n_q", "n_k"]
    pairs = zip(shape[::-1], full[::-1], names[::-1], strict=False)
    wrong = [(name, has, wants) for has, wants, name in pairs if has not in (1, wants)]
    if len(shape) <= len(full) and len(wrong) == 1:
        return "the axis of {} has {} entries where {} or 1 fit".format(*wrong[0])
    return f"shape ({n_q}, {n_k}) serves every head and batch entry"


def _only_zeros_and_ones(mask: Array) -> bool:
    """Does the mask hold both 0 and 1 and nothing else?"""
    one_seen = zero_seen = False
    # In small pieces, up to the first other number: most masks are judged by their first row.
    for piece in np.nditer(mask, ["external_loop", "buffered", "zerosize_ok"], buffersize=8192):
        one, zero = np.asarray(piece == 1), np.asarray(piece == 0)
        if not np.all(one | zero):
            return False
        one_seen, zero_seen = one_seen or bool(one.any()), zero_seen or bool(zero.any())
    return one_seen and zero_seen


def check_tokens(
    matches: Any, lead: Shape, n_q: int, n_k: int, offset: int | Integers
) -> tuple[Integers, Integers]:
    """Token ids of the keys and of the queries, seen as (*lead, n_k) and (*lead, n_q)."""
    if isinstance(matches, tuple):
        keys = check_ids("matches", matches[0], lead, n_k, "key")
        return keys, check_ids("matches", matches[1], lead, n_q, "query")
    keys = check_ids("matches", matches, lead, n_k, "key")
    positions = np.broadcast_to(np.arange(n_q) + np.asarray(offset)[..., None], (*lead, n_q))
    inside = (positions >= 0) & (positions < n_k)
    # A query that stands outside the keys has no token: it gets an id that no key has.
    absent = 0 if inside.all() else np.setdiff1d(np.arange(matches.size + 1), matches)[0]
    if n_k == 0:
        return keys, np.full((*lead, n_q), absent)
    return keys, np.where(inside, np.take_along_axis(keys, positions.clip(0, n_k - 1), -1), absent)


def check_classes(request: AuxRequest, lead: Shape, n_k: int) -> Integers:
    """Class of each key, seen as (*lead, n_k)."""
    classes = check_ids("classes", request.classes, lead, n_k, "key")
    limit = max(n_k, FEW_CLASSES)
    if request.class_count > limit:
        hint = "number the classes without gaps: np.unique(classes, return_inverse=True)[1]"
        raise HeadwiseError("classes", f"classes below {limit}", f"class {request.class_count - 1}", hint)
    return classes


def check_ids(name: str, ids: Integers, lead: Shape, n: int, what: str) -> Integers:
    """Whole numbers, one per position, seen as (*lead, n)."""
    full = (*lead, n)
    if ids.ndim and ids.shape[-1] == n and ids.ndim <= len(full):
        try:
            return np.broadcast_to(ids, full)
        except ValueError:
            pass
    expected = f"one number per {what}, shape {(n,)}" + (f" or {full}" if lead else "")
    raise ShapeError(name, expected, f"shape {ids.shape}", f"there are {n} {what} positions")
