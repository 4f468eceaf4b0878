"""What the rows of a call see, and how much of a row's weight a class of keys has."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwise.compute.answers import Aux
from headwise.inspect.score.tally import OFFSETS, Booleans, Floats
from headwise.inspect.score.text import Text


@dataclass(frozen=True, eq=False)
class Visible:
    """What the rows of a call see, from its uniform attention; (1, …), or (H, …) where heads differ.

    Attributes:
        keys: (h, n_q) number of visible keys.
        rows: (h, n_q) True where there is one.
        offsets: (h, n_q, 17) whether the key at each of OFFSETS is seen; None in cross-attention.
        members: name of a class of keys -> (h,) how many of its keys all rows together see.
    """

    keys: Floats
    rows: Booleans
    offsets: Booleans | None
    members: dict[str, Floats]


def visible_of(uniform: Aux, of_keys: Text) -> Visible:
    """Read the visibility off the statistics of a call's ``uniform()``."""
    largest = rows_of(uniform.max_weight)
    rows = np.isfinite(largest)
    keys = np.where(rows, np.rint(1 / np.where(rows, largest, 1.0)), 0.0)
    seen = None
    if uniform.relative is not None:
        asked = rows_of(uniform.relative) > 0
        seen = np.pad(asked, ((0, 0), (0, 0), (0, len(OFFSETS) - asked.shape[-1])))
    members = {
        name: np.rint(np.where(rows, class_mass(uniform, of_keys, name) * keys, 0.0).sum(axis=1))
        for name in of_keys.patterns[1]
    }
    return Visible(keys, rows, seen, members)


def class_mass(aux: Aux, keys: Text, name: str) -> Floats:
    """(H, n_q): the mass of each row on one class of keys."""
    mass: Floats = rows_of(aux.classes)[..., list(keys.patterns[1][name])].sum(axis=-1)
    return mass


def rows_of(values: Any) -> Floats:
    """(1, H, …) of any kind -> (H, …) in float64."""
    return np.asarray(values, dtype=np.float64)[0]
