"""The function under test: called on a case, its answer brought back to float64 (B, H, n_q, d_v)."""

import contextlib
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from headwise.check.cases.case import Case
from headwise.check.cases.chain import RIGHT, Chain
from headwise.check.cases.layer_case import LayerCase, LayerFault
from headwise.check.subjects.contract import Contract
from headwise.check.subjects.kinds import KINDS, Kind, dtype_of, kind_of, take
from headwise.check.subjects.signature import caller, convert, fill, lay, signature_of, unlay
from headwise.plain.types import AnyArray, Array

TIME_LIMIT = 10.0  # seconds for one call
_IN_EVERY_CALL = frozenset({"window", "softcap", "rope"})  # there is no number that leaves them out
HANGS = "no answer in time"


class NoAnswer(Exception):
    """The function gave nothing that can be judged.

    Attributes:
        what: in words.
        where: file and line of the function's own code, "" where unknown.
        kind: "raised", "output" or "hangs".
        arguments: its parameters are others than those that were passed.
    """

    def __init__(self, what: str, where: str = "", kind: str = "output") -> None:
        super().__init__(what)
        self.what, self.where, self.kind = what, where, kind
        self.arguments = False


class _TimeUp(BaseException):
    pass


@dataclass(frozen=True)
class Answer:
    """What one call gave.

    Attributes:
        output: float64, (B, H, n_q, d_v), or (B, n, d_out) of a layer.
        dtype, kind: of the array that the function returned.
    """

    output: Array
    dtype: str
    kind: str


