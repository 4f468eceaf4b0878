"""Average-link clustering of a distance matrix, cut at a distance."""

import numpy as np
import numpy.typing as npt


def average_link(distances: npt.NDArray[np.float64], threshold: float) -> list[list[int]]:
    """Groups of items: two groups are joined while the mean distance between their items is at most
    ``threshold``, the closest first.

    Args:
        distances: (N, N), symmetric.

    Returns:
        The groups, the largest first (of equals the one with the lowest item), items ascending.

    By chains of nearest neighbours (Benzécri 1982), O(N²): average link never brings a group nearer to others
    than its parts were, so joining mutual neighbours in any order gives the same tree.
    """
    n = len(distances)
    between = np.array(distances, dtype=np.float64)
    np.fill_diagonal(between, np.inf)
    size = np.ones(n)
    alive = np.ones(n, bool)
    members = [[i] for i in range(n)]
    done: list[list[int]] = []
    chain: list[int] = []
    while alive.any():
        if not chain:
            chain.append(int(np.flatnonzero(alive)[0]))
        last = chain[-1]
        row = np.where(alive, between[last], np.inf)
        nearest = int(row.argmin())
        if len(chain) > 1 and row[chain[-2]] <= row[nearest]:
            nearest = chain[-2]  # of equals the one that the chain came from: so it cannot go in circles
        if row[nearest] > threshold:  # nobody near enough: none of the chain's later joins can reach it
            alive[last] = False
            done.append(sorted(members[last]))
            chain.pop()
            continue
        if len(chain) == 1 or nearest != chain[-2]:
            chain.append(nearest)
            continue
        joined = (size[last] * between[last] + size[nearest] * between[nearest]) / (
            size[last] + size[nearest]
        )
        between[last] = between[:, last] = joined
        between[last, last] = np.inf
        size[last] += size[nearest]
        members[last] += members[nearest]
        alive[nearest] = False
        chain = chain[:-2]
    return sorted(done, key=lambda group: (-len(group), group[0]))
