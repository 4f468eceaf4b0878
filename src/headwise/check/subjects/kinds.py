"""The kinds of array that a function is asked with: there and back, gradients, and whose a function is.

The only file of the checker that imports frameworks, each when a function needs it.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import CellType, CodeType, ModuleType

import numpy as np

from headwise.plain.frameworks import Framework, Jax, NumPy, Torch
from headwise.plain.types import AnyArray, Array, Floats

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # roundoff


class Kind(Framework):
    """A library as the checker asks with its arrays. NumPy's way stands here; others say what is different.

    Attributes:
        strides: ways in which the same numbers can lie at other addresses.
        differentiates: it has gradients.
        compiles: every shape anew, for about a second.
    """

    strides: tuple[str, ...] = ("transposed", "reversed", "spread", "read-only")
    differentiates, compiles = True, False

    def dtypes(self) -> tuple[str, ...]:
        """What attention may be asked in, the finest first."""
        return "float64", "float32", "float16", "bfloat16"

    def put(self, array: Array, dtype: str) -> AnyArray:
        """The array as one of this kind; booleans stay booleans, numbers become ``dtype``."""
        return array.copy() if array.dtype == np.bool_ else array.astype(dtype)

    def stack(self, arrays: list[AnyArray]) -> AnyArray:
        """Along a new first axis."""
        return np.stack(arrays)

    def strided(self, array: AnyArray, how: str) -> AnyArray:
        """The same numbers at other addresses, one of ``strides``."""
        if how == "transposed":
            return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
        if how == "reversed":
            return np.ascontiguousarray(array[..., ::-1, :])[..., ::-1, :]
        if how == "spread":
            return _spread(array, np.zeros)
        copy = array.copy()
        copy.flags.writeable = False
        return copy

    def gradients(
        self, call: Callable[..., AnyArray], arrays: Sequence[AnyArray], weight: Array
    ) -> list[Floats | None]:
        """Gradients of sum(weight * call(*arrays)) with respect to the arrays; None where none arrives."""
        raise TypeError(f"{type(self).__name__} has no gradients")


class _NumPy(Kind, NumPy):
    differentiates = False

    def dtypes(self) -> tuple[str, ...]:
        return "float64", "float32", "float16"


class _Torch(Kind, Torch):
    strides = ("transposed", "spread")

    def put(self, array: Array, dtype: str) -> AnyArray:
        import torch

        tensor = torch.tensor(np.ascontiguousarray(array))  # a copy: the function may write to it
        return tensor if array.dtype == np.bool_ else tensor.to(getattr(torch, dtype))

    def stack(self, arrays: list[AnyArray]) -> AnyArray:
        return sys.modules["torch"].stack(arrays)

    def strided(self, array: AnyArray, how: str) -> AnyArray:
        import torch

        if how == "transposed":
            return array.transpose(-1, -2).contiguous().transpose(-1, -2)
        return _spread(array, torch.zeros)

    def gradients(
        self, call: Callable[..., AnyArray], arrays: Sequence[AnyArray], weight: Array
    ) -> list[Floats | None]:
        import torch

        leaves = [array.detach().clone().requires_grad_() for array in arrays]
        with torch.enable_grad():
            output = call(*leaves)
            if not output.requires_grad:
                return [None for _ in leaves]
            loss = (output * self.put(weight, dtype_of(output))).sum()
            made = torch.autograd.grad(loss, leaves, allow_unused=True)
        return [None if gradient is None else take(gradient) for gradient in made]


class _Jax(Kind, Jax):
    strides = ()
    compiles = True

    def dtypes(self) -> tuple[str, ...]:
        import jax

        return super().dtypes()[0 if jax.config.read("jax_enable_x64") else 1 :]

    def put(self, array: Array, dtype: str) -> AnyArray:
        import jax.numpy as jnp

        return jnp.array(array if array.dtype == np.bool_ else array.astype(getattr(jnp, dtype)))

    def stack(self, arrays: list[AnyArray]) -> AnyArray:
        return sys.modules["jax"].numpy.stack(arrays)

    def gradients(
        self, call: Callable[..., AnyArray], arrays: Sequence[AnyArray], weight: Array
    ) -> list[Floats | None]:
        import jax

        factor = self.put(weight, dtype_of(arrays[0]))
        every = tuple(range(len(arrays)))
        derivative = jax.grad(lambda *leaves: (call(*leaves) * factor).sum(), argnums=every)
        try:
            made = jax.jit(derivative)(*arrays)  # one compilation in the place of one for every operation
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # it looks at the numbers
            made = derivative(*arrays)
        return [take(gradient) for gradient in made]


KINDS: dict[str, Kind] = {kind.kind: kind for kind in (_NumPy(), _Torch(), _Jax())}


def installed(kind: str) -> bool:
    return kind in sys.modules or importlib.util.find_spec(kind) is not None


def kind_of(array: object) -> Kind | None:
    """Whose array it is; None for anything else."""
    return next((kind for kind in KINDS.values() if kind.owns(array)), None)


def take(array: AnyArray) -> Array:
    """A NumPy copy, float64 for numbers."""
    if isinstance(kind_of(array), Torch):
        array = array.detach().cpu()
        array = array.numpy() if dtype_of(array) == "bool" else array.double().numpy()
    view = np.asarray(array)
    return view.copy() if view.dtype == np.bool_ else view.astype(np.float64)


def dtype_of(array: AnyArray) -> str:
    return str(array.dtype).removeprefix("torch.")


def _spread(array: AnyArray, zeros: Callable[..., AnyArray]) -> AnyArray:
    wide = zeros((*array.shape[:-1], 2 * array.shape[-1]), dtype=array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def kinds_for(fn: object) -> list[str]:
    """The kinds of array to try, the likeliest first: those that the function's code names, or else all."""
    roots = _roots(fn)
    likely: list[str] = [kind for kind in ("torch", "jax") if kind in roots]
    if "numpy" in roots:
        likely.append("numpy")
    return likely or [kind for kind in KINDS if installed(kind)]


def _roots(fn: object) -> set[str]:
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
        if home.split(".")[0] in KINDS:
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


def _content(cell: CellType) -> object:
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
