"""A torch layer under test: its weights found among its parameters, its call found from its signature."""

import copy
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from headwise.check import calling, frameworks
from headwise.check.contract import Contract
from headwise.check.layers import LayerCase
from headwise.check.naming import ROLES, role_of
from headwise.check.presets import preset
from headwise.check.report import FAILED, PASSED, CheckReport, Finding
from headwise.check.rules import Rule
from headwise.check.rules_layer import LAYER_RULES, choose_layer
from headwise.check.subject import TIME_LIMIT, Subject
from headwise.errors import HeadwiseError
from headwise.options import shown

Array = np.ndarray[Any, Any]
HEADS = ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "h", "nh")
KV_HEADS = ("num_kv_heads", "n_kv_heads", "kv_heads", "num_key_value_heads", "n_kv_head", "num_groups")


def check_layer(
    module: Any,
    contract: Contract | str | None = None,
    *,
    num_heads: int | None = None,
    weights: Mapping[str, str] | None = None,
    seed: int = 0,
    time_limit: float = TIME_LIMIT,
    progress: Any = None,
    name: str | None = None,
) -> CheckReport:
    """Checks a multi-head layer of torch, and names the mistake where it is wrong.

        output = concatenate(head_1, ..., head_H) w_o^T + b_o,
        head_h = attention(x w_q^T + b_q, x w_k^T + b_k, x w_v^T + b_v), each with the rows of head h

    A copy of the layer, in evaluation mode and with random weights, runs on random inputs; its answer is
    compared with the specification in float64 on the same weights. The layer itself is left alone.

    Args:
        module: a ``torch.nn.Module`` whose forward takes x (B, n, d_model), or query, key and value.
        contract: a `Contract`, a preset ("torch-mha": True in a mask hides), or None: that of
            ``torch.nn.MultiheadAttention`` for that class, else the default.
        num_heads: H; None: an attribute of the layer, as ``num_heads``.
        weights: role -> parameter, as {"q": "wq.weight", "o": "proj.weight"}; roles q, k, v, o, qkv. None: by
            their names.
        seed, time_limit, progress, name: as for `check_attention`.

    Returns:
        `CheckReport`.

    Raises:
        HeadwiseError: not a layer of torch, or no heads or weights were found in it.
    """
    from headwise.check.suite import run

    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        hint = "a function goes to check_attention"
        raise HeadwiseError("module", "a torch.nn.Module", shown(module), hint)
    is_mha = isinstance(module, torch.nn.MultiheadAttention)
    chosen = preset(("torch-mha" if is_mha else "default") if contract is None else contract)
    heads = num_heads if num_heads is not None else _number(module, HEADS)
    if heads is None:
        raise HeadwiseError(
            "num_heads",
            "the number of heads",
            "a layer without " + ", ".join(HEADS[:4]),
            "check_layer(module, num_heads=8)",
        )
    kv_heads = _number(module, KV_HEADS) or heads
    layer = _Layer(module, heads, kv_heads, weights)
    subject = Subject(
        layer.copy, _complete(chosen, layer, is_mha), seed, time_limit=time_limit, dtype="float64"
    )
    subject.layers = layer.case
    first = Rule("called", "called", "the layer runs and returns a tensor", choose_layer)
    structure = Rule("weights", "layer", "every head has weights of its own, and W_O mixes them", layer.judge)
    own = type(module).__name__ if name is None else name
    return run(subject, [first, LAYER_RULES[0], structure, *LAYER_RULES[1:]], own, progress)


def _number(module: Any, names: tuple[str, ...]) -> int | None:
    for holder in (module, *module.children(), getattr(module, "config", None)):
        for name in names:
            found = getattr(holder, name, None)
            if found is not None and type(found).__name__ == "ModuleList":
                return len(found)
            if isinstance(found, int) and not isinstance(found, bool) and found > 0:
                return found
    return None


def _complete(contract: Contract, layer: "_Layer", is_mha: bool) -> Contract:
    """The contract with the call that the layer's signature asks for."""
    found = calling.signature(layer.copy.forward)
    served = (
        found.features & {"mask", "padding", "causal"} if contract.features is None else contract.features
    )
    call = contract.call or (_call_mha if is_mha else layer.caller(found))
    return contract.but(call=call, features=frozenset(served) | {"layer"}, kind="torch")


