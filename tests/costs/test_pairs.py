"""Visible pairs without a loop, against a loop."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.costs.pairs import keys_seen, pairs_formula, visible_pairs

SIDES = st.none() | st.integers(0, 12)


def seen(n_q, n_k, causal, window, offset):
    left, right = (None, None) if window is None else window
    for r in range(n_q):
        for j in range(n_k):
            p = r + offset
            if causal and j > p:
                continue
            if (left is not None and j < p - left) or (right is not None and j > p + right):
                continue
            yield r, j


@settings(max_examples=400)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.booleans(),
    st.none() | st.tuples(SIDES, SIDES),
    st.integers(-14, 14),
)
def test_against_a_loop(n_q, n_k, causal, window, offset):
    pairs = list(seen(n_q, n_k, causal, window, offset))
    assert visible_pairs(n_q, n_k, causal, window, offset) == len(pairs)
    assert pairs_formula(n_q, n_k, causal, window, offset).value == len(pairs)
    rows = {r for r, _ in pairs}
    if rows == set(range(n_q)):
        assert keys_seen(n_q, n_k, causal, window, offset) == len({j for _, j in pairs})


def test_large_lengths_take_no_time():
    n = 10**12
    assert visible_pairs(n, n, True, None, 0) == n * (n + 1) // 2
    assert visible_pairs(n, n, True, (4095, 0), 0) == 4096 * n - 4096 * 4095 // 2
    assert keys_seen(1, n, True, (4095, 0), n - 1) == 4096


def test_formulas_in_words():
    def letters(*arguments):
        return pairs_formula(*arguments).letters

    assert letters(3, 5, False, None, 0) == "n_q·n_k"
    assert letters(4, 4, True, None, 0) == "n·(n+1)/2"
    assert letters(2, 5, True, None, 1) == "Σ_r min(n_k, r + 1 + 1)"
    assert letters(4, 4, True, (2, 0), 0) == "Σ_r [min(n_k, r + 1) − max(0, r − 2)]"
    assert letters(4, 4, False, (1, None), -1) == "Σ_r [n_k − max(0, r − 1 − 1)]"
