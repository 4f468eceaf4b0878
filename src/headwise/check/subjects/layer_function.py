"""Functions of (x, weights, ...): a whole layer in one function, its weights found by their names."""

import inspect
from dataclasses import replace
from itertools import product
from typing import Any

from headwise.check.cases.layer_case import LayerCase
from headwise.check.subjects.kinds import KINDS, kind_of
from headwise.check.subjects.roles import role_of
from headwise.check.subjects.signature import signature_of

_INPUTS = ("q", "query", "k", "key", "v", "value")


class LayerCaller:
    """Calls ``fn(x, w_q, ...)``.

    Attributes:
        roles: "w_q", "b_o", ... -> the parameter that takes it.
        transposed: weights are (in, out), for x @ W.
        one_by_one: x is (n, d): the entries of a batch go in one after the other.
    """

    def __init__(self, roles: dict[str, str], options: dict[str, str]) -> None:
        self.roles, self.options = roles, options
        self.transposed, self.one_by_one = True, False

    def takes(self, case: LayerCase) -> LayerCase:
        """The case without the weights that the function does not take."""
        whole = "w_qkv" in self.roles
        left_out: dict[str, Any] = {
            field: None
            for field, role in (
                ("b_q", "b_q"),
                ("b_k", "b_k"),
                ("b_v", "b_v"),
                ("w_out", "w_o"),
                ("b_out", "b_o"),
            )
            if role not in self.roles
            and not (whole and role in ("b_q", "b_k", "b_v") and "b_qkv" in self.roles)
        }
        return replace(case, **left_out)

    def ways(self) -> list[tuple[bool, bool]]:
        """The ways to call it, the likeliest first."""
        return list(product((True, False), (False, True)))

    def __call__(self, fn: Any, case: Any) -> Any:
        keywords = {name: self._weight(case, role) for role, name in self.roles.items()}
        keywords |= {
            self.options[n]: v
            for n, v in (("mask", case.mask), ("padding", case.padding))
            if n in self.options and v is not None
        }
        if "heads" in self.options:
            keywords[self.options["heads"]] = case.num_heads
        if "causal" in self.options:
            keywords[self.options["causal"]] = case.is_causal
        if not self.one_by_one:
            return fn(case.x, **keywords)
        outputs = [fn(x, **keywords) for x in case.x]
        return (kind_of(outputs[0]) or KINDS["numpy"]).stack(outputs)

    def _weight(self, case: Any, role: str) -> Any:
        name = {"w_o": "w_out", "b_o": "b_out", "w_qkv": "w_in", "b_qkv": "b_in"}.get(role, role)
        weight = getattr(case, name)
        return weight.T if self.transposed and role.startswith("w") else weight


def layer_caller(fn: Any) -> LayerCaller | None:
    """How to call a function that takes its weights as arguments, or None where it does not."""
    found = signature_of(fn)
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return None
    if not parameters or parameters[0].lower() in _INPUTS:
        return None
    roles: dict[str, str] = {}
    for name in parameters[1:]:
        role = None if name in found.options.values() else role_of(name)
        if role is not None:
            roles.setdefault(f"{'b' if name.lower().startswith('b') else 'w'}_{role}", name)
    complete = "w_qkv" in roles or {"w_q", "w_k", "w_v"} <= set(roles)
    return LayerCaller(roles, found.options) if complete else None