def _call_mha(fn: Any, case: Any) -> Any:
    """torch.nn.MultiheadAttention: masks (B H, n, n), padding (B, n), its own axis order."""
    x = case.x if fn.batch_first else case.x.transpose(0, 1)
    mask = case.mask
    if mask is not None:
        mask = mask.expand(-1, fn.num_heads, -1, -1).reshape(-1, *mask.shape[-2:])
    found = fn(x, x, x, attn_mask=mask, key_padding_mask=case.padding, need_weights=False)[0]
    return found if fn.batch_first else found.transpose(0, 1)


class _Layer:
    """A copy of the layer with random weights, and where they stand in it."""

    def __init__(self, module: Any, heads: int, kv_heads: int, weights: Mapping[str, str] | None) -> None:
        self.original, self.heads, self.kv_heads = module, heads, kv_heads
        self.copy = copy.deepcopy(module).double().eval()
        self.names = dict(self.copy.named_parameters(remove_duplicate=False))
        self.roles = self._given(weights) if weights is not None else self._found()
        missing = [role for role in "qkv" if role not in self.roles] if "qkv" not in self.roles else []
        if missing:
            hint = 'check_layer(module, weights={"q": "...", "k": "...", "v": "...", "o": "..."})'
            expected = f"the weights of {', '.join('W_' + role.upper() for role in missing)}"
            raise HeadwiseError("weights", expected, f"parameters {', '.join(self.names) or '(none)'}", hint)
        for inner in self.copy.modules():
            for name, value in vars(inner).items():
                if isinstance(value, float) and ("drop" in name or name == "p") and 0 <= value < 1:
                    setattr(inner, name, 0.5)  # in evaluation it must not matter

    def _given(self, weights: Mapping[str, str]) -> dict[str, list[str]]:
        for role, name in weights.items():
            if role not in ROLES:
                raise HeadwiseError("weights", f"roles among {', '.join(ROLES)}", role)
            if name not in self.names:
                raise HeadwiseError("weights", f"a parameter among {', '.join(self.names)}", name)
        return {role: [name] for role, name in weights.items()}

    def _found(self) -> dict[str, list[str]]:
        """Role -> parameters; several where every head has its own."""
        roles: dict[str, list[str]] = {}
        for name, value in self.names.items():
            role = role_of(name)
            if value.ndim == 2 and role is not None:
                roles.setdefault(role, []).append(name)
        if not set("qkv") <= set(roles) and "qkv" not in roles:
            in_order = [name for name, value in self.names.items() if value.ndim == 2]
            alike = {re.sub(r"\d+", "", name) for name in in_order}
            if len(alike) == 1 and len(in_order) in (3, 4):  # a list of projections, in the usual order
                return {role: [name] for role, name in zip("qkvo", in_order, strict=False)}
        return roles

    def caller(self, found: calling.Signature) -> Any:
        """forward(x), forward(query, key, value), with the masks under their own names."""
        own, count = found.options, max(found.positional, 1)

        def call(fn: Any, case: Any) -> Any:
            keywords = {
                own[n]: v
                for n, v in (("mask", case.mask), ("padding", case.padding))
                if n in own and v is not None
            }
            if "causal" in own:
                keywords[own["causal"]] = case.is_causal
            return fn(*[case.x] * min(count, 3), **keywords)

        return call

    def case(self, random: np.random.Generator, again: int) -> LayerCase:
        """Fresh inputs and fresh weights, which are also put into the copy."""
        torch = sys.modules["torch"]
        with torch.no_grad():
            for name in {name for names in self.roles.values() for name in names}:
                for one in (name, _bias_of(name)):
                    if one in self.names:
                        self.names[one].copy_(torch.from_numpy(_random(random, tuple(self.names[one].shape))))
        width = self._width()
        x = random.standard_normal((3, 7, width) if again == 2 else (2, 5, width)) * 1.3
        w, b = self._parts()
        return LayerCase(
            x,
            w["q"],
            w["k"],
            w["v"],
            b["q"],
            b["k"],
            b["v"],
            w.get("o"),
            b.get("o"),
            self.heads,
            self.kv_heads,
        )

    def _width(self) -> int:
        matrix = self._matrix("qkv" if "qkv" in self.roles else "q")
        return int(matrix.shape[1] * (self.heads if self._is_shared() else 1))

    def _is_shared(self) -> bool:
        """One small projection for all heads: it takes a head's part of the input."""
        if "qkv" in self.roles or len(self.roles["q"]) > 1:
            return False
        rows, columns = self._matrix("q").shape
        out = self._matrix("o") if "o" in self.roles else None
        known = getattr(self.original, "embed_dim", getattr(self.original, "d_model", None))
        wide = known if isinstance(known, int) else None if out is None else out.shape[1]
        return bool(self.heads > 1 and rows == columns and wide == self.heads * rows)

    def _matrix(self, role: str) -> Array:
        """(out, in); the parts of single heads on top of each other."""
        parts = []
        for name in self.roles[role]:
            matrix = frameworks.take(self.names[name])
            owner = self.copy.get_submodule(name.rpartition(".")[0])
            is_linear = name.endswith("weight") and type(owner).__name__ != "Conv1D"
            parts.append(matrix if is_linear else matrix.T)
        return np.concatenate(parts)

    def _vector(self, role: str) -> Array | None:
        parts = [self.names.get(_bias_of(name)) for name in self.roles[role]]
        if any(part is None for part in parts):
            return None
        return np.concatenate([frameworks.take(part) for part in parts])

    def _parts(self) -> tuple[dict[str, Array], dict[str, Array | None]]:
        w: dict[str, Array] = {}
        b: dict[str, Array | None] = {}
        if "qkv" in self.roles:
            whole, offset = self._matrix("qkv"), self._vector("qkv")
            share = whole.shape[0] // (self.heads + 2 * self.kv_heads)
            ends = np.cumsum([share * self.heads, share * self.kv_heads])
            w |= dict(zip("qkv", np.split(whole, ends), strict=True))
            b |= dict(zip("qkv", [None] * 3 if offset is None else np.split(offset, ends), strict=True))
        for role in [role for role in ("q", "k", "v", "o") if role in self.roles]:
            w[role], b[role] = self._matrix(role), self._vector(role)
        if self._is_shared():
            for one in "qkv":
                vector = b[one]
                w[one] = np.kron(np.eye(self.heads), w[one])
                b[one] = None if vector is None else np.tile(vector, self.heads)
        return w, b

    def judge(self, subject: Subject) -> Finding:
        """What shows in the weights themselves, before anything runs."""
        rule, group = "weights", "layer"
        if self._is_shared():
            shape = tuple(self._matrix("q").shape)
            return Finding(
                rule,
                group,
                FAILED,
                "all heads share one projection: the input is split before it is projected",
                fault="one projection for all heads",
                repair="project the whole input, then split",
                evidence=f"W_Q is {shape} in a layer of width {self._width()} with {self.heads} heads",
                seen=("MarcoMeter/episodic-transformer-memory-ppo#22",),
            )
        own = dict(self.original.named_parameters(remove_duplicate=False))
        if "qkv" not in self.roles:
            q, k, v = (own[self.roles[role][0]] for role in "qkv")
            if q is k or q is v or k is v:
                what = (
                    "query, key and value share one parameter"
                    if q is k and k is v
                    else "two projections are one parameter"
                )
                return Finding(
                    rule,
                    group,
                    FAILED,
                    what,
                    fault="one projection for q, k and v",
                    repair="each has a weight of its own",
                )
        if self.heads > 1 and self._heads_alike(own):
            return Finding(
                rule,
                group,
                FAILED,
                "all heads start with the same weights, and so stay alike in training",
                fault="identical heads",
                repair="draw the weights of every head on their own",
            )
        if "o" not in self.roles and self.heads > 1:
            return Finding(
                rule,
                group,
                FAILED,
                "there is no output projection: nothing mixes the heads",
                fault="no output projection",
                repair="multiply the concatenation by W_O; if it lives in another "
                "module: Contract(notes={'weights'})",
            )
        return Finding(rule, group, PASSED)

    def _heads_alike(self, own: Mapping[str, Any]) -> bool:
        """Whether W_Q of every head holds the same numbers, and not only zeros."""
        names = self.roles["qkv" if "qkv" in self.roles else "q"]
        matrix = np.concatenate(
            [
                frameworks.take(own[name]) if name.endswith("weight") else frameworks.take(own[name]).T
                for name in names
            ]
        )
        if "qkv" in self.roles:
            matrix = matrix[: matrix.shape[0] * self.heads // (self.heads + 2 * self.kv_heads)]
        if matrix.shape[0] % self.heads:
            return False
        parts = matrix.reshape(self.heads, -1, matrix.shape[1])
        return bool(matrix.any() and (parts == parts[:1]).all() and not (matrix == matrix.flat[0]).all())


def _bias_of(name: str) -> str:
    head, _, last = name.rpartition(".")
    if last == "weight":
        return f"{head}.bias"
    if last == "in_proj_weight":
        return f"{head}.in_proj_bias" if head else "in_proj_bias"
    return name.replace("W", "b", 1).replace("w", "b", 1) if last[:1] in "wW" else name + "_bias"


def _random(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    size = 0.7 if len(shape) == 1 else 1.3 / shape[-1] ** 0.5
    return random.standard_normal(shape) * size
