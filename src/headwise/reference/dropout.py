"""Which weights dropout keeps: a number per weight, counted and not drawn, so that order does not matter.

The generator is Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as
1, 2, 3"): it turns a key and a counter, two words of 32 bits each, into two random words. The seed is the key
of the heads, and a head's two words are the key of its weights (i, j).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
LOW = np.uint64(2**32 - 1)


def dropout_factors(shape: tuple[int, ...], dropout_p: float, seed: int) -> NDArray[np.float64]:
    """0 for each dropped weight and 1 / (1 - p) for each kept one, ``(..., H, n_q, n_k)``.

    A weight is kept if the first word of its number is at least floor(p * 2^32).
    """
    *batch, heads, n_q, n_k = shape
    head = np.arange(int(np.prod(batch)) * heads, dtype=np.uint64)  # counted through all batch entries
    low, high = (np.full(head.size, word, np.uint32) for word in (seed & 0xFFFFFFFF, seed >> 32))
    keys = threefry(low, high, (head & LOW).astype(np.uint32), (head >> np.uint64(32)).astype(np.uint32))
    first_key, second_key = (key[:, None, None] for key in keys)
    i, j = np.arange(n_q, dtype=np.uint32)[:, None], np.arange(n_k, dtype=np.uint32)
    number, _ = threefry(first_key, second_key, i, j)
    kept = number >= np.uint64(int(dropout_p * 2**32))
    return np.where(kept, 1 / (1 - dropout_p) if dropout_p < 1 else 0.0, 0.0).reshape(shape)


def threefry(first_key: Words, second_key: Words, first: Words, second: Words) -> tuple[Words, Words]:
    """Two random words from a key and a counter of two words each."""
    keys = (first_key, second_key, first_key ^ second_key ^ np.uint32(0x1BD11BDA))
    a: Any = first + keys[0]
    b: Any = second + keys[1]
    a, b = np.broadcast_arrays(a, b)
    for step in range(20):
        turn = ROTATIONS[step % 8]
        a = a + b
        b = ((b << np.uint32(turn)) | (b >> np.uint32(32 - turn))) ^ a
        if step % 4 == 3:
            round_ = step // 4 + 1
            a = a + keys[round_ % 3]
            b = b + keys[(round_ + 1) % 3] + np.uint32(round_)
    return a, b
