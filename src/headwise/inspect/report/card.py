"""The score card: every score in its order, and its lines as plain data."""

from collections.abc import Iterable
from typing import Any

from headwise.inspect.call.text import CLASS
from headwise.inspect.score import measure
from headwise.inspect.score.classes import BIAS, own_score
from headwise.inspect.score.score import Score
from headwise.inspect.watch import needle, pairs

SCORES = (*measure.SCORES, *pairs.SCORES, *needle.SCORES)
BY_KEY = {score.key: score for score in SCORES}
ALWAYS = [score.key for score in SCORES if score.always]
TOLD = ("key", "name", "unit", "meaning", "null", "higher", "over", "source", "group")


def score_of(key: str) -> Score:
    """The line of a key, also of a class of the user's own."""
    return BY_KEY.get(key) or own_score(key, like=BY_KEY["special_bias"])


def in_order(keys: Iterable[str]) -> list[str]:
    """The keys in the order of the card; a user's own classes come last."""
    given = list(dict.fromkeys(keys))
    own = [key for key in given if key.startswith(CLASS)]
    biases = [key.replace(CLASS, BIAS, 1) for key in own]
    return [key for key in BY_KEY if key in given] + [
        key for pair in zip(own, biases, strict=True) for key in pair if key in given
    ]


def score_table(found: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The lines as plain data, in the order of the card: those of every card, and of the others the ones
    whose keys are in ``found``."""
    lines = [score_of(key) for key in in_order([*ALWAYS, *found])]
    return [
        {name: getattr(score, name) for name in TOLD}
        | {"range": None if score.range is None else list(score.range)}
        for score in lines
    ]
