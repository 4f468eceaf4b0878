"""Attention for torch: under autograd, under ``torch.compile``, on any device.

Names arrive when they are first used, so that importing this folder costs little beside torch itself.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwise.torch.functional import attention

__all__ = ["attention"]

_LAZY = {"attention": "headwise.torch.functional"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
