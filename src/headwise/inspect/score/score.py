"""One line of the score card: what a score is, in words, and how it is summed."""

from collections.abc import Callable
from dataclasses import dataclass

from headwise.inspect.score.measured import Measured
from headwise.inspect.score.tally import Mean, Summed, Tally

CLARK = "Clark et al. 2019"
OLSSON = "Olsson et al. 2022"
VOITA = "Voita et al. 2019"
GU = "Gu et al. 2024"

EVERY = "all queries"
AS_ONE = "the mean of 1 / n over the same queries"

Range = tuple[float | None, float | None]


@dataclass(frozen=True)
class Score:
    """A score of a head. Its null is the same sum, taken of the call under uniform attention.

    Attributes:
        key, name, unit: of the value.
        meaning: what it is, in plain words.
        null: what uniform attention over the visible keys gives.
        higher: what a high value means.
        over: the denominator: over which queries (or entries) it is a mean.
        source: who defined it so; empty for our own.
        group: the part of the card that it stands in.
        range: least and largest possible value, None where open; None: as the unit says.
        measure: its sum over the rows of one call, None where it has none; without it a watcher gives one.
        read: its mean, where it is no sum of its own but read off the parts of a tally.
        kind: "self" or "cross", where it is of one kind of attention only.
        asks: which statistics of the kernel it needs, as names of ``AuxRequest``, beside those of every call.
        always: stands in the card of every head of self-attention, missing or not.
        tells_share: which share of the queries entered the mean is told.
        both_readings: the other reading, over all queries, is told too.
        of_values: its null depends on the values of the call, not only on what the rows see.
    """

    key: str
    name: str
    unit: str
    meaning: str
    null: str
    higher: str
    over: str = EVERY
    source: str = ""
    group: str = "spread"
    range: Range | None = None
    measure: Callable[[Measured], Summed | None] | None = None
    read: Callable[[Tally], Mean | None] | None = None
    kind: str | None = None
    asks: tuple[str, ...] = ()
    always: bool = False
    tells_share: bool = False
    both_readings: bool = False
    of_values: bool = False
