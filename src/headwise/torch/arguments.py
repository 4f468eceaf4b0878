"""Checks of one argument each, which layer, caches, positions and blocks share."""

from typing import Any

import torch
from torch import Tensor

from headwise.errors import DtypeError, HeadwiseError, ShapeError
from headwise.plain.values import is_whole, shown

Shape = tuple[int, ...]


def check_key_mask(key_mask: Tensor, shape: Shape, name: str = "key_mask") -> None:
    """A mask of real tokens: booleans, one per key.

    Raises:
        DtypeError, ShapeError: it is not.
    """
    if not isinstance(key_mask, Tensor) or key_mask.dtype != torch.bool:
        received = str(key_mask.dtype) if isinstance(key_mask, Tensor) else type(key_mask).__name__
        hint = "True = real token: attention_mask.bool(), or ~key_padding_mask of torch"
        raise DtypeError(name, "a boolean tensor", received, hint)
    if tuple(key_mask.shape) != shape:
        expected = f"shape {shape}, one per key"
        hint = "masks of pairs go into attn_mask"
        raise ShapeError(name, expected, f"shape {tuple(key_mask.shape)}", hint)


def positive(name: str, number: Any) -> int:
    """A whole number >= 1, or an error that names it."""
    if not is_whole(number) or number < 1:
        raise HeadwiseError(name, "a whole number >= 1", shown(number), f"{name}=64")
    return int(number)