@dataclass
class Subject:
    """The function, how it is called, and what is already known about it.

    Attributes:
        kind, layout, dtype: of the arrays that it is given.
        base, mistake: the chain with the mistakes in it that were already named, and that of the layer.
        named: where each of them was named, fault key -> rule.
        unexplained: the first rule on values that failed without a chain that gives the same numbers.
        layers: makes the cases of a layer whose weights are its own.
    """

    fn: Any
    contract: Contract
    seed: int = 0
    kind: str = "numpy"
    layout: str = "bhnd"
    dtype: str = "float64"
    base: Chain = RIGHT
    time_limit: float = TIME_LIMIT
    mistake: LayerFault | None = None
    layers: Callable[[np.random.Generator, int], LayerCase] | None = None
    unexplained: str = ""

    def __post_init__(self) -> None:
        self.named: dict[str, str] = {}
        self.signature = signature_of(self.fn)
        if self.contract.call is None:  # what has no default is in every call
            needed = self.signature.required & _IN_EVERY_CALL
            self.contract = self.contract.but(always=frozenset(self.contract.always) | needed)
        self.call = caller(self.fn, self.contract, self.signature)
        given = self.contract.features
        self.declared = self.signature.features if given is None else frozenset(given)
        self.declared |= frozenset(self.contract.always)
        self.promise = self.contract.but(features=self.declared)
        self.changed: set[str] = set()
        self.remarks: set[str] = set()

    @property
    def framework(self) -> Kind:
        return KINDS[self.kind]

    @property
    def few_shapes(self) -> bool:
        """JAX compiles every shape anew, for about a second: a right answer is asked for in one shape."""
        return self.framework.compiles

    def random(self, name: str, again: int = 0) -> np.random.Generator:
        """Fresh numbers for a rule; the same ones for the same seed."""
        return np.random.default_rng([self.seed, again, *name.encode()])

    def run(self, case: "Case | LayerCase", dtype: str | None = None, stride: str | None = None) -> Answer:
        """One call. Raises `NoAnswer`."""
        dtype = self.dtype if dtype is None else dtype
        if isinstance(case, LayerCase):
            ready: list[Case | LayerCall] = [self._layer(case, dtype)]
        else:
            means = self.contract.mask_means
            needed = self.signature.required if self.contract.call is None else frozenset()
            parts = lay(fill(case, needed), self.layout)
            ready = [convert(part, self.kind, dtype, means) for part in parts]
            if stride is not None:
                names = ("query", "key", "value")
                ready = [
                    replace(one, **{n: self.framework.strided(getattr(one, n), stride) for n in names})
                    for one in ready
                ]
        before = [self._copies(one) for one in ready]
        found = [self._one(one) for one in ready]
        changed = {
            name
            for one, copies in zip(ready, before, strict=True)
            for name, copy in copies.items()
            if not np.array_equal(take(getattr(one, name)), copy, equal_nan=True)
        }
        arrays, remark = [array for array, _ in found], found[0][1]
        output, kind = [_numbers(array) for array in arrays], kind_of(arrays[0])
        assert kind is not None
        if isinstance(case, Case):
            try:
                output = [unlay(output, case, self.layout)]
            except ValueError:
                raise NoAnswer(f"the output has shape {tuple(arrays[0].shape)}") from None
        self.changed |= changed
        if remark:
            self.remarks.add(remark)
        return Answer(output[0], dtype_of(arrays[0]), kind.kind)

    def _one(self, case: "Case | LayerCall") -> tuple[AnyArray, str]:
        """The array that one call returns, and how it was found."""
        with self.calm():
            found = self.call(case)
        if isinstance(found, tuple | list):
            if not found or kind_of(found[0]) is None:
                first = f" of {type(found[0]).__name__}" if found else " of nothing"
                raise NoAnswer(f"returns a {type(found).__name__}{first}, not an array")
            said = f"returns a {type(found).__name__} of {len(found)}; its first item is judged"
            return found[0], said
        if kind_of(found) is None:
            raise NoAnswer(f"returns {_a(found)}, not an array")
        return found, ""

    @contextlib.contextmanager
    def calm(self) -> Iterator[None]:
        """What the function raises becomes `NoAnswer`, warnings are dropped, and time is limited."""
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings(), _limited(self.time_limit):
                warnings.simplefilter("ignore")
                yield
        except _TimeUp:
            raise NoAnswer(f"gives no answer within {self.time_limit:g} s", kind="hangs") from None
        except NoAnswer:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit, and classes of the function's own
            said = _said(error)
            refusal = NoAnswer("", _line_of(error), "raised")
            refusal.arguments = isinstance(error, TypeError) and "argument" in said and not refusal.where
            said = said if len(said) <= 160 else said[:159] + "\u2026"
            refusal.what = f"raises {type(error).__name__}: {said}"
            raise refusal from None

    def _layer(self, case: LayerCase, dtype: str) -> "LayerCall":
        """The layer's case in arrays of its kind, its masks in its convention."""
        inner = convert(
            Case(case.x, case.x, case.x, **case.options), self.kind, dtype, self.contract.mask_means
        )
        arrays = {
            field.name: self.framework.put(getattr(case, field.name), dtype)
            for field in fields(case)
            if isinstance(getattr(case, field.name), np.ndarray)
        }
        fused = {name: self.framework.put(value, dtype) for name, value in _fused(case).items()}
        options = {name: getattr(inner, name) for name in case.options}
        return LayerCall(**{**_plain(case), **arrays, **fused, "options": options})

    @staticmethod
    def _copies(case: "Case | LayerCall") -> dict[str, Array]:
        names = ("query", "key", "value", "mask", "padding", "bias", "past_key", "past_value", "x")
        present = {name: getattr(case, name, None) for name in names}
        return {name: take(array) for name, array in present.items() if array is not None}


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A `LayerCase` as a function gets it: ``x``, the weights one by one and fused (``w_in``, ``b_in``)."""

    x: AnyArray
    context: AnyArray
    w_q: AnyArray
    w_k: AnyArray
    w_v: AnyArray
    b_q: AnyArray
    b_k: AnyArray
    b_v: AnyArray
    w_in: AnyArray
    b_in: AnyArray
    w_out: AnyArray
    b_out: AnyArray
    num_heads: int
    num_kv_heads: int
    options: Mapping[str, Any]

    @property
    def mask(self) -> AnyArray:
        return self.options.get("mask")

    @property
    def padding(self) -> AnyArray:
        return self.options.get("padding")

    @property
    def is_causal(self) -> bool:
        return bool(self.options.get("is_causal", False))


def _plain(case: LayerCase) -> dict[str, Any]:
    names = [field.name for field in fields(case) if field.name != "options"]
    return {**{name: getattr(case, name) for name in names}, "w_in": None, "b_in": None}


def _fused(case: LayerCase) -> dict[str, Array]:
    fused = {"w_in": case.w_in}
    if all(bias is not None for bias in (case.b_q, case.b_k, case.b_v)):
        fused["b_in"] = case.b_in
    return fused


def _a(found: object) -> str:
    return "None" if found is None else f"an object of type {type(found).__name__}"


def _numbers(array: AnyArray) -> Array:
    """Real numbers, in float64. Raises `NoAnswer` where they are none."""
    dtype = dtype_of(array)
    if dtype.startswith(("float", "bfloat", "int", "uint", "bool", "object")):
        try:
            return take(array)
        except (TypeError, ValueError):  # words, or objects
            pass
    raise NoAnswer(f"returns an array of {dtype}, not of real numbers")


def _said(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())
    except Exception:
        return "(its message cannot be shown)"


def _line_of(error: BaseException) -> str:
    """The deepest line that is neither ours nor a library's."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        inside = "site-packages" in frame.filename or "/headwise/" in frame.filename.replace("\\", "/")
        if not inside and not frame.filename.startswith("<"):
            place = f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"
    return place


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Interrupts the block after that time; only in the main thread, and where the system has signals."""
    alarm = getattr(signal, "SIGALRM", None)
    if not seconds or alarm is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise _TimeUp

    before: Callable[..., Any] | int | None = signal.signal(alarm, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(alarm, before)
