"""Attention for torch, the layer around it, positions, caches and blocks: under autograd and
``torch.compile``, on any device.

Names arrive when they are first used, so that importing this folder costs little beside torch itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.positions_scaling import RotaryScaling
    from headwise.torch.blocks import DecoderLayer, EncoderLayer
    from headwise.torch.caches_linear import DynamicCache, RollingCache, StaticCache
    from headwise.torch.caches_paged import PagedCache
    from headwise.torch.functional import attention
    from headwise.torch.layer import MultiHeadAttention
    from headwise.torch.positions import LearnedPositions, RotaryPositions, SinusoidalPositions
    from headwise.torch.positions_relative import AlibiPositions, T5Positions

__all__ = [
    "AlibiPositions",
    "DecoderLayer",
    "DynamicCache",
    "EncoderLayer",
    "LearnedPositions",
    "MultiHeadAttention",
    "PagedCache",
    "RollingCache",
    "RotaryPositions",
    "RotaryScaling",
    "SinusoidalPositions",
    "StaticCache",
    "T5Positions",
    "attention",
]

_LAZY = {
    "attention": "headwise.torch.functional",
    "MultiHeadAttention": "headwise.torch.layer",
    **dict.fromkeys(("EncoderLayer", "DecoderLayer"), "headwise.torch.blocks"),
    **dict.fromkeys(("DynamicCache", "StaticCache", "RollingCache"), "headwise.torch.caches_linear"),
    "PagedCache": "headwise.torch.caches_paged",
    **dict.fromkeys(
        ("LearnedPositions", "RotaryPositions", "SinusoidalPositions"), "headwise.torch.positions"
    ),
    **dict.fromkeys(("AlibiPositions", "T5Positions"), "headwise.torch.positions_relative"),
    "RotaryScaling": "headwise.positions_scaling",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
