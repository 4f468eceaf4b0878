"""Exact multi-head attention that you can compute, see, check, cost and learn."""

from typing import TYPE_CHECKING, Any

from headwise.compute.block import multi_head_attention
from headwise.compute.functional import attention
from headwise.compute.planning import plan
from headwise.compute.request import Aux, AuxRequest
from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.plain.version import __version__

if TYPE_CHECKING:
    from headwise.check import check_attention, check_layer
    from headwise.compute.weights import AttentionWeights
    from headwise.costs import cost
    from headwise.inspect import inspect_heads, inspect_qk
    from headwise.trace import explain

__all__ = [
    "AttentionWeights",
    "Aux",
    "AuxRequest",
    "CapabilityError",
    "DtypeError",
    "HeadwiseError",
    "ShapeError",
    "__version__",
    "attention",
    "check_attention",
    "check_layer",
    "cost",
    "explain",
    "inspect_heads",
    "inspect_qk",
    "multi_head_attention",
    "plan",
]

# Names that need more than NumPy, or that few calls need, arrive when they are first used.
_LAZY = {
    "AttentionWeights": "headwise.compute.weights",
    "check_attention": "headwise.check",
    "check_layer": "headwise.check",
    "cost": "headwise.costs",
    "explain": "headwise.trace",
    "inspect_heads": "headwise.inspect",
    "inspect_qk": "headwise.inspect",
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
