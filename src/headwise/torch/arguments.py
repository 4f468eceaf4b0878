"""Checks of one argument each, which layers, caches and positions share."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
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


def check_kind(name: str, x: Tensor, weight: Tensor) -> None:
    """An input is of the dtype and on the device of what it is multiplied with.

    Raises:
        DtypeError: it is not.
    """
    if x.dtype != weight.dtype and not under_autocast(x):
        hint = f"{name}.to({weight.dtype}): nothing is cast in silence"
        if x.is_floating_point():
            hint = f"layer.to({x.dtype}), or {hint}"
        raise DtypeError(name, f"{weight.dtype}, the dtype of the layer", str(x.dtype), hint)
    if x.device != weight.device:
        hint = f"layer.to({str(x.device)!r}), or {name}.to({str(weight.device)!r})"
        raise DtypeError(name, f"a tensor on {weight.device}, as the layer is", str(x.device), hint)


def under_autocast(x: Tensor) -> bool:
    """Is autocast on where this tensor lives? Not every device knows it."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def refuse_script() -> NoReturn:
    """What torch asks a module for before it scripts it.

    Raises:
        CapabilityError: always.
    """
    expected = "torch.compile or torch.export, which both take the layer"
    hint = "torch.export.export(model, (x,)): TorchScript has no keyword-only arguments"
    raise CapabilityError("layer", expected, "torch.jit.script", hint)


def positive(name: str, number: Any) -> int:
    """A whole number >= 1, or an error that names it."""
    if not is_whole(number) or number < 1:
        raise HeadwiseError(name, "a whole number >= 1", shown(number), f"{name}=64")
    return int(number)
