"""Arrays in, arrays out.

An input becomes a NumPy view of the caller's own memory, without a copy, together with the way back to the
caller's own kind of array. torch and JAX are guests here: they are looked up in ``sys.modules``, because a
library that was never imported cannot own the array. No input is ever written to.
"""

import sys
from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import CapabilityError, DtypeError, HeadwiseError

Restore = Callable[[NDArray[Any]], Any]

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_HALF = ("float16", "bfloat16")
_WORDS = {"numpy": "a NumPy array", "torch": "a torch tensor", "jax": "a JAX array"}
_CONVERT = {"numpy": "np.asarray({})", "torch": "torch.from_dlpack({})", "jax": "jnp.from_dlpack({})"}


# Arrays that are judged with their meaning, in `problem.py`: any dtype passes here.
_MASKS = ("attn_mask", "attn_bias")


def take(arrays: Mapping[str, Any], optional: Container[str] = _MASKS) -> tuple[list[Any], Restore]:
    """Views of the arrays of one call, in their order, and what turns results into the caller's kind.

    Args:
        arrays: argument name -> array. The first one decides the kind and the dtype, which all others share;
            but ``attn_mask`` and ``attn_bias`` may be NumPy arrays beside any kind, and what they may hold is
            judged with their meaning, in ``problem.py``.
        optional: names that may be None; None passes through.

    Raises:
        DtypeError: not an array, not in the CPU's memory, not float32 or float64, or unlike the first array.
        CapabilityError: half precision, a tensor that records gradients, a traced array.
    """
    views: list[Any] = []
    first_name, first_kind, first_dtype = "", "", _FLOAT32
    for name, array in arrays.items():
        if array is None and name in optional:
            views.append(None)
            continue
        if type(array) is np.ndarray:
            view, kind = array, "numpy"
        else:
            view, kind = _view(name, array)
        if name not in _MASKS:
            dtype = view.dtype
            if dtype != _FLOAT32 and dtype != _FLOAT64:
                raise _refused_dtype(name, dtype)
            if not views:
                first_name, first_kind, first_dtype = name, kind, dtype
            elif kind != first_kind:
                raise _mixed_kinds(name, kind, first_name, first_kind)
            elif dtype != first_dtype:
                hint = "nothing is cast in silence: convert one of them first"
                raise DtypeError(name, f"{first_dtype}, the dtype of {first_name}", str(dtype), hint)
        elif kind not in ("numpy", first_kind):
            raise _mixed_kinds(name, kind, first_name, first_kind)
        # A field of a packed record can lie at addresses that the kernel's loads do not allow.
        views.append(view if view.flags.aligned else view.copy())
    return views, _RESTORE[first_kind]


def integers(name: str, value: Any) -> NDArray[np.int64]:
    """Whole numbers (token ids, classes) as an int64 array; lists, NumPy, torch and JAX arrays are taken.

    Raises:
        DtypeError: ``value`` does not hold integers that fit into int64.
    """
    if isinstance(value, list | tuple | range):
        try:
            view = np.asarray(value)
        except ValueError:  # rows of unlike lengths
            raise DtypeError(
                name, "rows of one length", "rows of unlike lengths", "pad them to one length"
            ) from None
        if view.size == 0:
            view = view.astype(np.int64)
    else:
        view, _ = _view(name, value)
    if view.dtype.kind not in "iu" or (
        view.dtype == np.uint64 and view.size and view.max() > np.iinfo(np.int64).max
    ):
        raise DtypeError(name, "integers", str(view.dtype), "pass the ids themselves, as in [101, 2009, 102]")
    return view.astype(np.int64, copy=False)


def numbers(name: str, value: Any) -> NDArray[np.float64]:
    """A few real numbers (slopes, logits, factors) as float64; lists, NumPy, torch and JAX arrays are taken.

    Raises:
        DtypeError: ``value`` does not hold numbers.
        HeadwiseError: one of them is not finite.
    """
    if isinstance(value, list | tuple | range):
        try:
            view = np.asarray(value)
        except ValueError:  # rows of unlike lengths
            raise DtypeError(
                name, "rows of one length", "rows of unlike lengths", "pad them to one length"
            ) from None
    else:
        view, _ = _view(name, value)
    if view.dtype.kind not in "iuf":
        raise DtypeError(name, "numbers", str(view.dtype), "pass the numbers themselves, as in [0.5, 0.25]")
    wide = view.astype(np.float64)
    if not np.isfinite(wide).all():
        raise HeadwiseError(
            name,
            "finite numbers",
            str(wide[~np.isfinite(wide)].flat[0]),
            "leave the option out to switch it off",
        )
    return wide


