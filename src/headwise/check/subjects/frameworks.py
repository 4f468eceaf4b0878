"""NumPy, torch and JAX under one hat: arrays there and back, whose a function is, gradients.

The only file of the checker that knows frameworks. A framework is imported when a function needs it.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import CodeType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def installed(kind: str) -> bool:
    return kind == "numpy" or kind in sys.modules or importlib.util.find_spec(kind) is not None


def kind_of(array: Any) -> str | None:
    """ "numpy", "torch", "jax", or None for anything else."""
    if isinstance(array, np.ndarray | np.generic):
        return "numpy"
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(array, torch.Tensor):
        return "torch"
    if jax is not None and isinstance(array, jax.Array):
        return "jax"
    return None


def put(array: Array, kind: str, dtype: str) -> Any:
    """The array as one of that kind; booleans stay booleans, numbers become ``dtype``."""
    is_bool = array.dtype == np.bool_
    if kind == "torch":
        import torch

        tensor = torch.tensor(np.ascontiguousarray(array))  # a copy: the function may write to it
        return tensor if is_bool else tensor.to(getattr(torch, dtype))
    if kind == "jax":
        import jax.numpy as jnp

        return jnp.array(array if is_bool else array.astype(getattr(jnp, dtype)))
    return array.copy() if is_bool else array.astype(dtype)


def take(array: Any) -> Array:
    """A NumPy copy, float64 for numbers."""
    kind = kind_of(array)
    if kind == "torch":
        array = array.detach().cpu()
        array = array.numpy() if str(array.dtype) == "torch.bool" else array.double().numpy()
    view = np.asarray(array)
    return view.copy() if view.dtype == np.bool_ else view.astype(np.float64)


def stack(arrays: list[Any]) -> Any:
    """Arrays of one kind along a new first axis."""
    kind = kind_of(arrays[0])
    if kind == "torch":
        return sys.modules["torch"].stack(arrays)
    return sys.modules["jax"].numpy.stack(arrays) if kind == "jax" else np.stack(arrays)


def dtype_of(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def dtypes(kind: str) -> tuple[str, ...]:
    """What attention may be asked in, the finest first."""
    if kind == "torch":
        return "float64", "float32", "float16", "bfloat16"
    if kind == "jax":
        import jax

        wide = ("float64",) if jax.config.read("jax_enable_x64") else ()
        return (*wide, "float32", "float16", "bfloat16")
    return "float64", "float32", "float16"


def unit(dtype: str) -> float:
    """Unit roundoff."""
    return {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]


def kinds_for(fn: Any) -> list[str]:
    """The kinds of array to try, the likeliest first: those that the function's code names, or else all."""
    roots = _roots(fn)
    likely: list[str] = [kind for kind in ("torch", "jax") if kind in roots]
    if "numpy" in roots:
        likely.append("numpy")
    return likely or [kind for kind in ("numpy", "torch", "jax") if installed(kind)]


def _roots(fn: Any) -> set[str]:
    """Top-level packages of the function itself and of what it names, helpers of its own module included."""
    found: set[str] = set()
    pending, seen = [fn], set()
    while pending:
        one = pending.pop()
        one = getattr(one, "__wrapped__", one)
        one = getattr(one, "func", one)  # functools.partial
        one = getattr(one, "__func__", one)
        if id(one) in seen:
            continue
        seen.add(id(one))
        home = getattr(one, "__module__", None) or ""
        if home.split(".")[0] in ("torch", "jax", "numpy"):
            found.add(home.split(".")[0])
        if not hasattr(one, "__code__") and not isinstance(one, ModuleType | type):
            one = vars(type(one)).get("__call__", one)  # an object that is called like a function
        code = getattr(one, "__code__", None)
        if code is None:
            continue
        scope = getattr(one, "__globals__", {})
        closure = dict(zip(code.co_freevars, getattr(one, "__closure__", None) or (), strict=False))
        for name in _names(code):
            value = scope.get(name)
            if name in closure:
                value = _content(closure[name])
            if isinstance(value, ModuleType):
                found.add(value.__name__.split(".")[0])
            elif callable(value):
                pending.append(value)
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _names(code: CodeType) -> set[str]:
    names = {*code.co_names, *code.co_freevars}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def gradients(
    kind: str, call: Callable[..., Any], arrays: Sequence[Any], weight: Array
) -> list[Array | None]:
    """Gradients of sum(weight * call(*arrays)) with respect to the arrays; None where none arrives."""
    if kind == "torch":
        import torch

        leaves = [array.detach().clone().requires_grad_() for array in arrays]
        with torch.enable_grad():
            output = call(*leaves)
            if not output.requires_grad:
                return [None for _ in leaves]
            made = torch.autograd.grad(
                (output * put(weight, kind, dtype_of(output))).sum(), leaves, allow_unused=True
            )
        return [None if gradient is None else take(gradient) for gradient in made]
    import jax

    factor = put(weight, kind, dtype_of(arrays[0]))
    derivative = jax.grad(lambda *leaves: (call(*leaves) * factor).sum(), argnums=tuple(range(len(arrays))))
    try:
        made = jax.jit(derivative)(*arrays)  # one compilation in the place of one for every operation
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # it looks at the numbers
        made = derivative(*arrays)
    return [take(gradient) for gradient in made]


def strided(array: Any, kind: str, how: str) -> Any:
    """The same numbers at other addresses: "transposed", "reversed", "spread" or "read-only"."""
    if kind == "torch":
        import torch

        if how == "transposed":
            return array.transpose(-1, -2).contiguous().transpose(-1, -2)
        wide = torch.zeros((*array.shape[:-1], 2 * array.shape[-1]), dtype=array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    if how == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "reversed":
        return np.ascontiguousarray(array[..., ::-1, :])[..., ::-1, :]
    if how == "spread":
        wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
        wide[..., ::2] = array
        return wide[..., ::2]
    copy = array.copy()
    copy.flags.writeable = False
    return copy
