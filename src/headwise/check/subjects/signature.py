"""How a function wants to be called: what its parameters are named, which axes stand where."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.subjects.contract import Contract, Function
from headwise.check.subjects.kinds import KINDS
from headwise.plain.types import Array

# Our name -> the names under which functions have it. Lower case; what differs only in case is the same.
NAMES = {
    "mask": ("attn_mask", "mask", "attention_mask", "bool_mask", "visible"),
    "padding": ("key_padding_mask", "padding_mask", "pad_mask", "key_mask", "pad", "padding"),
    "bias": ("bias", "attn_bias", "attention_bias"),
    "causal": ("is_causal", "causal"),
    "window": ("window", "window_size", "local_window_size", "sliding_window"),
    "softcap": ("softcap", "soft_cap", "logit_cap", "logits_soft_cap", "attn_logits_soft_cap"),
    "scale": ("scale", "softmax_scale", "sm_scale"),
    "gqa": ("enable_gqa", "num_kv_heads", "n_kv_heads", "kv_heads", "num_key_value_heads"),
    "rope": ("base", "rope_base", "rotary_base", "theta", "rope_theta"),
    "past_key": ("past_key", "past_k", "k_past", "cache_k", "k_cache", "key_cache", "cached_key"),
    "past_value": ("past_value", "past_v", "v_past", "cache_v", "v_cache", "value_cache", "cached_value"),
    "heads": ("num_heads", "n_heads", "n_head", "nhead", "heads", "num_attention_heads", "h"),
}
_INPUTS = ("query", "q", "queries", "key", "k", "keys", "value", "v", "values")
_FLAGS = ("causal", "gqa")
_PAIRS = ("window_size", "local_window_size")
_FIELDS = ("query", "key", "value", "mask", "padding", "bias", "past_key", "past_value", "past_key_turned")


@dataclass(frozen=True)
class Signature:
    """What the parameters of a function tell.

    Attributes:
        options: our name -> its own.
        positional: how many arrays it takes by position.
        known: it has a signature.
        required: options without a default, under our names.
        inputs: names of query, key and value where they are taken by name only.
    """

    options: dict[str, str]
    positional: int
    known: bool
    required: frozenset[str] = frozenset()
    inputs: tuple[str, ...] = ()

    @property
    def features(self) -> frozenset[str]:
        """The options that the function names."""
        found = set(self.options) - {"past_key", "past_value", "heads"}
        if {"past_key", "past_value"} <= set(self.options):
            found.add("cache")
        return frozenset(found)


def signature_of(fn: Any) -> Signature:
    """Reads the signature; a built-in that has none takes three arrays, as far as we know."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return Signature({}, 3, False)
    own = {parameter.name.lower(): parameter.name for parameter in parameters}
    options: dict[str, str] = {}
    defaults = {parameter.name: parameter.default for parameter in parameters}
    for ours, names in NAMES.items():
        name = next((own[name] for name in names if name in own), None)
        if name is None:
            continue
        if isinstance(defaults[name], bool | str) and ours not in _FLAGS:
            if ours == "mask" and defaults[name] is False:
                options.setdefault("causal", name)  # a switch for the causal mask
            continue
        options[ours] = name
    required = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        and parameter.default is parameter.empty
        and parameter.name not in options.values()
    ]
    bare = {p.name for p in parameters if p.default is p.empty}
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    inputs = tuple(
        sorted((n for n in by_name if n.lower() in _INPUTS), key=lambda n: "qkv".index(n[0].lower()))
    )
    needed = frozenset(ours for ours, name in options.items() if name in bare)
    return Signature(options, len(required), True, needed, inputs if len(inputs) == 3 else ())


