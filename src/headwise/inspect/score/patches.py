"""Distance in an image: between the centres of the patches, in pixels.

Dosovitskiy et al. 2020, D.7: the class token is left out, as a query and as a key, and the rest of a row
renormalised. Only the rows of the sample are computed, a few at a time.
"""

import numpy as np

from headwise.inspect.call.call import AttentionCall
from headwise.inspect.call.rows import weights_at
from headwise.inspect.call.text import Grid
from headwise.inspect.score.tally import Mean
from headwise.plain.types import Booleans, Floats, Integers

ROWS = 32  # whose weights are held at a time


def pixel_distance(call: AttentionCall, at: Integers, of: Booleans, grid: Grid) -> Mean:
    """The mean distance of the attended patches, over rows of patches that see one.

    Args:
        at: (r,) rows of the call; of: (1, r) or (H, r), True where a row sees a key.
        grid: where the patches stand among queries and keys.
    """
    heads = call.query.shape[-3]
    total, count = np.zeros(heads), np.zeros(heads)
    patches = np.arange(grid.first, grid.first + grid.side**2)
    chosen = at[np.isin(at, patches)]
    for start in range(0, len(chosen), ROWS):
        rows = chosen[start : start + ROWS]
        weights = weights_at(call, rows, patches)
        mass = weights.sum(axis=-1)
        distance = (weights * _apart(rows, patches, grid)).sum(axis=-1)
        total += np.divide(distance, mass, out=np.zeros_like(mass), where=mass > 0).sum(axis=1)
        count += (mass > 0).sum(axis=1)
    return Mean(total, count, count, np.broadcast_to(of.sum(axis=1, dtype=np.float64), heads))


def _apart(rows: Integers, patches: Integers, grid: Grid) -> Floats:
    """(r, patches): distance between centres in pixels."""
    (y, x), (down, across) = (np.divmod(at - grid.first, grid.side) for at in (rows, patches))
    found: Floats = grid.pixels * np.hypot(y[:, None] - down, x[:, None] - across)
    return found
