"""Conventions that legitimately differ, each as a contract under the name of the library that has it."""

from typing import Any

from headwise.check.cases.case import Case
from headwise.check.subjects.contract import Contract, Function
from headwise.errors import HeadwiseError
from headwise.plain.types import AnyArray
from headwise.plain.values import shown


def _mask(case: Case) -> AnyArray:
    """Mask or bias, where one argument serves both."""
    if case.mask is not None and case.bias is not None:
        raise NotImplementedError("one argument serves mask and bias")
    return case.mask if case.bias is None else case.bias


def _torch_sdpa(fn: Function, case: Case) -> AnyArray:
    grouped = {"enable_gqa": True} if case.query.shape[-3] != case.key.shape[-3] else {}
    return fn(case.query, case.key, case.value, attn_mask=_mask(case), is_causal=case.is_causal,
              scale=case.scale, **grouped)  # fmt: skip


def _flash(fn: Function, case: Case) -> AnyArray:
    options: dict[str, Any] = {"causal": case.is_causal}
    if case.scale is not None:
        options["softmax_scale"] = case.scale
    if case.window is not None:
        options["window_size"] = (case.window[0], 0 if case.is_causal else -1)
    if case.softcap is not None:
        options["softcap"] = case.softcap
    return fn(case.query, case.key, case.value, **options)


def _jax(fn: Function, case: Case) -> AnyArray:
    options: dict[str, Any] = {}
    if case.window is not None:
        options["local_window_size"] = (case.window[0], 0 if case.is_causal else case.n_k)
    bias = None if case.bias is None else case.bias[None]
    return fn(case.query, case.key, case.value, bias, case.mask, is_causal=case.is_causal,
              scale=case.scale, **options)  # fmt: skip


def _keras(fn: Function, case: Case) -> AnyArray:
    bias = None if case.bias is None else case.bias[None]
    options = {} if case.softcap is None else {"attn_logits_soft_cap": case.softcap}
    return fn(case.query, case.key, case.value, bias=bias, mask=case.mask, is_causal=case.is_causal,
              scale=case.scale, **options)  # fmt: skip


def _onnx(fn: Function, case: Case) -> AnyArray:
    options: dict[str, Any] = {"attn_mask": _mask(case), "is_causal": int(case.is_causal)}
    if case.past_key is not None:
        options |= {"past_key": case.past_key, "past_value": case.past_value}
    if case.scale is not None:
        options["scale"] = case.scale
    if case.softcap is not None:
        options["softcap"] = case.softcap
    found = fn(case.query, case.key, case.value, **options)
    return found[0] if isinstance(found, tuple) else found


def _mlx(fn: Function, case: Case) -> AnyArray:
    scale = case.query.shape[-1] ** -0.5 if case.scale is None else case.scale
    mask = _mask(case)
    if case.is_causal and mask is not None:
        raise NotImplementedError("one argument serves causal order and masks")
    mask = "causal" if case.is_causal else mask
    return fn(case.query, case.key, case.value, scale=scale, mask=mask)


def _headwise(fn: Function, case: Case) -> AnyArray:
    return fn(
        case.query, case.key, case.value, case.mask, is_causal=case.is_causal, scale=case.scale,
        attn_bias=case.bias, softcap=case.softcap, window_size=case.window or (None, None),
        **({"causal_alignment": case.aligned} if case.is_causal or case.window else {}),
    )  # fmt: skip


_LEAK = "masked NaN"
PRESETS: dict[str, Contract] = {
    contract.name: contract
    for contract in (
        Contract(),
        Contract(
            "headwise", _headwise, {"mask", "bias", "causal", "scale", "gqa", "window", "softcap"},
            layout="bhnd", causal_alignment="lower_right", notes=(),
        ),
        Contract(
            "torch-sdpa", _torch_sdpa, {"mask", "bias", "causal", "scale", "gqa"}, layout="bhnd",
            causal_alignment="upper_left", notes={_LEAK},
        ),
        Contract(
            "torch-mha", None, {"layer", "mask", "padding"}, kind="torch", mask_means="hide",
            empty_rows="any", notes={_LEAK},
        ),
        Contract(
            "flash-attn", _flash, {"causal", "scale", "gqa", "window", "softcap"}, layout="bnhd",
            causal_alignment="lower_right", notes={_LEAK},
        ),
        Contract(
            "jax", _jax, {"mask", "bias", "causal", "scale", "gqa", "window"}, layout="bnhd",
            causal_alignment="upper_left", empty_rows="mean", notes={_LEAK},
        ),
        Contract(
            "keras", _keras, {"mask", "causal", "scale"}, layout="bnhd", causal_alignment="upper_left",
            empty_rows="mean", notes={_LEAK, "dtype", "float64"},
        ),
        Contract(
            "onnx", _onnx, {"mask", "bias", "causal", "scale", "gqa", "cache", "softcap"}, layout="bhnd",
            causal_alignment="upper_left", notes={_LEAK},
        ),
        Contract(
            "mlx", _mlx, {"mask", "bias", "causal", "scale", "gqa"}, layout="bhnd",
            causal_alignment="lower_right", empty_rows="any", notes={_LEAK},
        ),
    )
}  # fmt: skip


# Functions that a convention is named after: (module or top package, name) -> preset.
_KNOWN = {
    ("torch", "scaled_dot_product_attention"): "torch-sdpa",
    ("jax", "dot_product_attention"): "jax",
    ("keras", "dot_product_attention"): "keras",
    ("flash_attn", "flash_attn_func"): "flash-attn",
    ("mlx", "scaled_dot_product_attention"): "mlx",
    ("headwise.compute.functional", "attention"): "headwise",
    ("headwise.torch.functional", "attention"): "headwise",
}


def preset_of(fn: object) -> Contract:
    """The contract of a library's own function; the default for any other."""
    home, name = getattr(fn, "__module__", None) or "", getattr(fn, "__name__", "")
    return PRESETS[_KNOWN.get((home, name)) or _KNOWN.get((home.split(".")[0], name), "default")]


def preset(name: str | Contract) -> Contract:
    """The contract of that name; a contract is given back as it is."""
    if isinstance(name, Contract):
        return name
    if name not in PRESETS:
        hint = "a Contract of your own says how a function is called"
        raise HeadwiseError("contract", f"one of {', '.join(PRESETS)}, or a Contract", shown(name), hint)
    return PRESETS[name]
