"""The user's own classes of tokens: the weight on each, and its sieve bias score."""

from dataclasses import replace

from headwise.inspect.call.text import CLASS
from headwise.inspect.score.measured import Measured
from headwise.inspect.score.score import Score
from headwise.inspect.score.tally import Bias, Summed, mean_over

PANDE = "Pande et al. 2021, the sieve bias score"
BIAS = "bias:"  # opens the keys of the sieve bias scores


def own_sums(m: Measured) -> dict[str, Summed]:
    """Of every class of the user's own: the mass on it, and the mean weight of its entries."""
    own = [name for name in m.keys.patterns[1] if name.startswith(CLASS)]
    masses: dict[str, Summed] = {name: mean_over(m.mass(name), m.of, m.of) for name in own}
    return masses | {name.replace(CLASS, BIAS, 1): bias_of(m, name) for name in own}


def bias_of(m: Measured, name: str) -> Bias:
    """The mean weight of an entry on a class of keys, beside that of any entry."""
    received, mass = m.row("received").sum(axis=1), mean_over(m.mass(name), m.of, m.of)
    return Bias(mass.total, m.visible.members[name], received, m.visible.keys.sum(axis=1))


def own_score(key: str, like: Score) -> Score:
    """The line of a class: the weight on it, or its sieve bias score, which is ``like`` that of special
    tokens."""
    name = key.removeprefix(CLASS).removeprefix(BIAS)
    if key.startswith(BIAS):
        meaning = (
            f"mean weight of an entry on a token of the class {name!r}, as a multiple of that of any entry"
        )
        return replace(
            like,
            key=key,
            name=f"{name}, per entry",
            meaning=meaning,
            higher=f"prefers {name}",
            group="classes",
        )
    meaning = f"weight on the tokens of the class {name!r} together"
    null = "the mean share of these tokens among the visible keys"
    return Score(key, name, "", meaning, null, f"rests on {name}", group="classes")
