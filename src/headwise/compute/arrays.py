"""Arrays in, arrays out.

An input becomes a NumPy view of the caller's own memory, without a copy, together with the way back to the
caller's own kind of array. No input is ever written to.
"""

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from headwise.errors import CapabilityError, DtypeError, HeadwiseError
from headwise.plain.frameworks import FRAMEWORKS, HALF, NUMPY, Framework, elsewhere, half
from headwise.plain.types import AnyArray, Array, Floats, Integers

Restore = Callable[[Array], AnyArray]

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)

# Arrays that are judged with their meaning, in `problem/masks.py`: any dtype passes here.
_MASKS = ("attn_mask", "attn_bias")


def take(arrays: Mapping[str, AnyArray], optional: Container[str] = _MASKS) -> tuple[list[Any], Restore]:
    """Views of the arrays of one call, in their order, and what turns results into the caller's kind.

    Args:
        arrays: argument name -> array. The first one decides the kind and the dtype, which all others share;
            but ``attn_mask`` and ``attn_bias`` may be NumPy arrays beside any kind, and what they may hold is
            judged with their meaning, in ``problem/masks.py``.
        optional: names that may be None; None passes through.

    Raises:
        DtypeError: not an array, not in the CPU's memory, not float32 or float64, or unlike the first array.
        CapabilityError: half precision, a tensor that records gradients, a traced array.
    """
    views: list[Any] = []
    first_name, first, first_dtype = "", NUMPY, _FLOAT32
    for name, array in arrays.items():
        if array is None and name in optional:
            views.append(None)
            continue
        if type(array) is np.ndarray:
            view, framework = array, NUMPY
        else:
            view, framework = _view(name, array)
        if name not in _MASKS:
            dtype = view.dtype
            if dtype != _FLOAT32 and dtype != _FLOAT64:
                raise _refused_dtype(name, dtype)
            if not views:
                first_name, first, first_dtype = name, framework, dtype
            elif framework is not first:
                raise _mixed(name, framework, first_name, first)
            elif dtype != first_dtype:
                hint = "nothing is cast in silence: convert one of them first"
                raise DtypeError(name, f"{first_dtype}, the dtype of {first_name}", str(dtype), hint)
        elif framework is not NUMPY and framework is not first:
            raise _mixed(name, framework, first_name, first)
        # A field of a packed record can lie at addresses that the kernel's loads do not allow.
        views.append(view if view.flags.aligned else view.copy())
    return views, first.restore


def integers(name: str, value: AnyArray) -> Integers:
    """Whole numbers (token ids, classes) as an int64 array; lists, NumPy, torch and JAX arrays are taken.

    Raises:
        DtypeError: ``value`` does not hold integers that fit into int64.
    """
    view = _listed(name, value)
    if isinstance(value, list | tuple | range) and view.size == 0:
        view = view.astype(np.int64)
    if view.dtype.kind not in "iu" or (
        view.dtype == np.uint64 and view.size and view.max() > np.iinfo(np.int64).max
    ):
        raise DtypeError(name, "integers", str(view.dtype), "pass the ids themselves, as in [101, 2009, 102]")
    return view.astype(np.int64, copy=False)


def numbers(name: str, value: AnyArray) -> Floats:
    """A few real numbers (slopes, logits, factors) as float64; lists, NumPy, torch and JAX arrays are taken.

    Raises:
        DtypeError: ``value`` does not hold numbers.
        HeadwiseError: one of them is not finite.
    """
    view = _listed(name, value)
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


def _listed(name: str, value: AnyArray) -> Array:
    """A list, or an array of any library, as NumPy sees it."""
    if not isinstance(value, list | tuple | range):
        return _view(name, value)[0]
    try:
        return np.asarray(value)
    except ValueError:  # rows of unlike lengths
        raise DtypeError(
            name, "rows of one length", "rows of unlike lengths", "pad them to one length"
        ) from None


def _view(name: str, array: AnyArray) -> tuple[Array, Framework]:
    """The array as NumPy sees it, and whose it is."""
    for framework in FRAMEWORKS:
        if framework.owns(array):
            view = framework.view(name, array)
            break
    else:
        view, framework = _view_of_other(name, array), NUMPY
    if view.dtype.char not in "fd?" and view.dtype.name in HALF:
        raise half(name, view.dtype.name, framework)
    return view, framework


def _view_of_other(name: str, array: AnyArray) -> Array:
    """Anything else that speaks DLPack or has a buffer; its results come back as NumPy arrays."""
    dtype = "bool" if name == "attn_mask" else "np.float32"
    try:
        if hasattr(array, "__dlpack__"):
            device_type, device_id = array.__dlpack_device__()
            if device_type != 1:
                received = (
                    f"{type(array).__name__} on DLPack device type {int(device_type)}, number {device_id}"
                )
                raise elsewhere(name, received, "copy it to the CPU first")
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
    if dtype.name in HALF:
        return half(name, dtype.name, NUMPY)
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


def _mixed(name: str, framework: Framework, first_name: str, first: Framework) -> DtypeError:
    expected = f"{first.words}, as {first_name} is"
    return DtypeError(name, expected, framework.words, first.convert.format(name))
