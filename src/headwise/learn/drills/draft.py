"""What the makers of drills share: the draft that they return, and the pools that they draw from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from headwise.learn.listings import WRONG_LINES, WrongLine
from headwise.plain.numbers import vector
from headwise.trace.data import Trace

ROUNDED = 5e-4  # how far an answer worked by hand may be off
HEAD_WIDTHS = (16, 32, 64, 80, 96, 128)
HEADS = (1, 2, 4, 6, 8, 12, 16)


@dataclass(frozen=True)
class Draft:
    """An exercise before it is finished: numbers (``expected``) or a choice (``choices``, ``right``)."""

    kind: str
    question: str
    notes: str = ""
    trace: Trace | None = None
    expected: tuple[float, ...] = ()
    tolerance: float = 0.0
    choices: tuple[str, ...] = ()
    right: str = ""


Item = TypeVar("Item")
Maker = Callable[[np.random.Generator], Draft]


def pick(rng: np.random.Generator, pool: Sequence[Item]) -> Item:
    return pool[int(rng.integers(len(pool)))]


def whole(rng: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return int(rng.integers(low, high + 1))


def sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """h, d_k and d_model = h * d_k."""
    h, d_k = pick(rng, HEADS), pick(rng, HEAD_WIDTHS)
    return h, d_k, h * d_k


def shuffled(rng: np.random.Generator, choices: Sequence[str]) -> tuple[str, ...]:
    """The choices in random order, each once."""
    unique = list(dict.fromkeys(choices))
    return tuple(unique[i] for i in rng.permutation(len(unique)))


def small_rows(rng: np.random.Generator, rows: int, columns: int, low: int = -2, high: int = 3) -> np.ndarray:
    """Whole numbers that are easy to work with by hand, ``(rows, columns)``."""
    return rng.integers(low, high + 1, size=(rows, columns)).astype(np.float64)


def listed(rows: np.ndarray) -> str:
    """(1, 0), (0, 2)"""
    return ", ".join(vector(row) if len(row) > 1 else f"({vector(row)})" for row in rows)


def spot_the_error(rng: np.random.Generator, causal: bool) -> Draft:
    """A listing with one wrong line; asked is the number of that line."""
    wrong: WrongLine = pick(rng, [line for line in WRONG_LINES if line.causal == causal])
    lines, number = wrong.listing()
    text = "\n".join(f"  {i:2}  {line}" for i, line in enumerate(lines, 1))
    what = "causal self-attention" if causal else "self-attention"
    return Draft(
        "spot the error",
        f"One line of this multi-head {what} is wrong:\n{text}\nWhich line is it?",
        f"Line {number}: {wrong.fault.what}; {wrong.fault.repair}.\nIt should read: {wrong.line}",
        expected=(float(number),),
    )