def _view(name: str, array: Any) -> tuple[NDArray[Any], str]:
    """The array as NumPy sees it, and its kind: "numpy", "torch" or "jax"."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        view, kind = _view_of_torch(name, array, torch), "torch"
    elif isinstance(array, np.ndarray | np.generic):
        if isinstance(array, np.ma.MaskedArray):
            hint = "pass array.data, and ~array.mask as attn_mask"
            raise DtypeError(name, "a plain array", "a NumPy masked array", hint)
        view, kind = np.asarray(array), "numpy"
    elif jax is not None and isinstance(array, jax.Array):
        view, kind = _view_of_jax(name, array, jax), "jax"
    else:
        view, kind = _view_of_other(name, array), "numpy"
    if view.dtype.char not in "fd?" and view.dtype.name in _HALF:
        repair = f"{name}.float()" if kind == "torch" else f"{name}.astype(np.float32)"
        raise _half(name, view.dtype.name, repair)
    return view, kind


def _view_of_torch(name: str, tensor: Any, torch: Any) -> NDArray[Any]:
    if not tensor.is_cpu:
        received = f"a torch tensor on {tensor.device}"
        raise DtypeError(name, "an array in the CPU's memory", received, f"{name}.cpu()")
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            expected = "a tensor that records no gradient"
            hint = f"headwise.torch.attention records gradients; {name}.detach() records none"
            raise CapabilityError(name, expected, "requires_grad=True while gradients are recorded", hint)
        tensor = tensor.detach()
    try:
        view: NDArray[Any] = tensor.numpy()
        return view
    except (RuntimeError, TypeError) as refusal:
        if tensor.dtype is torch.bfloat16:
            raise _half(name, "bfloat16", f"{name}.float()") from None
        if tensor.layout is not torch.strided:
            hint = f"{name}.to_dense()"
            raise DtypeError(name, "a dense tensor", f"layout {tensor.layout}", hint) from None
        received = f"{type(tensor).__name__} ({refusal})"
        hint = "call it outside torch.vmap, torch.func and torch.compile"
        raise CapabilityError(name, "a plain torch tensor", received, hint) from None


def _view_of_jax(name: str, array: Any, jax: Any) -> NDArray[Any]:
    if isinstance(array, jax.core.Tracer):
        raise CapabilityError(
            name,
            "a JAX array with values (traced arrays are not yet served)",
            f"a {type(array).__name__}",
            "call it outside jax.jit, jax.grad and jax.vmap",
        )
    devices = sorted({str(device.platform) for device in array.devices()})
    if devices != ["cpu"]:
        raise DtypeError(
            name,
            "an array in the CPU's memory",
            f"a JAX array on {', '.join(devices)}",
            f"jax.device_put({name}, jax.devices('cpu')[0])",
        )
    if array.dtype == np.float64 and not jax.config.jax_enable_x64:
        raise DtypeError(
            name,
            "float32, as long as JAX keeps results in 32 bits",
            "float64",
            "jax.config.update('jax_enable_x64', True), so that the result can be float64 too",
        )
    try:
        return np.asarray(array)
    except TypeError:  # such as random keys
        raise DtypeError(name, "float32 or float64", str(array.dtype), "pass an array of numbers") from None


def _view_of_other(name: str, array: Any) -> NDArray[Any]:
    """Anything else that speaks DLPack or has a buffer; its results come back as NumPy arrays."""
    dtype = "bool" if name == "attn_mask" else "np.float32"
    try:
        if hasattr(array, "__dlpack__"):
            device_type, device_id = array.__dlpack_device__()
            if device_type != 1:
                raise DtypeError(
                    name,
                    "an array in the CPU's memory",
                    f"{type(array).__name__} on DLPack device type {int(device_type)}, number {device_id}",
                    "copy it to the CPU first",
                )
            return np.from_dlpack(array)
        return np.asarray(memoryview(array))
    except (TypeError, BufferError, AttributeError, RuntimeError):
        raise DtypeError(
            name,
            "a NumPy, torch or JAX array, or anything with DLPack or the buffer protocol",
            "None" if array is None else type(array).__name__,
            f"np.asarray({name}, dtype={dtype})" if isinstance(array, list | tuple) else "pass an array",
        ) from None


def _refused_dtype(name: str, dtype: np.dtype[Any]) -> DtypeError | CapabilityError:
    if dtype.name in _HALF:
        return _half(name, dtype.name, f"{name}.astype(np.float32)")
    if dtype in (_FLOAT32.newbyteorder(), _FLOAT64.newbyteorder()):
        return DtypeError(
            name, "this machine's byte order", f"dtype {dtype.str}", f"{name}.astype(np.{dtype.name})"
        )
    return DtypeError(
        name,
        "float32 or float64",
        str(dtype),
        f"nothing is cast in silence: convert {name} to float32 or float64",
    )


def _half(name: str, dtype: str, repair: str) -> CapabilityError:
    return CapabilityError(name, "float32 or float64 (half precision is not yet served)", dtype, repair)


def _mixed_kinds(name: str, kind: str, first_name: str, first_kind: str) -> DtypeError:
    expected = f"{_WORDS[first_kind]}, as {first_name} is"
    return DtypeError(name, expected, _WORDS[kind], _CONVERT[first_kind].format(name))


def _same(array: NDArray[Any]) -> NDArray[Any]:
    return array


def _to_torch(array: NDArray[Any]) -> Any:
    return sys.modules["torch"].from_numpy(array)


def _to_jax(array: NDArray[Any]) -> Any:
    # JAX narrows int64 to its own default integer unless 64-bit types are switched on there.
    return sys.modules["jax"].numpy.asarray(array)


_RESTORE: dict[str, Restore] = {"numpy": _same, "torch": _to_torch, "jax": _to_jax}
