"""The rules in their order, and the run through them."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from headwise.check.rules.conventions import choose, words
from headwise.check.rules.gradient import GRADIENT_RULES
from headwise.check.rules.layer import LAYER_RULES, choose_layer
from headwise.check.rules.memory import DTYPE_RULES, MEMORY_RULES
from headwise.check.rules.rule import Rule
from headwise.check.rules.special import SPECIAL_RULES
from headwise.check.rules.values import VALUE_RULES
from headwise.check.subjects.contract import Contract
from headwise.check.subjects.layer_calling import layer_caller
from headwise.check.subjects.presets import preset, preset_of
from headwise.check.subjects.subject import HANGS, TIME_LIMIT, NoAnswer, Subject
from headwise.check.verdict.report import FAILED, NOT_OFFERED, NOTE, CheckReport, Finding
from headwise.errors import HeadwiseError
from headwise.plain.values import shown

CALLED = Rule("called", "called", "the function runs and returns an array", choose)
RULES: tuple[Rule, ...] = (
    CALLED,
    *DTYPE_RULES,
    *VALUE_RULES,
    *SPECIAL_RULES,
    *MEMORY_RULES,
    *GRADIENT_RULES,
    *LAYER_RULES,
)
_IN_MORE_SHAPES = ("grouped heads and mask", "grouped heads and causal", "half precision")
Progress = Callable[[int, int, str], None]


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
        from headwise.check.torch_layer import check_layer

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
    first = Rule("called", "called", CALLED.says, choose_layer if is_layer else choose)
    rules = [rule for rule in RULES[1:] if is_layer == ("layer" in rule.needs)]
    return run(subject, [first, *rules], name_of(fn) if name is None else name, progress)


def run(subject: Subject, rules: Iterable[Rule], name: str, progress: Progress | None = None) -> CheckReport:
    """Asks the rules one after the other; nothing more is asked of a function that cannot be called."""
    asked = [(rule, tried) for rule in rules for tried in [is_asked(rule, subject)] if tried is not None]
    outcomes: list[Finding] = []
    for done, (rule, tried) in enumerate(asked):
        if tried and "gqa" in rule.needs and subject.layout not in ("bhnd", "bnhd"):
            continue  # no axis for key/value heads
        if rule.group == "gradient" and subject.kind == "numpy":
            continue
        if subject.few_shapes and rule.name in _IN_MORE_SHAPES:
            continue
        if progress is not None:
            progress(done, len(asked), rule.name)
        outcomes.append(_outcome(rule, subject, tried))
        last = outcomes[-1]
        if last.status == FAILED and (rule.group == "called" or last.fault == HANGS):
            break  # what comes of later calls would say nothing
    calling = words(subject) if outcomes[0].status != FAILED else "could not be called"
    return CheckReport(name, subject.contract.name, calling, tuple(outcomes), subject.seed)


def is_asked(rule: Rule, subject: Subject) -> bool | None:
    """Whether the rule is tried without having been promised; None where it is not asked."""
    missing = [need for need in rule.needs if not any(name in subject.declared for name in need.split("|"))]
    if not missing:
        return rule.tried and not rule.needs
    is_open = subject.contract.features is None and missing == ["gqa"] and rule.name == "grouped heads"
    return True if is_open else None


def _outcome(rule: Rule, subject: Subject, tried: bool) -> Finding:
    base, named = subject.base, dict(subject.named)
    try:
        found = rule.run(subject)
    except NoAnswer as no:
        if rule.tried and no.kind == "raised" and rule.name != "called":
            return Finding(rule.name, rule.group, NOT_OFFERED, no.what, where=no.where)
        fault = HANGS if no.kind == "hangs" else ""
        found = Finding(rule.name, rule.group, FAILED, no.what, fault=fault, where=no.where)
    if found.status != FAILED:
        return found
    if rule.name in subject.contract.notes:
        return replace(found, status=NOTE)
    if tried and "gqa" in rule.needs:
        subject.base, subject.named = base, named
        said = f"grouped heads are taken, though nothing says that they are served: {found.diagnosis}"
        return replace(found, status=NOTE, diagnosis=said)
    return found


def name_of(fn: Any) -> str:
    """``module:function``."""
    own = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__
    home = getattr(fn, "__module__", None)
    return f"{home}:{own}" if home else own


def _is_module(fn: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(fn, torch.nn.Module)
