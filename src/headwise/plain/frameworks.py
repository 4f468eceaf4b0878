"""The libraries whose arrays are taken: NumPy, and torch and JAX as guests.

A guest is looked up in ``sys.modules``, because a library that was never imported cannot own the array.
"""

import sys
from abc import ABC, abstractmethod

import numpy as np

from headwise.errors import CapabilityError, DtypeError
from headwise.plain.types import AnyArray, Array

HALF = ("float16", "bfloat16")


class Framework(ABC):
    """One library, as its arrays come in and go out.

    Attributes:
        kind, title: its name as a module and as people write it.
        words: one of its arrays.
        convert: code that makes an array one of this kind.
        widen: code that makes one in half precision float32.
    """

    kind = title = words = convert = ""
    widen = "{}.astype(np.float32)"

    @abstractmethod
    def owns(self, array: object) -> bool:
        """Whether the array is one of this library."""

    @abstractmethod
    def view(self, name: str, array: AnyArray) -> Array:
        """The array as NumPy sees it, in the caller's own memory.

        Raises:
            DtypeError: not in the CPU's memory, or not an array of numbers.
            CapabilityError: a tensor that records gradients, a traced array.
        """

    @abstractmethod
    def restore(self, array: Array) -> AnyArray:
        """A result as an array of this library."""


class NumPy(Framework):
    kind, title, words, convert = "numpy", "NumPy", "a NumPy array", "np.asarray({})"

    def owns(self, array: object) -> bool:
        return isinstance(array, np.ndarray | np.generic)

    def view(self, name: str, array: AnyArray) -> Array:
        if isinstance(array, np.ma.MaskedArray):
            hint = "pass array.data, and ~array.mask as attn_mask"
            raise DtypeError(name, "a plain array", "a NumPy masked array", hint)
        return np.asarray(array)

    def restore(self, array: Array) -> AnyArray:
        return array


class Torch(Framework):
    kind, title, words, convert = "torch", "torch", "a torch tensor", "torch.from_dlpack({})"
    widen = "{}.float()"

    def owns(self, array: object) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(array, torch.Tensor)

    def view(self, name: str, array: AnyArray) -> Array:
        torch = sys.modules["torch"]
        if not array.is_cpu:
            raise elsewhere(name, f"a torch tensor on {array.device}", f"{name}.cpu()")
        if array.requires_grad:
            if torch.is_grad_enabled():
                expected = "a tensor that records no gradient"
                hint = f"headwise.torch.attention records gradients; {name}.detach() records none"
                raise CapabilityError(name, expected, "requires_grad=True while gradients are recorded", hint)
            array = array.detach()
        try:
            view: Array = array.numpy()
            return view
        except (RuntimeError, TypeError) as refusal:
            if array.dtype is torch.bfloat16:
                raise half(name, "bfloat16", self) from None
            if array.layout is not torch.strided:
                hint = f"{name}.to_dense()"
                raise DtypeError(name, "a dense tensor", f"layout {array.layout}", hint) from None
            received = f"{type(array).__name__} ({refusal})"
            hint = "call it outside torch.vmap, torch.func and torch.compile"
            raise CapabilityError(name, "a plain torch tensor", received, hint) from None

    def restore(self, array: Array) -> AnyArray:
        return sys.modules["torch"].from_numpy(array)


class Jax(Framework):
    kind, title, words, convert = "jax", "JAX", "a JAX array", "jnp.from_dlpack({})"

    def owns(self, array: object) -> bool:
        jax = sys.modules.get("jax")
        return jax is not None and isinstance(array, jax.Array)

    def view(self, name: str, array: AnyArray) -> Array:
        jax = sys.modules["jax"]
        if isinstance(array, jax.core.Tracer):
            expected = "a JAX array with values (traced arrays are not yet served)"
            hint = "call it outside jax.jit, jax.grad and jax.vmap"
            raise CapabilityError(name, expected, f"a {type(array).__name__}", hint)
        devices = sorted({str(device.platform) for device in array.devices()})
        if devices != ["cpu"]:
            hint = f"jax.device_put({name}, jax.devices('cpu')[0])"
            raise elsewhere(name, f"a JAX array on {', '.join(devices)}", hint)
        if array.dtype == np.float64 and not jax.config.jax_enable_x64:
            expected = "float32, as long as JAX keeps results in 32 bits"
            hint = "jax.config.update('jax_enable_x64', True), so that the result can be float64 too"
            raise DtypeError(name, expected, "float64", hint)
        try:
            return np.asarray(array)
        except TypeError:  # such as random keys
            expected = "float32 or float64"
            raise DtypeError(name, expected, str(array.dtype), "pass an array of numbers") from None

    def restore(self, array: Array) -> AnyArray:
        # JAX narrows int64 to its own default integer unless 64-bit types are switched on there.
        return sys.modules["jax"].numpy.asarray(array)


NUMPY: Framework = NumPy()
FRAMEWORKS: tuple[Framework, ...] = (Torch(), NUMPY, Jax())


def half(name: str, dtype: str, framework: Framework) -> CapabilityError:
    expected = "float32 or float64 (half precision is not yet served)"
    return CapabilityError(name, expected, dtype, framework.widen.format(name))


def elsewhere(name: str, received: str, hint: str) -> DtypeError:
    return DtypeError(name, "an array in the CPU's memory", received, hint)
