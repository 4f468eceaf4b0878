"""Some query rows of a call, as a call of its own: what is too dear for every row is computed for these."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.compute.arrays import take
from headwise.compute.functional import attention, attention_statistics
from headwise.compute.request import AuxRequest
from headwise.inspect.call.call import AttentionCall
from headwise.plain.types import Booleans, Floats, Integers

PASSAGE = 24  # consecutive rows that are read together
PASSAGES = 8
PIECE = 2**24  # weights that are held at a time
WHOLE = 512  # a text of no more rows is its own sample


def sample_starts(n_q: int) -> tuple[Integers, int]:
    """First rows of the passages of a sample, evenly over the text, and the rows of a passage."""
    if n_q <= WHOLE:
        return np.zeros(1, np.int64), n_q
    return np.linspace(0, n_q - PASSAGE, PASSAGES).round().astype(np.int64), PASSAGE


def plain(array: Any) -> npt.NDArray[Any]:
    """A NumPy view of query, key, value or output."""
    (view,), _ = take({"query": array})
    found: npt.NDArray[Any] = view
    return found


class Rows:
    """Passages of query rows of a call over one sequence (B = 1), over all its keys.

    Attributes:
        at: (r,) the rows, in order; start: position of row 0 of the call among the keys.
    """

    def __init__(self, call: AttentionCall, starts: Integers, length: int) -> None:
        self.at = (starts[:, None] + np.arange(length)).reshape(-1)
        self.start = call.offset
        self._call = picked(call, starts, length)

    @property
    def n_k(self) -> int:
        return int(self._call.key.shape[-2])

    def statistics(self, hide: Booleans | None = None, **request: Any) -> dict[str, Floats]:
        """Statistics (H, r, …) of these rows, with the keys at ``hide`` out of sight; requests by name."""
        options = self._options(hide)
        aux = attention_statistics(
            self._call.query, self._call.key, return_aux=AuxRequest(**request), **options
        )
        return {name: _flat(answer) for name, answer in aux.asked().items() if answer.ndim >= 3}

    def attend(
        self, values: npt.NDArray[Any], hide: Booleans | None = None, **request: Any
    ) -> tuple[Floats, dict[str, Floats]]:
        """Attention with other values, (H_kv, n_k, d) or one set per passage: the output (H, r, d), and the
        statistics."""
        full = (*self._call.key.shape[:-1], values.shape[-1])
        options = self._options(hide)
        output, aux = attention(
            self._call.query,
            self._call.key,
            np.broadcast_to(values, full),
            return_aux=AuxRequest(**request),
            **options,
        )
        return _flat(output), {
            name: _flat(answer) for name, answer in aux.asked().items() if answer.ndim >= 3
        }

    def changed(self, **parts: Any) -> "Rows":
        """The same rows with other parts of the call: query, key or options."""
        rows = object.__new__(Rows)
        rows.at, rows.start, rows._call = self.at, self.start, replace(self._call, **parts)
        return rows

    @property
    def call(self) -> AttentionCall:
        """The rows as a call: one batch entry per passage."""
        return self._call

    def _options(self, hide: Booleans | None) -> dict[str, Any]:
        options = dict(self._call.options)
        if hide is None or not hide.any():
            return options
        mask = options.get("attn_mask")
        if mask is None:
            options["attn_mask"] = ~hide[None, None, None]
        elif mask.dtype == np.bool_:
            options["attn_mask"] = mask & ~hide
        else:
            options["attn_mask"] = np.where(hide, -np.inf, mask).astype(mask.dtype)
        return options


def picked(call: AttentionCall, starts: Integers, length: int) -> AttentionCall:
    """The passages as the batch entries of one call: each starts where it stands in the text.

    Keys and values are shared by all of them, without a copy.
    """
    at = starts[:, None] + np.arange(length)
    many = len(starts)
    query, key = plain(call.query), plain(call.key)
    options = dict(call.options)
    options["query_offset"] = starts + call.offset
    for name in ("attn_mask", "attn_bias"):
        if options.get(name) is not None:
            options[name] = _mask_rows(np.asarray(options[name]), at)
    if options.get("segment_ids") is not None:
        given = options["segment_ids"]
        of_queries, of_keys = given if isinstance(given, tuple) else (given, given)
        of_queries, of_keys = np.asarray(of_queries).reshape(-1), np.asarray(of_keys).reshape(-1)
        options["segment_ids"] = (of_queries[at], np.broadcast_to(of_keys, (many, len(of_keys))))
    shared = (many, *key.shape[1:])
    return replace(
        call,
        query=query[0][:, at].swapaxes(0, 1),
        key=np.broadcast_to(key, shared),
        value=None
        if call.value is None
        else np.broadcast_to(plain(call.value), (many, *call.value.shape[1:])),
        output=None,
        options=options,
        runner=None,
    )


def weights_of(call: AttentionCall, at: Integers) -> Floats:
    """The weights (H, len(at), n_k) of some rows, 0 in rows that see nothing: ask for few rows.

    All of them run as the rows of one problem; a mask says what each sees from where it stands in the text.
    """
    n_k = call.key.shape[-2]
    position, key = (at + call.offset)[:, None], np.arange(n_k)
    visible = np.ones((len(at), n_k), bool)
    options = dict(call.options)
    options.pop("query_offset", None)
    left, right = options.pop("window_size", None) or (None, None)
    if options.pop("is_causal", False):
        visible &= key <= position
    if left is not None:
        visible &= key >= position - left
    if right is not None:
        visible &= key <= position + right
    segments = options.pop("segment_ids", None)
    if segments is not None:
        of_queries, of_keys = segments if isinstance(segments, tuple) else (segments, segments)
        visible &= np.asarray(of_queries).reshape(-1)[at][:, None] == np.asarray(of_keys).reshape(-1)
    for name in ("attn_mask", "attn_bias"):
        if options.get(name) is not None:
            whole = np.asarray(options[name])
            options[name] = whole if whole.ndim < 2 or whole.shape[-2] == 1 else whole[..., at, :]
    mask: Any = options.get("attn_mask")
    if mask is None:
        options["attn_mask"] = None if visible.all() else visible
    elif mask.dtype == np.bool_:
        options["attn_mask"] = mask & visible
    else:
        options["attn_mask"] = np.where(visible, mask, -np.inf).astype(mask.dtype)
    query, key_array = plain(call.query)[:, :, at], plain(call.key)
    found = attention_statistics(query, key_array, return_aux=AuxRequest(pooled=1), **options)
    return np.nan_to_num(np.asarray(found.pooled, np.float64)[0])


def weights_at(call: AttentionCall, at: Integers, columns: Integers) -> Floats:
    """(H, len(at), len(columns)): the weights of some rows at some keys, a few rows at a time."""
    step = max(1, PIECE // (call.query.shape[-3] * call.key.shape[-2]))
    pieces = [weights_of(call, at[a : a + step])[..., columns] for a in range(0, len(at), step)]
    return np.concatenate(pieces, axis=1)


def _mask_rows(mask: npt.NDArray[Any], at: Integers) -> npt.NDArray[Any]:
    """The rows of a mask that broadcasts to (1, H, n_q, n_k), one batch entry per passage."""
    full = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    return full if full.shape[2] == 1 else full[0][:, at].swapaxes(0, 1)


def _flat(answer: Any) -> Floats:
    """(passages, H, rows, …) -> (H, all rows, …) in float64."""
    array = np.asarray(answer).swapaxes(0, 1)
    return array.reshape((array.shape[0], -1, *array.shape[3:])).astype(np.float64)
