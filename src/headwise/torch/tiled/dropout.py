"""The weights that dropout keeps, one tile at a time, by the same counted numbers as the kernel's.

Threefry-2x32 with 20 rounds (Salmon et al. 2011) on 32-bit words; ``headwise.reference_dropout`` says how a
weight's number follows from seed, head, query and key. Words are held in int32, whose sums wrap around as
unsigned ones do.
"""

import numpy as np
import torch
from torch import Tensor

from headwise.reference.dropout import ROTATIONS, threefry

PARITY = 0x1BD11BDA
SIGN = -(2**31)


def head_keys(heads: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The two words that each head (counted through all batch entries) turns its positions with."""
    head = np.arange(heads, dtype=np.uint64)
    low, high = (np.full(heads, word, np.uint32) for word in (seed & 0xFFFFFFFF, seed >> 32))
    first, second = threefry(low, high, head.astype(np.uint32), (head >> np.uint64(32)).astype(np.uint32))
    return _int32(first).to(device), _int32(second).to(device)


def kept_weights(
    first_key: Tensor, second_key: Tensor, rows: slice, keys: slice, dropout_p: float, dtype: torch.dtype
) -> Tensor:
    """0 for each dropped weight and 1 / (1 - p) for each kept one.

    Args:
        first_key, second_key: ``(..., 1, 1)``, of :func:`head_keys`.
        rows, keys: which queries and keys.

    Returns:
        ``(..., rows, keys)`` of ``dtype``.
    """
    device = first_key.device
    i = torch.arange(rows.start, rows.stop, device=device, dtype=torch.int32)[:, None]
    j = torch.arange(keys.start, keys.stop, device=device, dtype=torch.int32)
    words = (first_key, second_key, first_key ^ second_key ^ PARITY)
    a, b = torch.broadcast_tensors(i + words[0], j + words[1])
    for step in range(20):
        turn = ROTATIONS[step % 8]
        a = a + b
        b = ((b << turn) | ((b >> (32 - turn)) & ((1 << turn) - 1))) ^ a
        if step % 4 == 3:
            round_ = step // 4 + 1
            a = a + words[round_ % 3]
            b = b + (words[(round_ + 1) % 3] + round_)
    threshold = int(dropout_p * 2**32)
    if threshold >= 2**32:
        return torch.zeros(a.shape, dtype=dtype, device=device)
    # Flipping the sign bit turns the order of unsigned words into that of signed ones.
    kept = (a ^ SIGN) >= threshold + SIGN
    return kept.to(dtype).mul_(1 / (1 - dropout_p))


def _int32(words: np.ndarray) -> Tensor:
    return torch.from_numpy(words.view(np.int32).copy())
