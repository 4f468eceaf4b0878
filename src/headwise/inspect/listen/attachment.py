"""One model under observation: its modules, what an observer is shown, and what has to be put back."""

import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from headwise.errors import CapabilityError
from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen.output import ensure_output, fuse

CROSS = re.compile(r"cross|encoder_attn|encdec|enc_dec", re.IGNORECASE)


HALF = (torch.float16, torch.bfloat16)


Observer = Callable[[AttentionCall], None]


@dataclass(frozen=True)
class Seams:
    """Where to listen. An id of a set is that of an object of the model.

    Attributes:
        registry: configs whose attention goes through transformers' registry; None: all.
        sdpa: whether calls of torch's ``scaled_dot_product_attention`` are heard.
        softmax: whether a softmax inside a module named attention is heard.
        not_softmax: modules in which a softmax is not that of the attention weights.
    """

    registry: frozenset[int] | None = frozenset()
    sdpa: bool = False
    softmax: bool = False
    not_softmax: frozenset[int] = frozenset()


REGISTRY = Seams(registry=None)


@dataclass(eq=False)
class Attachment:
    """One model under observation. The modules are held, so that an id cannot be reused meanwhile.

    Attributes:
        model: the model.
        names: id of a module -> its qualified name and itself.
        observe: what every call is shown to.
        compute: who computes the model's output, "torch" or "kernel".
        seams: where to listen.
        inside: True while a call is computed; what it calls in turn is not another one.
        heard: seam -> ids of the modules that called there.
        put_back: what is to be undone at the end.
    """

    model: torch.nn.Module
    names: dict[int, tuple[str, torch.nn.Module]]
    observe: Observer
    compute: str
    seams: Seams
    inside: bool = False
    heard: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # seam -> modules
    put_back: ExitStack = field(default_factory=ExitStack)
    _layers: dict[tuple[int, int], int] = field(
        default_factory=dict
    )  # (module, n-th call in a pass) -> layer
    _rows: dict[int, int] = field(default_factory=dict)  # layer -> query rows so far
    _in_pass: dict[int, int] = field(default_factory=dict)  # module -> calls in this pass
    _last: tuple[int, "_Trace", "_Trace", dict[str, Any]] | None = None  # module, query, key and options

    def new_pass(self, *_: Any) -> None:
        """The model starts again: the next call of a module is its first one."""
        self._in_pass.clear()
        self._last = None

    def name(self, module: torch.nn.Module) -> str:
        """Qualified name of a module of the model."""
        found = self.names.get(id(module))
        return type(module).__name__ if found is None else found[0] or type(module).__name__

    def is_cross(self, module: torch.nn.Module) -> bool:
        """Whether an attention module looks at another sequence, by its own word or by its name."""
        parts = self.name(module).split(".")
        if getattr(module, "is_cross_attention", False) or CROSS.search(".".join(parts[-2:])):
            return True
        around = self._by_name.get(".".join(parts[:-1]))
        return isinstance(around, torch.nn.TransformerDecoderLayer) and parts[-1] == "multihead_attn"

    @cached_property
    def _by_name(self) -> dict[str, torch.nn.Module]:
        return dict(self.names.values())

    def hear(
        self,
        module: torch.nn.Module,
        tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None],
        options: dict[str, Any],
        kind: str,
        compute_output: Callable[[], torch.Tensor | None],
    ) -> torch.Tensor | None:
        """Show one call to the observer and give the model its output.

        A module that calls attention once more with the same query, key and options has the same weights, on
        other values (DiffLlama): that is no other attention, and not shown again.

        Args:
            module: where the call was made.
            tensors: query (B, H, n_q, d_k), key (B, H_kv, n_k, d_k), value (B, H_kv, n_k, d_v) or None.
            options, kind: as in ``AttentionCall``.
            compute_output: the model's own way to (B, H, n_q, d_v); None where the model does that itself.

        Raises:
            CapabilityError: the tensors lie where, or are what, the statistics are not computed for.
        """
        where = self.name(module)
        query, key, value = tensors
        _check(where, query, key)
        if value is not None and self._is_repeated(module, query, key, options):
            return self._inside(compute_output)
        count = self._in_pass[id(module)] = self._in_pass.get(id(module), 0) + 1
        layer = self._layers.setdefault((id(module), count), len(self._layers))
        first_row = self._rows.get(layer, 0)
        self._rows[layer] = first_row + query.shape[2]
        call = AttentionCall(
            layer=layer,
            name=where if count == 1 else f"{where} (call {count})",
            kind=kind,
            first_row=first_row,
            query=shown(query),
            key=shown(key),
            value=None if value is None else shown(value),
            options=options,
        )
        return self._inside(lambda: self._show(call, compute_output))

    def _show(
        self, call: AttentionCall, compute_output: Callable[[], torch.Tensor | None]
    ) -> torch.Tensor | None:
        if self.compute == "torch" or call.value is None:
            output = compute_output()
            call.output = None if output is None else shown(output)
            self.observe(call)
            return output
        fuse(call)
        self.observe(call)
        return ensure_output(call)

    def _is_repeated(
        self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, options: dict[str, Any]
    ) -> bool:
        last, self._last = self._last, (id(module), _Trace(query), _Trace(key), options)
        return (
            last is not None
            and last[0] == id(module)
            and last[1].shows(query)
            and last[2].shows(key)
            and _equal(last[3], options)
        )

    def _inside(self, compute: Callable[[], torch.Tensor | None]) -> torch.Tensor | None:
        """Run what may call attention in turn without hearing that."""
        before, self.inside = self.inside, True
        try:
            return compute()
        finally:
            self.inside = before


class _Trace:
    """Where the numbers of a tensor lay. Its memory is not held: the model decides how long that lives."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.storage = StorageWeakRef(tensor.untyped_storage())
        self.place = _place(tensor)

    def shows(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a view of the same numbers: the same memory, never freed nor written since."""
        return not self.storage.expired() and _place(tensor) == self.place


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    written = None if tensor.is_inference() else tensor._version
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, written


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, torch.Tensor):
        return one is other or torch.equal(one, other)
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray) else bool(one == other)


def shown(tensor: torch.Tensor) -> torch.Tensor:
    """What an observer gets: the tensor itself without gradient; in half precision a copy in float32."""
    tensor = tensor.detach()
    return tensor.float() if tensor.dtype in HALF else tensor


def hidden_out(added: torch.Tensor) -> torch.Tensor:
    """A floating mask with -inf where it hides: models write the lowest number of their type there."""
    added = shown(added)
    hides = added <= torch.finfo(torch.float16).min / 2 if added.is_floating_point() else None
    return added if hides is None or not bool(hides.any()) else added.masked_fill(hides, -torch.inf)


def _check(where: str, query: torch.Tensor, key: torch.Tensor) -> None:
    if query.device.type != "cpu":
        raise CapabilityError("model", "a model on the CPU", f"{where} on {query.device}", "model.to('cpu')")
    if query.dtype not in (torch.float32, torch.float64, *HALF):
        raise CapabilityError("model", "floating tensors", f"{where} in {query.dtype}", "model.float()")
    if query.dim() != 4 or key.dim() != 4 or query.shape[0] != key.shape[0]:
        sizes = f"{where} with query {tuple(query.shape)} and key {tuple(key.shape)}"
        raise CapabilityError("model", "queries and keys of shape (batch, heads, tokens, width)", sizes)
