"""Average-link clustering against its definition."""

import numpy as np
import pytest

from headwise.inspect.watch.clusters import average_link


def plainly(distances, threshold):
    """Join the two groups with the smallest mean distance while it is within the threshold."""
    groups = [[i] for i in range(len(distances))]
    while len(groups) > 1:
        pairs = [
            (np.mean([distances[i, j] for i in a for j in b]), at, other)
            for at, a in enumerate(groups)
            for other, b in enumerate(groups)
            if at < other
        ]
        best, at, other = min(pairs)
        if best > threshold:
            break
        groups[at] += groups.pop(other)
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group[0]))


@pytest.mark.parametrize("seed", range(30))
def test_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 25))
    points = rng.standard_normal((n, 2)) + 4 * rng.integers(0, 3, (n, 1))
    distances = np.abs(points[:, None] - points).sum(axis=-1)
    for threshold in (0.0, 0.7, 2.0, 5.0, 100.0):
        assert average_link(distances, threshold) == plainly(distances, threshold)


def test_equal_distances_do_not_go_in_circles():
    assert average_link(np.ones((7, 7)) - np.eye(7), 1.0) == [list(range(7))]
    assert average_link(np.zeros((5, 5)), 0.0) == [list(range(5))]
    assert average_link(np.ones((3, 3)), 0.5) == [[0], [1], [2]]
    assert average_link(np.zeros((0, 0)), 1.0) == []
