"""Statistics: what a caller may ask for beside the output, and what comes back."""

import operator
from collections.abc import Callable, Container
from dataclasses import dataclass, field, fields
from functools import lru_cache
from itertools import compress
from typing import Any, NamedTuple

import numpy as np

from headwise.compute.arrays import integers
from headwise.errors import HeadwiseError
from headwise.plain.types import Integers

# The kernel compares positions in 32 bits beside float32; this leaves room for their sums.
LARGEST_POSITION = 2**30

Matches = Integers | tuple[Integers, Integers]


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

    def asked(self) -> tuple[str, ...]:
        """The fields that ask for something: flags first, then numbers, then arrays."""
        named = tuple(compress(PLAIN, _plain_values(self)))
        if self.matches is not None:
            named += ("matches",)
        return named if self.classes is None else (*named, "classes")

    def words(self) -> str:
        """What is asked for, in one line: "entropy, top_k 4"."""
        numbers = {name: getattr(self, name) for name in COUNTS} | {"relative": len(self.relative)}
        return ", ".join(f"{name} {numbers[name]}" if name in numbers else name for name in self.asked())

    def needs_positions(self) -> str | None:
        """Name of a requested statistic that needs to know where the queries stand, or None."""
        if self.distance:
            return "distance"
        if self.relative:
            return "relative"
        return "matches" if self.matches is not None else None


FLAGS = tuple(part.name for part in fields(AuxRequest) if part.default is False)
COUNTS = tuple(part.name for part in fields(AuxRequest) if type(part.default) is int)
PLAIN = (*FLAGS, *COUNTS, "relative")
_plain_values = operator.attrgetter(*PLAIN)


class Answer(NamedTuple):
    """What a field of :class:`Aux` holds: who asks for it, its axes behind ``(..., H)``, floats or not."""

    asked: str
    axes: tuple[str, ...]
    whole: bool


def _answer(asked: str, *axes: str, whole: bool = False) -> Any:
    return field(default=None, metadata={"answer": Answer(asked, axes or ("n_q",), whole)})


@dataclass(frozen=True, eq=False, kw_only=True, slots=True, repr=False)
class Aux:
    """Answers to an :class:`AuxRequest`, in the caller's own kind of array; None where not asked.

    Shapes are given for input ``(..., H, n, d)``; with two-dimensional input the head axis is absent. A row
    that sees no key has lse -inf, argmax and top-k index -1 with weight 0, and NaN in every other row
    statistic; it counts as no row in means.

    Attributes:
        lse, max_weight, argmax, entropy, sum_squares, distance, sink_mass, sink_logit_mass: ``(..., H,
            n_q)``. With sink logits the weights over the keys sum to 1 - sink_logit_mass, and lse includes
            them.
        distance_histogram: ``(..., H, buckets)``, mean over the rows that see a key of their mass at distance
            0, 1, 2-3, 4-7, ...: bucket i > 0 holds [2^(i-1), 2^i). There are 1 + ceil(log2(max(n_q, n_k)))
            of them; the last one is open. NaN for a head without such rows.
        top_k_index, top_k_weight: ``(..., H, n_q, k)``, heaviest first; -1 and 0 where a row sees fewer keys.
        relative: ``(..., H, n_q, len(relative))``; 0 where that key does not exist or is not seen.
        duplicate, induction: ``(..., H, n_q)``, mass on keys that hold the query's own token at another
            place, and on keys that follow such a place (causal: earlier places only).
        duplicate_count, induction_count: ``(..., H, n_q)``, how many such keys the row sees.
        classes: ``(..., H, n_q, class_count)``, mass on each class of keys.
        received: ``(..., H, n_k)``, sum of each key's weights over all rows.
        received_count: ``(..., H, n_k)``, how many rows see the key.
        pooled: ``(..., H, ceil(n_q / b), ceil(n_k / b))``, mean over the rows of a block that see a key of
            their mass on the block of keys; NaN where no row sees one.
    """

    lse: Any = _answer("lse")
    max_weight: Any = _answer("max_weight")
    argmax: Any = _answer("argmax", whole=True)
    entropy: Any = _answer("entropy")
    sum_squares: Any = _answer("sum_squares")
    distance: Any = _answer("distance")
    distance_histogram: Any = _answer("distance", "buckets")
    top_k_index: Any = _answer("top_k", "n_q", "top_k", whole=True)
    top_k_weight: Any = _answer("top_k", "n_q", "top_k")
    sink_mass: Any = _answer("sink_mass")
    sink_logit_mass: Any = _answer("sink_logit_mass")
    relative: Any = _answer("relative", "n_q", "relative")
    duplicate: Any = _answer("matches")
    duplicate_count: Any = _answer("matches", whole=True)
    induction: Any = _answer("matches")
    induction_count: Any = _answer("matches", whole=True)
    classes: Any = _answer("classes", "n_q", "classes")
    received: Any = _answer("received", "n_k")
    received_count: Any = _answer("received", "n_k", whole=True)
    pooled: Any = _answer("pooled", "query blocks", "key blocks")

    def asked(self) -> dict[str, Any]:
        """Name -> array of what was asked for."""
        answers = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: answer for name, answer in answers if answer is not None}

    def map(self, function: Callable[[Any], Any]) -> "Aux":
        """The same answers after ``function``, applied to each array."""
        return Aux(**{name: function(answer) for name, answer in self.asked().items()})

    def __repr__(self) -> str:
        answers = [f"{name} {tuple(answer.shape)}" for name, answer in self.asked().items()]
        return f"Aux({', '.join(answers) or 'nothing was asked for'})"


# By name, in the order of the fields.
ANSWERS: dict[str, Answer] = {part.name: part.metadata["answer"] for part in fields(Aux)}


def answers_to(asked: Container[str]) -> list[str]:
    """Names of the answers to these fields of a request."""
    return [name for name, answer in ANSWERS.items() if answer.asked in asked]


# Calls repeat, and so do the shapes of their answers.
@lru_cache(maxsize=1024)
def answer_axes(
    asked: Container[str], n_q: int, n_k: int, top_k: int, relative: int, class_count: int, pooled: int
) -> tuple[tuple[str, tuple[int, ...], bool], ...]:
    """For each answer to these fields of a request its name, its axes behind ``(..., H)``, whole or floats.

    Args:
        relative, class_count: how many.
    """
    lengths = {"n_q": n_q, "n_k": n_k, "top_k": top_k, "relative": relative, "classes": class_count}
    if pooled:
        lengths |= {"query blocks": -(-n_q // pooled), "key blocks": -(-n_k // pooled)}
    if "distance" in asked:
        lengths["buckets"] = distance_buckets(int(n_q), int(n_k))
    return tuple(
        (name, tuple(lengths[axis] for axis in ANSWERS[name].axes), ANSWERS[name].whole)
        for name in answers_to(asked)
    )


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


def _classes(value: Any) -> Integers:
    classes = integers("classes", value)
    if classes.size and classes.min() < -1:
        raise HeadwiseError(
            "classes", "classes >= 0, or -1 for no class", f"{classes.min()}", "count classes from 0"
        )
    return classes
