"""The rules in their order, and the front door of functions."""

import sys
from dataclasses import replace
from typing import Any

from headwise.check.rules.called import CALLED
from headwise.check.rules.extremes import EXTREME_RULES
from headwise.check.rules.gradient import GRADIENT_RULES
from headwise.check.rules.inquiry import Progress, run
from headwise.check.rules.layer_rules import LAYER_RULES, choose_layer
from headwise.check.rules.memory import DTYPE_RULES, MEMORY_RULES
from headwise.check.rules.outputs import VALUE_RULES
from headwise.check.rules.rule import Rule
from headwise.check.subjects.contract import Contract
from headwise.check.subjects.layer_function import layer_caller
from headwise.check.subjects.presets import preset, preset_of
from headwise.check.subjects.subject import TIME_LIMIT, Subject
from headwise.check.torch_layer import check_layer
from headwise.check.verdict.findings import CheckReport
from headwise.errors import HeadwiseError
from headwise.plain.values import shown

RULES: tuple[Rule, ...] = (
    CALLED,
    *DTYPE_RULES,
    *VALUE_RULES,
    *EXTREME_RULES,
    *MEMORY_RULES,
    *GRADIENT_RULES,
    *LAYER_RULES,
)


def check_attention(
    fn: Any,
    contract: Contract | str | None = None,
    *,
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
    progress: Progress | None = None,
    name: str | None = None,
) -> CheckReport:
    """Checks an attention function, and names the mistake where it is wrong.

        output = softmax(scale query key^T + bias, over the keys that a row sees) value

    The function is called with random arrays, as its signature says or as the contract does, and its answers
    are compared with the specification in float64 (``headwise.reference``), never with a fast kernel. A wrong
    answer is compared with what each known mistake would give there; a mistake is named when it fits within
    rounding, every other is ten times farther, and fresh numbers agree.

    Args:
        fn: a function of (query, key, value, ...), on NumPy, torch or JAX arrays; or a ``torch.nn.Module``,
            which goes to `check_layer`.
        contract: how it is called and what it promises: a `Contract`, the name of a preset ("torch-sdpa",
            "flash-attn", "jax", "keras", "onnx", "mlx", "headwise", "torch-mha"), or None: found out by
            trying.
        seed: of the random inputs.
        time_limit: seconds for one call of the function; in the main thread only.
        progress: called with (rules done, rules in all, name of the next).
        name: for the report; None: the function's own.

    Returns:
        `CheckReport`: ``.passed``, ``.findings``, ``str()``, JSON and JUnit.

    Raises:
        HeadwiseError: ``fn`` cannot be called, or the contract is none.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     s = q @ k.swapaxes(-1, -2) / q.shape[-1]
    ...     e = np.exp(s - s.max(-1, keepdims=True))
    ...     return e / e.sum(-1, keepdims=True) @ v
    >>> check_attention(attention).faults
    ('scale 1/d_k',)
    """
    if not callable(fn):
        raise HeadwiseError("fn", "a function", shown(fn), "pass the function itself, without calling it")
    chosen = preset_of(fn) if contract is None else preset(contract)
    if _is_module(fn) and chosen.call is None:
        return check_layer(fn, contract, seed=seed, time_limit=time_limit, progress=progress, name=name)
    asked = chosen.features is None or "layer" in chosen.features
    layer = layer_caller(fn) if chosen.call is None and asked else None
    if layer is not None:
        served = {"layer", *(frozenset(layer.options) & {"mask", "padding", "causal"}), *chosen.always}
        chosen = chosen.but(call=layer, features=served)
    elif chosen.call is None and "layer" in (chosen.features or ()):
        hint = "Contract(features={'layer'}, call=lambda fn, case: fn(case.x, case.w_in, case.w_out))"
        raise HeadwiseError("contract", "a call, for a layer that is a function", "none", hint)
    subject = Subject(fn, chosen, seed, time_limit=time_limit)
    is_layer = "layer" in subject.declared
    first = replace(CALLED, run=choose_layer) if is_layer else CALLED
    rules = [rule for rule in RULES[1:] if is_layer == ("layer" in rule.needs)]
    return run(subject, [first, *rules], name_of(fn) if name is None else name, progress)


def name_of(fn: object) -> str:
    """``module:function``."""
    own = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__
    home = getattr(fn, "__module__", None)
    return f"{home}:{own}" if home else own


def _is_module(fn: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(fn, torch.nn.Module)
