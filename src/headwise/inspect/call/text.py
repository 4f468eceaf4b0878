"""What stands at the queries and at the keys: token ids, words, special tokens, classes of tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.errors import HeadwiseError
from headwise.inspect.call.marks import members

CLASS = "class:"  # opens the names of the user's own classes
FIRST = 4  # tokens that are kept as sinks (Xiao et al. 2023)


@dataclass(frozen=True)
class Grid:
    """The patches of a square image: ``side`` x ``side`` from token ``first`` on, row by row, each ``pixels``
    wide and high."""

    first: int
    side: int
    pixels: int


@dataclass(frozen=True, eq=False)
class Text:
    """One sequence of tokens.

    Attributes:
        n: number of tokens.
        ids: (n,) token ids; None where they are not known: then there are no duplicate and induction scores.
        special: (n,) True at special tokens.
        classes: name -> (n,) True at the tokens of a class of the user's own.
        name: what the report calls the sequence.
        words: n strings to show; None shows the ids, or the positions.
        grid: where the patches of an image stand; None where there are none.
    """

    n: int
    ids: npt.NDArray[np.int64] | None = None
    special: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    classes: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    name: str = "text"
    words: tuple[str, ...] | None = None
    grid: Grid | None = None

    @cached_property
    def is_special(self) -> npt.NDArray[np.bool_]:
        """(n,), also where none were named."""
        return self.special if len(self.special) else np.zeros(self.n, bool)

    @cached_property
    def shown(self) -> list[str]:
        """One string per token."""
        if self.words is not None:
            return list(self.words)
        return [str(token) for token in (range(self.n) if self.ids is None else self.ids.tolist())]

    def with_classes(self, given: Any, argument: str = "classes") -> "Text":
        """The same text with classes of tokens: name -> positions, or tokens as they are shown.

        Raises:
            HeadwiseError: no mapping, or members that the text does not have.
        """
        if given is None:
            return self
        if not isinstance(given, Mapping):
            expected = "a mapping from names to positions or tokens"
            raise HeadwiseError(argument, expected, type(given).__name__, '{"commas": [","]}')
        found = {
            str(name): members(f"{argument}[{name!r}]", where, self.shown) for name, where in given.items()
        }
        return replace(self, classes=found)

    def rows(self, start: int, stop: int) -> "Text":
        """The tokens from start to stop: the whole text, or the queries of one step."""
        if (start, stop) == (0, self.n):
            return self
        return Text(
            stop - start,
            None if self.ids is None else self.ids[start:stop],
            self.is_special[start:stop],
            {name: where[start:stop] for name, where in self.classes.items()},
            self.name,
            None if self.words is None else self.words[start:stop],
        )

    @cached_property
    def patterns(self) -> tuple[npt.NDArray[np.int64], dict[str, tuple[int, ...]]]:
        """A number per token, equal for tokens that belong to the same classes (−1: to none), and per score
        of a class the numbers that it is made of. So classes may overlap, and no key is counted twice."""
        at = np.arange(self.n)
        members = {"first": at == 0, "first_four": at < FIRST}
        if self.is_special.any():
            members["special"] = self.is_special
        members |= {f"{CLASS}{name}": where for name, where in self.classes.items()}
        grid = np.stack(list(members.values()))
        kinds, kind = np.unique(grid, axis=1, return_inverse=True)
        order = np.cumsum(kinds.any(axis=0)) - 1
        number = np.where(kinds.any(axis=0), order, -1)
        of = {name: tuple(int(k) for k in number[kinds[i]]) for i, name in enumerate(members)}
        return number[kind.reshape(-1)], of
