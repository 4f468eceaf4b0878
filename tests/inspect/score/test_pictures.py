"""What is kept of a layer to draw: links, the link of an induction head, the map."""

import numpy as np
import pytest

from headwise.inspect import inspect_qk
from headwise.inspect.call.text import Text
from headwise.inspect.report.entries import largest, received_entry
from headwise.inspect.score.pictures import Pictures, block_of, induction_link, strongest_links
from headwise.inspect.score.tally import Received


def pictures(index, weight, strongest=None, largest=None, offset=0, queries=None):
    """One head, rows as given; the strongest key of every row is the first of its kept ones."""
    index, weight = np.array(index)[None], np.array(weight, float)[None]
    strongest = index[..., 0] if strongest is None else np.array(strongest)[None]
    largest = weight[..., 0] if largest is None else np.array(largest, float)[None]
    n = strongest.shape[1]
    queries = np.arange(n) if queries is None else np.array(queries)
    nothing = np.zeros((1, 1, 1)), np.ones((1, 1))
    return Pictures(n, n, offset, queries, index, weight, strongest, largest, n, *nothing)


def text(n, special=(), ids=None):
    where = np.isin(np.arange(n), list(special))
    return Text(n, None if ids is None else np.array(ids), where)


def test_links_leave_out_special_tokens_and_self():
    kept = pictures([[1, 2, 0], [0, 1, 2], [2, 0, 1]], [[0.9, 0.06, 0.04], [0.8, 0.1, 0.1], [0.5, 0.3, 0.2]])
    assert strongest_links(kept, 0, text(3), text(3))[:3] == [[0, 1, 0.9], [1, 0, 0.8], [2, 0, 0.3]]
    one = text(3, special=[0])
    assert strongest_links(kept, 0, one, one) == [[2, 1, 0.2], [1, 2, 0.1]]
    every = text(3, special=[0, 1, 2])
    links = strongest_links(kept, 0, every, every)  # nothing else exists: only self is left out
    assert links[0] == [0, 1, 0.9] and all(query != key for query, key, _ in links)
    assert strongest_links(pictures([[0]], [[1.0]]), 0, text(1), text(1)) == [[0, 0, 1.0]]
    assert strongest_links(pictures([[-1]], [[0.0]]), 0, text(1), text(1)) == []


def test_a_token_stands_elsewhere_among_the_keys():
    """With an offset the query's own key is another one; between two texts there is none."""
    index, weight = [[2, 0], [3, 1]], [[0.9, 0.1], [0.8, 0.2]]
    assert strongest_links(pictures(index, weight, offset=2), 0, text(2), text(4)) == [
        [1, 1, 0.2],
        [0, 0, 0.1],
    ]
    assert strongest_links(pictures(index, weight, offset=None), 0, text(2), text(4))[0] == [0, 2, 0.9]


def test_links_come_from_every_row_also_where_few_are_kept():
    kept = pictures(
        [[0, 4]], [[0.6, 0.3]], strongest=[3, 0, 1, 1, 0], largest=[0.95, 0.9, 0.8, 0.7, 0.6], queries=[4]
    )
    found = strongest_links(kept, 0, text(5), text(5))
    assert found == [[0, 3, 0.95], [1, 0, 0.9], [2, 1, 0.8], [3, 1, 0.7], [4, 0, 0.6]]


def test_links_are_ordered_and_few():
    rng = np.random.default_rng(1)
    weight = np.sort(rng.random((30, 6)))[:, ::-1]
    index = np.array([rng.permutation(30)[:6] for _ in range(30)])
    found = [link[2] for link in strongest_links(pictures(index, weight), 0, text(30), text(30))]
    others = weight[index != np.arange(30)[:, None]]
    assert found == pytest.approx(np.sort(others)[::-1][:10]) and len(found) == 10


def test_links_that_count_for_induction():
    ids = [7, 8, 9, 7, 5]  # row 3 looks for 8 at 1, row 0 for 5 at 4
    index = [[0, 4, 1], [1, 2, 3], [2, 0, -1], [3, 2, 1], [0, 1, -1]]
    weight = [[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.5, 0.5, 0.0]]
    kept = pictures(index, weight)
    known = text(5, ids=ids)
    assert induction_link(kept, 0, known, known) == [3, 1, 0.1]
    different = text(5, ids=range(5))
    assert induction_link(kept, 0, different, different) is None
    assert induction_link(kept, 0, text(5), text(5)) is None  # no ids, no answer


@pytest.mark.parametrize("n", [1, 47, 48, 49, 500])
def test_the_map_has_at_most_48_blocks_a_side(n):
    query, key = np.random.default_rng(0).standard_normal((2, 1, n, 4), dtype=np.float32)
    block = inspect_qk(query, key, redundancy=False).layers[0]["heads"][0]["pooled"]["block"]
    assert -(-n // block) <= 48
    assert block == 1 or -(-n // (block - 1)) > 48  # and no coarser than needed


def test_keys_that_receive_most():
    total = np.array([[5.0, 1.0, 0.5, 3.0, 0.6, 0.9]])
    seen = np.array([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]])
    found = received_entry(Received(total, seen), 0)
    assert found["heaviest"][:2] == [[0, 5.0, 0.833333], [3, 3.0, 1.0]] and len(found["heaviest"]) == 6
    assert found["sinks"] == [[3, 1.0], [0, 0.833333]]  # 5 is seen by too few
    heavy = Received(total, seen).heaviest(np.ones(1), 0.05)
    assert heavy.value(0) == pytest.approx(5 / 11)
    assert Received(total, seen).heaviest(np.ones(1), 0.5).value(0) == pytest.approx(9 / 11)


def test_maps_of_other_blocks_do_not_add():
    kept = pictures([[0]], [[1.0]])
    with pytest.raises(ValueError, match="maps of blocks of 1 and of 2 tokens do not add"):
        kept.append(pictures([[0], [0]], [[1.0], [1.0]]))


def test_cells_of_the_map_are_as_small_as_its_side_allows():
    assert [block_of(n) for n in (1, 48, 49, 3024, 3025, 8192)] == [1, 1, 2, 63, 64, 192]
    for n in range(1, 40_000, 7):
        block = block_of(n)
        assert -(-n // block) <= Pictures.SIDE and (block < 64 or block % 64 == 0)
        assert block < 64 or n > (block - 64) * Pictures.SIDE


def test_of_many_equal_values_the_first_ones_are_taken():
    assert largest(np.ones(40), 3).tolist() == [0, 1, 2]
    assert largest(np.array([0.0, 2, 1, 2, 1, 1]), 4).tolist() == [1, 3, 2, 4]
    found = pictures([[i] for i in range(1, 61)], [[1.0]] * 60)  # every row rests on the next key
    nothing = Text(61)
    assert [link[:2] for link in strongest_links(found, 0, nothing, nothing)] == [
        [i, i + 1] for i in range(10)
    ]
