"""The weights of a torch layer: found by name, filled with fresh numbers, read as W_Q, W_K, W_V, W_O."""

import copy
import re
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from headwise.check.cases.layer_case import LayerCase
from headwise.check.subjects.kinds import take
from headwise.check.subjects.roles import ROLES, role_of
from headwise.errors import HeadwiseError
from headwise.plain.types import Array


class LayerWeights:
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

    def case(self, random: np.random.Generator, again: int) -> LayerCase:
        """Fresh inputs and fresh weights, which are also put into the copy."""
        torch = sys.modules["torch"]
        with torch.no_grad():
            for name in dict.fromkeys(name for names in self.roles.values() for name in names):
                for one in (name, _bias_of(name)):
                    if one in self.names:
                        self.names[one].copy_(torch.from_numpy(_random(random, tuple(self.names[one].shape))))
        width = self.width()
        x = random.standard_normal((3, 7, width) if again == 2 else (2, 5, width)) * 1.3
        w, b = self.parts()
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

    def width(self) -> int:
        matrix = self.matrix("qkv" if "qkv" in self.roles else "q")
        return int(matrix.shape[1] * (self.heads if self.is_shared() else 1))

    def is_shared(self) -> bool:
        """One small projection for all heads: it takes a head's part of the input."""
        if "qkv" in self.roles or len(self.roles["q"]) > 1:
            return False
        rows, columns = self.matrix("q").shape
        out = self.matrix("o") if "o" in self.roles else None
        known = getattr(self.original, "embed_dim", getattr(self.original, "d_model", None))
        wide = known if isinstance(known, int) else None if out is None else out.shape[1]
        return bool(self.heads > 1 and rows == columns and wide == self.heads * rows)

    def matrix(self, role: str) -> Array:
        """(out, in); the parts of single heads on top of each other."""
        parts = []
        for name in self.roles[role]:
            matrix = take(self.names[name])
            owner = self.copy.get_submodule(name.rpartition(".")[0])
            is_linear = name.endswith("weight") and type(owner).__name__ != "Conv1D"
            parts.append(matrix if is_linear else matrix.T)
        return np.concatenate(parts)

    def vector(self, role: str) -> Array | None:
        parts = [self.names.get(_bias_of(name)) for name in self.roles[role]]
        if any(part is None for part in parts):
            return None
        return np.concatenate([take(part) for part in parts])

    def parts(self) -> tuple[dict[str, Array], dict[str, Array | None]]:
        w: dict[str, Array] = {}
        b: dict[str, Array | None] = {}
        if "qkv" in self.roles:
            whole, offset = self.matrix("qkv"), self.vector("qkv")
            share = whole.shape[0] // (self.heads + 2 * self.kv_heads)
            ends = np.cumsum([share * self.heads, share * self.kv_heads])
            w |= dict(zip("qkv", np.split(whole, ends), strict=True))
            b |= dict(zip("qkv", [None] * 3 if offset is None else np.split(offset, ends), strict=True))
        for role in [role for role in ("q", "k", "v", "o") if role in self.roles]:
            w[role], b[role] = self.matrix(role), self.vector(role)
        if self.is_shared():
            for one in "qkv":
                vector = b[one]
                w[one] = np.kron(np.eye(self.heads), w[one])
                b[one] = None if vector is None else np.tile(vector, self.heads)
        return w, b


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
