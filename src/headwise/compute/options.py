"""The options of a call: their one list, and what those that are not arrays may be."""

import math
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.values import is_number, is_whole, shown

# The arguments of `attention` after query, key and value, in order, with their defaults. The signatures that
# spell them out (`attention` for arrays and for tensors, `plan`, `multi_head_attention`) and the operator of
# torch are held to this list by tests.
OPTIONS: dict[str, Any] = {
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": None,
    "attn_bias": None,  # from here on by name only
    "causal_alignment": None,
    "query_offset": None,
    "window_size": None,
    "query_lengths": None,
    "kv_lengths": None,
    "cu_seqlens_q": None,
    "cu_seqlens_k": None,
    "segment_ids": None,
    "softcap": None,
    "alibi_slopes": None,
    "sinks": None,
    "head_mask": None,
    "block_table": None,
    "rng": None,
    "return_aux": None,
    "implementation": "auto",
    "num_threads": None,
}
# Of these, what is not yet served, each with what to do until then. Serving one: delete its line here and
# check it in `problem.rules.build_rules`.
UNSERVED = {
    "cu_seqlens_q": "segment_ids: one number per token, equal within a sequence",
    "cu_seqlens_k": "segment_ids: one number per token, equal within a sequence",
    "block_table": "gather the pages into one array of keys and one of values",
}
IMPLEMENTATIONS = ("auto", "kernel")
ALIGNMENTS = ("upper_left", "lower_right")


def check_flags(is_causal: Any, enable_gqa: Any) -> None:
    if type(is_causal) is not bool:
        hint = "bool(is_causal) makes one of a single truth value; a mask goes into attn_mask"
        raise HeadwiseError("is_causal", "True or False", shown(is_causal), hint)
    if enable_gqa is not None and type(enable_gqa) is not bool:
        raise HeadwiseError(
            "enable_gqa",
            "None, True or False",
            shown(enable_gqa),
            "leave it out: grouped heads are taken as they come",
        )


def check_dropout(dropout_p: Any) -> None:
    if type(dropout_p) is float and dropout_p == 0.0:
        return
    if not is_number(dropout_p) or not 0.0 <= dropout_p <= 1.0:
        expected = "a probability between 0 and 1"
        raise HeadwiseError("dropout_p", expected, shown(dropout_p), "the argument after it is is_causal")


MOST_THREADS = 1 << 16  # far more than any machine has: a slip of the pen, not a wish


def check_running(implementation: Any, num_threads: Any) -> None:
    if type(implementation) is not str or implementation not in IMPLEMENTATIONS:
        raise HeadwiseError(
            "implementation", '"auto" or "kernel"', shown(implementation), 'leave it at "auto"'
        )
    if num_threads is not None and not (is_whole(num_threads) and 1 <= num_threads <= MOST_THREADS):
        raise HeadwiseError(
            "num_threads", "None or a whole number >= 1", shown(num_threads), "None takes the default"
        )


def resolve_scale(scale: Any, d_k: int, dtype: Any) -> float:
    """The factor of the scores; None means 1/sqrt(d_k). Finite, and so in the dtype of query."""
    if scale is None:
        return 1.0 / math.sqrt(d_k)
    largest = float(np.finfo(dtype).max)
    if not is_number(scale) or not -largest <= (scale if isinstance(scale, int) else float(scale)) <= largest:
        raise HeadwiseError("scale", "None or a finite number", shown(scale), "None means 1/sqrt(d_k)")
    return float(scale)


def both_readings(n_q: int, n_k: int) -> str:
    """The two ways to align queries with keys, as causal grids; small stand-ins for large sizes."""
    rows, columns, of = n_q, n_k, ""
    if not 1 <= min(n_q, n_k) <= max(n_q, n_k) <= 6:
        rows, columns = (2, 5) if n_q < n_k else (5, 2) if n_q > n_k else (3, 3)
        of = f", drawn for {rows} queries and {columns} keys"
    grids = [
        [" ".join("#" if j <= i + offset else "." for j in range(columns)) for i in range(rows)]
        for offset in (0, columns - rows)
    ]
    lines = list(zip(*grids, strict=True))
    lines = [('"upper_left"', '"lower_right"'), *lines, ("query_offset=0", f"query_offset={n_k - n_q}")]
    drawing = "\n".join(f"  {left:<18}{right}" for left, right in lines)
    return (
        f"choose a reading (rows are queries, columns are keys, # = seen by a causal query{of}):\n{drawing}"
    )
