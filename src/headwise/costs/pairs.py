"""How many (query, key) pairs a head computes: those that causality and the window leave visible."""

from headwise.costs.formula import Formula

Window = tuple[int | None, int | None]


def visible_pairs(n_q: int, n_k: int, causal: bool, window: Window | None, offset: int) -> int:
    """Pairs in one head of one sequence.

    Query r stands at p = r + offset and sees key j if ``p - left <= j <= p + right`` (None: no bound; causal:
    right is at most 0). Counted without a loop, so lengths may be large.

    >>> visible_pairs(4, 4, True, None, 0), visible_pairs(4, 4, False, (1, 0), 0)
    (10, 7)
    """
    first, last = _bounds(causal, window)
    ends = n_q * n_k if last is None else _ramp(n_q, offset + last + 1, n_k)
    starts = 0 if first is None else _ramp(n_q, offset - first, n_k)
    return ends - starts


def keys_seen(n_q: int, n_k: int, causal: bool, window: Window | None, offset: int) -> int:
    """Keys that at least one query sees: what has to be read."""
    first, last = _bounds(causal, window)
    end = n_k if last is None else _clip(offset + n_q - 1 + last + 1, n_k)
    start = 0 if first is None else _clip(offset - first, n_k)
    return max(0, end - start)


def pairs_formula(n_q: int, n_k: int, causal: bool, window: Window | None, offset: int) -> Formula:
    """The pairs with what they are counted by."""
    value = visible_pairs(n_q, n_k, causal, window, offset)
    first, last = _bounds(causal, window)
    if value == n_q * n_k:
        return Formula.of("n_q", n_q) * Formula.of("n_k", n_k)
    if first is None and last == 0 and offset == 0 and n_q == n_k:
        return Formula.of("n·(n+1)/2", value, f"{n_q}·{n_q + 1}/2")
    sign = "+" if offset > 0 else "\u2212"
    at = "r" if offset == 0 else f"r {sign} {abs(offset)}"
    low = "0" if first is None else f"max(0, {at} \u2212 {first})"
    high = "n_k" if last is None else f"min(n_k, {at} + {last + 1})"
    letters = f"\u03a3_r [{high} \u2212 {low}]" if first is not None else f"\u03a3_r {high}"
    return Formula.of(letters, value)


def _bounds(causal: bool, window: Window | None) -> Window:
    left, right = (None, None) if window is None else window
    if causal:
        right = 0
    return left, right


def _ramp(n: int, start: int, top: int) -> int:
    """Sum over i < n of start + i, each held between 0 and top."""
    zeros = min(n, max(0, -start))
    rest, start = n - zeros, start + zeros
    rising = min(rest, max(0, top - start))
    return rising * start + rising * (rising - 1) // 2 + (rest - rising) * top


def _clip(value: int, top: int) -> int:
    return min(max(value, 0), top)
