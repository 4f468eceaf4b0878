"""Attention rollout by groups of tokens: how much of each token is left after all layers.

Abnar and Zuidema 2020: A_l is the mean over the heads plus the identity, rows renormalised, and
R_l = A_l R_{l-1}. Instead of n x n matrices, R holds one column per group of tokens: with the group's columns
summed, A_l R is attention with R as its values, in one pass of the kernel.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.compute.functional import attention
from headwise.compute.request import Aux
from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import plain
from headwise.inspect.call.text import Text
from headwise.plain.types import Floats

GROUPS = 16
MOST_GROUPS = 64
DIGITS = 6


def groups_of(given: Any, n: int) -> list[tuple[int, int]]:
    """(start, stop) of every group: so many equal ones, or the given ones, which together make the text.

    Raises:
        HeadwiseError: neither.
    """
    expected = (
        f"a number of groups from 1 to {MOST_GROUPS}, or (start, stop) pairs that together make the text"
    )
    if given is True:
        given = GROUPS
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        if not 1 <= given <= MOST_GROUPS:
            raise HeadwiseError("rollout", expected, str(given))
        edges = np.linspace(0, n, min(int(given), n) + 1).round().astype(int).tolist()
        return list(zip(edges[:-1], edges[1:], strict=True))
    try:
        found = [(int(start), int(stop)) for start, stop in given]
    except (TypeError, ValueError):
        raise HeadwiseError("rollout", expected, repr(given)[:60], "rollout=16") from None
    whole = [start for start, _ in found] == [0, *(stop for _, stop in found[:-1])]
    if (
        not found
        or len(found) > MOST_GROUPS
        or not whole
        or found[-1][1] != n
        or any(a >= z for a, z in found)
    ):
        raise HeadwiseError("rollout", expected, repr(given)[:60], f"the text has {n} tokens")
    return found


class Rollout:
    """Follows the groups through the self-attention layers of one text; a watcher of ``Scorer``."""

    def __init__(self, groups: Any, text: Text) -> None:
        self.text = text.name
        self.groups = groups_of(groups, text.n)
        sizes = [stop - start for start, stop in self.groups]
        self.reached: Floats = np.repeat(np.eye(len(sizes)), sizes, axis=0)
        self.uniform = self.reached

    def watch(self, call: AttentionCall, queries: Text, keys: Text, aux: Aux) -> None:
        """One layer further."""
        if call.kind != "self" or (queries.name, keys.name) != (self.text, self.text):
            return
        if (
            call.first_row
            or call.query.shape[-2] != len(self.reached)
            or call.key.shape[-2] != len(self.reached)
        ):
            raise CapabilityError(
                "rollout",
                "layers over the whole text at once",
                f"{call.name} over rows {call.first_row} to {call.first_row + call.query.shape[-2] - 1}",
                "inspect the finished text in one pass",
            )
        self.reached = _step(call, self.reached)
        self.uniform = _step(call.uniform(), self.uniform)

    def report(self) -> dict[str, Any]:
        """Per group of queries the mean share of each group of sources, and that of the last token; beside
        them what uniform attention in every head would give."""
        starts = [start for start, _ in self.groups]
        sizes = np.array([stop - start for start, stop in self.groups])[:, None]
        maps = [np.add.reduceat(part, starts, axis=0) / sizes for part in (self.reached, self.uniform)]
        return {
            "groups": [list(group) for group in self.groups],
            "map": maps[0].round(DIGITS).tolist(),
            "last": self.reached[-1].round(DIGITS).tolist(),
            "null_map": maps[1].round(DIGITS).tolist(),
            "null_last": self.uniform[-1].round(DIGITS).tolist(),
        }


def _step(call: AttentionCall, reached: Floats) -> Floats:
    """(A R + R), rows renormalised: rows that see nothing, and what sink logits take, stay with the token."""
    query, key = plain(call.query), plain(call.key)
    values = np.broadcast_to(reached.astype(query.dtype), (*key.shape[:-1], reached.shape[1]))
    moved = np.asarray(attention(query, key, values, **_arrays(call.options)), np.float64)[0].mean(axis=0)
    total = moved + reached
    return np.asarray(total / total.sum(axis=1, keepdims=True))


def _arrays(options: Any) -> dict[str, Any]:
    names: Sequence[str] = ("attn_mask", "attn_bias", "sinks")
    return {
        name: np.asarray(given) if name in names and given is not None else given
        for name, given in options.items()
    }