def caller(fn: Function, contract: Contract, found: Signature) -> Callable[[Any], Any]:
    """``call(case)`` with the arrays of the function's own kind."""
    if contract.call is not None:
        given = contract.call
        return lambda case: given(fn, case)

    def call(case: Case) -> Any:
        own, keywords = found.options, {}
        present = case.has()
        for ours, value in (("mask", case.mask), ("padding", case.padding), ("bias", case.bias),
                            ("softcap", case.softcap), ("scale", case.scale), ("rope", case.rotary_base),
                            ("past_key", case.past_key), ("past_value", case.past_value)):  # fmt: skip
            if ours in own and value is not None:
                keywords[own[ours]] = value
        if "causal" in own and "causal" not in contract.always:
            keywords[own["causal"]] = case.is_causal
        if "window" in own and case.window is not None:
            left = case.window[0]
            pair = (left, 0 if case.is_causal else case.n_k)
            keywords[own["window"]] = pair if own["window"] in _PAIRS else left
        if "gqa" in own and ("gqa" in present or "gqa" in found.required):
            keywords[own["gqa"]] = True if own["gqa"] == "enable_gqa" else case.num_heads // case.group
        if "heads" in own:
            keywords[own["heads"]] = case.num_heads
        if found.inputs:
            return fn(**dict(zip(found.inputs, (case.query, case.key, case.value), strict=True)), **keywords)
        return fn(case.query, case.key, case.value, **keywords)

    return call


def fill(case: Case, required: frozenset[str]) -> Case:
    """What the function cannot do without and the case lacks: a mask that hides nothing, a bias of 0."""
    batch, heads = case.query.shape[:2]
    neutral: dict[str, Callable[[], Any]] = {
        "mask": lambda: np.ones((batch, 1, case.n_q, case.n_k), bool),
        "padding": lambda: np.ones((batch, case.n_k), bool),
        "bias": lambda: np.zeros((heads, case.n_q, case.n_k)),
        "scale": lambda: case.factor,
    }
    changes: dict[str, Any] = {
        name: make() for name, make in neutral.items() if name in required and name not in case.has()
    }
    return replace(case, **changes)


def lay(case: Case, layout: str) -> list[Case]:
    """The case in another layout, still NumPy: one call, or one per head where a function takes no more."""
    case = replace(case, sizes=(case.n_q, case.n_k, case.n_past, case.group))
    if layout in ("bhnd", "bnhd", "bne"):
        laid: dict[str, Any] = {name: _axes(getattr(case, name), layout) for name in _ARRAYS}
        return [replace(case, **laid)]
    batch, heads = case.query.shape[:2]
    whole = {"mask": (batch, heads, case.n_q, case.n_k), "bias": (batch, heads, case.n_q, case.n_k)}
    spread = {
        name: np.broadcast_to(getattr(case, name), shape)
        for name, shape in whole.items()
        if getattr(case, name) is not None
    }
    if case.padding is not None:
        spread["padding"] = np.broadcast_to(case.padding[:, None], (batch, heads, case.n_k))
    arrays = {name: getattr(case, name) for name in _ARRAYS if getattr(case, name) is not None} | spread
    if layout == "bnd":
        flat = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
        return [replace(case, **flat)]
    if layout == "hnd":
        return [replace(case, **{name: array[b] for name, array in arrays.items()}) for b in range(batch)]
    return [
        replace(case, **{name: array[b, h] for name, array in arrays.items()})
        for b in range(batch)
        for h in range(heads)
    ]


_ARRAYS = ("query", "key", "value", "past_key", "past_value", "past_key_turned")


def _axes(x: Array | None, layout: str) -> Array | None:
    if x is None or layout == "bhnd":
        return x
    rows = x.swapaxes(1, 2)
    return rows if layout == "bnhd" else rows.reshape(*rows.shape[:2], -1)


def unlay(outputs: list[Array], case: Case, layout: str) -> Array:
    """The output as (B, H, n_q, d_v). Raises ValueError where it does not have that many numbers."""
    batch, heads = case.query.shape[:2]
    output = outputs[0] if len(outputs) == 1 else np.stack(outputs)
    if layout == "bhnd":
        return output
    if layout == "bnhd":
        return output.swapaxes(1, 2)
    if layout == "bne":
        return output.reshape(*output.shape[:2], heads, -1).swapaxes(1, 2)
    return output.reshape(batch, heads, *output.shape[-2:])


def convert(case: Case, kind: str, dtype: str, mask_means: str) -> Case:
    """The case with arrays of the function's kind; masks in its convention."""
    changes: dict[str, Any] = {}
    for field in fields(case):
        array = getattr(case, field.name)
        if field.name not in _FIELDS or array is None:
            continue
        if array.dtype == np.bool_ and mask_means != "attend":
            array = ~array if mask_means == "hide" else np.where(array, 0.0, -np.inf)
        changes[field.name] = KINDS[kind].put(array, dtype)
    return replace(case, **changes)
