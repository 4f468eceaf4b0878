"""Attention for torch, the layer around it, positions, caches and transformer layers: under autograd and
``torch.compile``, on any device.

Names arrive when they are first used, so that importing this folder costs little beside torch itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.compute.positions.scaling import RotaryScaling
    from headwise.torch.caches.contiguous import DynamicCache, RollingCache, StaticCache
    from headwise.torch.caches.paged import PagedCache
    from headwise.torch.functional import attention
    from headwise.torch.layer.multi_head import MultiHeadAttention
    from headwise.torch.layer.transformer import DecoderLayer, EncoderLayer
    from headwise.torch.positions.biases import AlibiPositions, T5Positions
    from headwise.torch.positions.embeddings import LearnedPositions, RotaryPositions, SinusoidalPositions

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
    "MultiHeadAttention": "headwise.torch.layer.multi_head",
    **dict.fromkeys(("EncoderLayer", "DecoderLayer"), "headwise.torch.layer.transformer"),
    **dict.fromkeys(("DynamicCache", "StaticCache", "RollingCache"), "headwise.torch.caches.contiguous"),
    "PagedCache": "headwise.torch.caches.paged",
    **dict.fromkeys(
        ("LearnedPositions", "RotaryPositions", "SinusoidalPositions"), "headwise.torch.positions.embeddings"
    ),
    **dict.fromkeys(("AlibiPositions", "T5Positions"), "headwise.torch.positions.biases"),
    "RotaryScaling": "headwise.compute.positions.scaling",
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
