"""What a caller may ask for beside the output."""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.compute.arrays import integers
from headwise.errors import HeadwiseError

FLAGS = ("lse", "max_weight", "argmax", "entropy", "sum_squares", "sink_logit_mass", "distance", "received")
COUNTS = ("top_k", "sink_mass", "pooled")

# The kernel compares positions in 32 bits beside float32; this leaves room for their sums.
LARGEST_POSITION = 2**30

Matches = NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AuxRequest:
    """Statistics to compute beside the output; each answer is the field of the same name in :class:`Aux`.

    All of them come from the one pass over the keys that makes the output (only ``received``, over very many
    keys, takes a second one); none makes an ``n_q x n_k`` array. Statistics describe the attention weights:
    the softmax output, one row per query.

    Attributes:
        lse: log-sum-exp of each row's scores. Natural logarithm.
        max_weight: largest weight of each row.
        argmax: key that holds it; of equal ones the lowest index.
        entropy: -sum w ln w of each row, in nats.
        sum_squares: sum w^2 of each row; its inverse is the number of keys that a row spreads over.
        sink_logit_mass: weight that the sink logits (``sinks=``) take from the keys; 0 without any.
        distance: mean |query position - key position| under the weights, in tokens; also the histogram of
            these distances per head.
        top_k: number of largest weights to keep per row, with their keys.
        sink_mass: number k of first keys whose mass is summed.
        relative: whole numbers o; for each, the weight on the key at (position of the query + o).
        matches: token ids of the keys, ``(..., n_k)``; query tokens are then those at the queries'
            positions. Or a tuple ``(key_ids, query_ids)``. Asks for duplicate-token and induction mass.
        classes: class of each key, ``(..., n_k)``, counted from 0; -1 = no class. Asks for the mass on each
            class.
        received: mass that each key receives from all rows.
        pooled: side b of the blocks of a block-averaged weight map.

    Raises:
        HeadwiseError: a value of the wrong kind or sign.
        DtypeError: ``matches`` or ``classes`` does not hold integers.
    """

    lse: bool = False
    max_weight: bool = False
    argmax: bool = False
    entropy: bool = False
    sum_squares: bool = False
    sink_logit_mass: bool = False
    distance: bool = False
    top_k: int = 0
    sink_mass: int = 0
    relative: tuple[int, ...] = ()
    matches: Any = None
    classes: Any = None
    received: bool = False
    pooled: int = 0

    def __post_init__(self) -> None:
        for name in FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise HeadwiseError(
                    name, "True or False", repr(getattr(self, name)), f"AuxRequest({name}=True)"
                )
        for name in COUNTS:
            object.__setattr__(self, name, _count(name, getattr(self, name)))
        object.__setattr__(self, "relative", _relative(self.relative))
        if self.matches is not None:
            object.__setattr__(self, "matches", _matches(self.matches))
        if self.classes is not None:
            object.__setattr__(self, "classes", _classes(self.classes))

    @property
    def class_count(self) -> int:
        """Number of classes: the largest one + 1."""
        return int(self.classes.max()) + 1 if self.classes is not None and self.classes.size else 0

    def words(self) -> str:
        """What is asked for, in one line: "entropy, top_k 4"."""
        numbers = {name: getattr(self, name) for name in COUNTS} | {"relative": len(self.relative)}
        arrays = {name: getattr(self, name) is not None for name in ("matches", "classes")}
        asked = [name for name in FLAGS if getattr(self, name)]
        asked += [f"{name} {number}" for name, number in numbers.items() if number]
        return ", ".join([*asked, *(name for name, given in arrays.items() if given)])

    def needs_positions(self) -> str | None:
        """Name of a requested statistic that needs to know where the queries stand, or None."""
        if self.distance:
            return "distance"
        if self.relative:
            return "relative"
        return "matches" if self.matches is not None else None


def distance_buckets(n_q: int, n_k: int) -> int:
    """Number of buckets of the distance histogram: one for 0, then one per power of two."""
    return 1 + max(n_q - 1, n_k - 1, 0).bit_length()


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise HeadwiseError(
            name, "a whole number >= 0", repr(value), f"AuxRequest({name}=8), or 0 for not asked"
        )
    if value > LARGEST_POSITION:
        raise HeadwiseError(
            name, f"a whole number <= {LARGEST_POSITION}", repr(value), f"AuxRequest({name}=8)"
        )
    return int(value)


def _relative(value: Any) -> tuple[int, ...]:
    hint = "AuxRequest(relative=(-1, 0, 1)): the previous token, the token itself, the next one"
    if isinstance(value, str | bytes):
        raise HeadwiseError("relative", "a tuple of whole numbers", repr(value), hint)
    try:
        entries = tuple(value)
        if any(isinstance(entry, bool | np.bool_) for entry in entries):
            raise TypeError
        numbers = tuple(operator.index(entry) for entry in entries)
    except TypeError:
        raise HeadwiseError("relative", "a tuple of whole numbers", repr(value), hint) from None
    for number in numbers:
        if abs(number) > LARGEST_POSITION:
            raise HeadwiseError(
                "relative", f"whole numbers of size at most {LARGEST_POSITION}", str(number), hint
            )
    return numbers


def _matches(value: Any) -> Matches:
    # Only a tuple of two sequences is a pair: a list of two lists is a batch of two token sequences.
    if (
        isinstance(value, tuple)
        and len(value) == 2
        and not any(isinstance(ids, int | np.integer) for ids in value)
    ):
        return integers("matches", value[0]), integers("matches", value[1])
    return integers("matches", value)


def _classes(value: Any) -> NDArray[np.int64]:
    classes = integers("classes", value)
    if classes.size and classes.min() < -1:
        raise HeadwiseError(
            "classes", "classes >= 0, or -1 for no class", f"{classes.min()}", "count classes from 0"
        )
    return classes
