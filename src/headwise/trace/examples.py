"""The named inputs of ``headwise explain --example NAME``: worked examples A to I, and some exercises.

Each is a set of keyword arguments of :func:`headwise.explain`, made anew on every call. The large ones (H, I,
2.1) hold seeded random numbers: what they show are shapes, counts and checks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.errors import HeadwiseError
from headwise.plain.types import Floats
from headwise.plain.values import shown
from headwise.trace.data import Trace
from headwise.trace.forward import explain

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A named input: its title, a sentence about it, and what makes its arguments."""

    name: str
    title: str
    about: str
    make: Callable[[], Arguments]

    def arguments(self) -> Arguments:
        """Keyword arguments of ``explain``."""
        return {**self.make(), "title": f"Example {self.name}: {self.title}", "about": self.about}


def rows(*numbers: Sequence[float] | float) -> Floats:
    return np.array(numbers, np.float64)


def _core() -> Arguments:
    return {"query": np.eye(2), "key": np.eye(2), "value": rows((2, 0), (0, 4))}


def _split() -> Arguments:
    names = ("w_q", "w_k", "w_v", "w_o")
    return {"x": rows((1, 2, 3, 4)), "num_heads": 2, **{name: np.eye(4) for name in names}}


def _from_scores(scores: Any, values: Any) -> Callable[[], Arguments]:
    return lambda: {"scores": rows(scores), "value": rows(*((value,) for value in values))}


def _scale() -> Arguments:
    query, key = np.ones((1, 64)), np.stack([np.full(64, 40 / 64), np.full(64, 8 / 64)])
    return {"query": query, "key": key, "value": rows((1,), (0,)), "context_tokens": ["raw 40", "raw 8"]}


def _reference() -> Arguments:
    keys = ["cat", "chased", "a", "mouse", "until", "it"]
    return {
        "scores": rows((3.0, 0.5, 0.2, 1.0, 0.3, 0.6)),
        "value": np.eye(6),
        "tokens": ["it"],
        "context_tokens": keys,
    }


def _random_block(
    n: int, d_model: int, heads: int, *, n_k: int | None = None, seed: int
) -> Callable[[], Arguments]:
    def make() -> Arguments:
        rng = np.random.default_rng(seed)
        made: Arguments = {"x": rng.normal(size=(n, d_model)), "num_heads": heads}
        if n_k is not None:
            made["context"] = rng.normal(size=(n_k, d_model))
        for name in ("w_q", "w_k", "w_v", "w_o"):
            made[name] = rng.normal(size=(d_model, d_model)) / np.sqrt(d_model)
        return made

    return make


def _same_projections() -> Arguments:
    rng = np.random.default_rng(33)
    made: Arguments = {"x": rng.normal(size=(3, 4)), "num_heads": 2}
    for name in ("w_q", "w_k", "w_v"):
        made[name] = np.tile(rng.normal(size=(4, 2)), 2)
    return {**made, "w_o": rng.normal(size=(4, 4))}


def _last_position() -> Arguments:
    return {
        "query": rows((1, 0)),
        "key": rows((1, 0), (0, 1), (1, 1), (2, 0)),
        "value": rows((1, 0), (0, 2), (3, 0), (0, 4)),
        "is_causal": True,
        "causal_alignment": "lower_right",
        "tokens": ["3"],
    }


def _one_value() -> Arguments:
    rng = np.random.default_rng(52)
    return {
        "query": rng.normal(size=(3, 2)),
        "key": rng.normal(size=(4, 2)),
        "value": np.tile([7.0, -1.0], (4, 1)),
    }


_LIST = (
    Example(
        "A",
        "one head, nothing around it",
        "Two tokens, each of which matches itself only, in a head 2 wide.",
        _core,
    ),
    Example(
        "B",
        "split into heads and joined again",
        "One token can only look at itself, so the slices come back as they were cut.",
        _split,
    ),
    Example(
        "C",
        "equal scores",
        "No key stands out, so the output is the plain mean of the values.",
        _from_scores((2, 2, 2), (10, 20, 30)),
    ),
    Example(
        "D",
        "one score far above the others",
        "A gap of 20 leaves two parts in a billion for each of the others: nearly a copy of one value.",
        _from_scores((0, 0, 20), (10, 20, 30)),
    ),
    Example(
        "E",
        "a negative score",
        "Scores may have any sign; weights never do.",
        _from_scores((-3, 1), (100, 200)),
    ),
    Example(
        "F",
        "why scores are scaled",
        "Raw scores 40 and 8 in a head 64 wide. The first value is 1, the other 0: the output is a weight.",
        _scale,
    ),
    Example(
        "G",
        "what does \u201cit\u201d point to?",
        "One head scores \u201cit\u201d against six tokens. Unit vectors as values give the weights back.",
        _reference,
    ),
    Example(
        "H",
        "cross-attention: two lengths",
        "Three queries look at five tokens of another sequence, d_model 512, 8 heads; random numbers.",
        _random_block(3, 512, 8, n_k=5, seed=8),
    ),
    Example(
        "I",
        "counting the parameters",
        "d_model 512, 8 heads, no biases; the counts stand in the first step. Random numbers, one token.",
        _random_block(1, 512, 8, seed=9),
    ),
    Example(
        "2.1",
        "shapes of one block",
        "d_model 512, 8 heads, 10 tokens; random numbers.",
        _random_block(10, 512, 8, seed=21),
    ),
    Example(
        "2.2",
        "one scaled score",
        "A raw score of 40 in a head 64 wide becomes 5.",
        lambda: {"query": np.ones((1, 64)), "key": np.full((1, 64), 40 / 64), "value": rows((1,))},
    ),
    Example(
        "2.3",
        "three scores of one query",
        "The values are unit vectors: the output is the weights.",
        lambda: {"scores": rows((4, 2, 5)), "value": np.eye(3)},
    ),
    Example(
        "3.3",
        "two heads with the same projections",
        "Their outputs are the same numbers: one of them is redundant.",
        _same_projections,
    ),
    Example(
        "4.2",
        "the last query of a causal sequence",
        "It stands at position 3 and sees all four keys.",
        _last_position,
    ),
    Example(
        "5.2",
        "all values alike",
        "Whatever the weights, a mean of equal rows is that row.",
        _one_value,
    ),
    Example(
        "5.3",
        "more keys than queries",
        "Two queries over six keys: a grid of 2 by 6, and two output rows.",
        _random_block(2, 8, 2, n_k=6, seed=53),
    ),
)
EXAMPLES = {example.name: example for example in _LIST}


def example(name: str) -> Trace:
    """The trace of a named example.

    Args:
        name: "A" to "I" (either case), or an exercise: "2.1", "2.2", "2.3", "3.3", "4.2", "5.2", "5.3".

    Raises:
        HeadwiseError: there is no such example.

    >>> example("C").output
    [[[20.0]]]
    """
    found = EXAMPLES.get(name.strip().upper()) if isinstance(name, str) else None
    if found is None:
        raise HeadwiseError("example", f"one of {', '.join(EXAMPLES)}", shown(name))
    return explain(**found.arguments())
