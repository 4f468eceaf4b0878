"""Exact multi-head attention that you can compute, see, check, cost and learn."""

__version__ = "0.1.0"

from typing import TYPE_CHECKING, Any

from headwise.block import multi_head_attention
from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.functional import attention
from headwise.planning import plan
from headwise.request import AuxRequest
from headwise.statistics import Aux

if TYPE_CHECKING:
    from headwise.check import check_attention, check_layer
    from headwise.costs import cost
    from headwise.inspect import inspect_heads, inspect_qk
    from headwise.trace import explain
    from headwise.weights import AttentionWeights

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
    "AttentionWeights": "headwise.weights",
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
