"""The weights that dropout keeps, one tile at a time, by the same counted numbers as the kernel's.

Threefry-2x32 with 20 rounds (Salmon et al. 2011): the seed turns the number of a head, its low and its high
word, into that head's key, and this turns (i, j), query and key, into the weight's number. Words are held in
int32, whose sums wrap around as unsigned ones do.
"""

import torch
from torch import Tensor

Words = tuple[Tensor, Tensor]

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
SIGN = -(2**31)


def head_keys(heads: int, seed: int, device: torch.device) -> Words:
    """The two words that each head (counted through all batch entries) turns its positions with."""
    low, high = (torch.tensor(word, dtype=torch.int64).int() for word in (seed & 0xFFFFFFFF, seed >> 32))
    head = torch.arange(heads)
    first, second = _threefry((low, high), (head.int(), (head >> 32).int()))
    return first.to(device), second.to(device)


def kept_weights(keys: Words, rows: slice, columns: slice, dropout_p: float, dtype: torch.dtype) -> Tensor:
    """0 for each dropped weight and 1 / (1 - p) for each kept one.

    Args:
        keys: of :func:`head_keys`, as ``(..., 1, 1)``.
        rows, columns: which queries and keys.

    Returns:
        ``(..., rows, columns)`` of ``dtype``.
    """
    device = keys[0].device
    i = torch.arange(rows.start, rows.stop, device=device, dtype=torch.int32)[:, None]
    j = torch.arange(columns.start, columns.stop, device=device, dtype=torch.int32)
    number, _ = _threefry(keys, (i, j))
    threshold = int(dropout_p * 2**32)
    if threshold >= 2**32:
        return torch.zeros(number.shape, dtype=dtype, device=device)
    # Flipping the sign bit turns the order of unsigned words into that of signed ones.
    kept = (number ^ SIGN) >= threshold + SIGN
    return kept.to(dtype).mul_(1 / (1 - dropout_p))


def _threefry(key: Words, counter: Words) -> Words:
    """Two random words from a key and a counter of two words each."""
    words = (*key, key[0] ^ key[1] ^ PARITY)
    a, b = torch.broadcast_tensors(counter[0] + words[0], counter[1] + words[1])
    for step in range(20):
        turn = ROTATIONS[step % 8]
        a = a + b
        b = ((b << turn) | ((b >> (32 - turn)) & ((1 << turn) - 1))) ^ a
        if step % 4 == 3:
            turned = step // 4 + 1
            a = a + words[turned % 3]
            b = b + (words[(turned + 1) % 3] + turned)
    return a, b
