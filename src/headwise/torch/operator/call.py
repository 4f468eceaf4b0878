"""One call as the operator sees it: tensors and plain values, and the way back to a checked problem."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.compute.problem import Problem, build_problem
from headwise.compute.request import AuxRequest, answer_axes, answers_to
from headwise.errors import CapabilityError, DtypeError, HeadwiseError
from headwise.plain.types import Array
from headwise.torch.tiled.tiles import Extras, Tiles

ASKED = ("statistics", "top_k", "sink_mass", "relative", "pooled")
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Call:
    """Arguments of ``headwise::attend``, whose signature is made of these fields, tensors first, and of them
    what takes part in gradients; :meth:`check` and :meth:`problem` refuse what does not fit."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    attn_bias: Tensor | None = None
    alibi_slopes: Tensor | None = None
    sinks: Tensor | None = None
    query_lengths: Tensor | None = None
    kv_lengths: Tensor | None = None
    query_ids: Tensor | None = None
    key_ids: Tensor | None = None
    query_offsets: Tensor | None = None
    seed: Tensor | None = None
    key_tokens: Tensor | None = None
    query_tokens: Tensor | None = None
    classes: Tensor | None = None
    scale: float | None = None
    is_causal: bool = False
    enable_gqa: bool | None = None
    alignment: str | None = None
    offset: int | None = None
    window_left: int | None = None
    window_right: int | None = None
    softcap: float | None = None
    dropout_p: float = 0.0
    statistics: str = ""
    top_k: int = 0
    sink_mass: int = 0
    relative: tuple[int, ...] = ()
    pooled: int = 0
    class_count: int = 0
    implementation: str = "auto"
    num_threads: int | None = None

    def request(self) -> AuxRequest:
        """What is asked for, and the log-sum-exp in any case."""
        keys, queries, classes = (
            None if ids is None else ids.detach().cpu().numpy()
            for ids in (self.key_tokens, self.query_tokens, self.classes)
        )
        flags = {name: True for name in self.statistics.split(",") if name}
        return AuxRequest(
            **{**flags, "lse": True},
            top_k=self.top_k,
            sink_mass=self.sink_mass,
            relative=tuple(self.relative),
            matches=keys if queries is None else (keys, queries),
            classes=classes,
            pooled=self.pooled,
        )

    def problem(self, request: AuxRequest | None = None) -> Problem:
        """The checked problem. On the CPU it views the tensors' memory; elsewhere only their shapes count.

        Args:
            request: the statistics; None means those that the call names.

        Raises:
            ShapeError, DtypeError, CapabilityError, HeadwiseError: as ``headwise.attention``.
        """
        query = self.query
        ids = self.query_ids if self.key_ids is None else (_host(self.query_ids), _host(self.key_ids))
        problem = build_problem(
            _view(query),
            _view(self.key),
            _view(self.value),
            None if self.attn_mask is None else _view(self.attn_mask),
            self.dropout_p,
            self.is_causal,
            self.scale,
            self.enable_gqa,
            self.alignment,
            self.offset if self.query_offsets is None else _host(self.query_offsets),
            self.request() if request is None else request,
            num_threads=self.num_threads,
            attn_bias=None if self.attn_bias is None else _view(self.attn_bias),
            window_size=None
            if self.window_left is self.window_right is None
            else (self.window_left, self.window_right),
            query_lengths=_host(self.query_lengths),
            kv_lengths=_host(self.kv_lengths),
            segment_ids=_host(ids) if isinstance(ids, Tensor) else ids,
            softcap=self.softcap,
            alibi_slopes=_host(self.alibi_slopes),
            sinks=_host(self.sinks),
            rng=None if self.seed is None else int(self.seed) % 2**64,
        )
        return problem

    def on_kernel(self) -> bool:
        """Does the package's own kernel compute this, or the tiled torch code?

        Raises:
            CapabilityError: the kernel is named, and the tensors are not in its reach.
        """
        if self.implementation == "kernel" and self.query.device.type != "cpu":
            expected = f'"auto" or "torch" for tensors on {self.query.device}'
            hint = "the kernel reads the CPU's memory; .cpu() brings tensors there"
            raise CapabilityError("implementation", expected, '"kernel"', hint)
        return self.implementation != "torch" and self.query.device.type == "cpu"

    def wide(self) -> "Call":
        """Half precision as float32, which holds its numbers exactly; anything else as it is."""
        if self.query.dtype not in HALF:
            return self
        names = ("query", "key", "value", "attn_mask", "attn_bias")
        arrays = {name: getattr(self, name) for name in names}
        wide = {
            name: array.float()
            for name, array in arrays.items()
            if array is not None and array.dtype == self.query.dtype
        }
        return replace(self, **wide)

    def tiles(self, problem: Problem) -> Tiles:
        one = problem.one_head
        query, key, value = (x[None] if one else x for x in (self.query, self.key, self.value))
        return Tiles(
            problem,
            query,
            key,
            value,
            Extras(self.attn_mask, self.attn_bias, self.alibi_slopes, self.sinks),
        )

    def check(self) -> None:
        """Refuse what a problem made of the widened call could not tell any more: dtypes and devices.

        Raises:
            DtypeError, HeadwiseError: with argument, expected, received and a hint.
        """
        query = self.query
        if query.dtype not in FLOATING:
            hint = "nothing is cast in silence: convert query to a floating dtype"
            raise DtypeError("query", "float16, bfloat16, float32 or float64", _named(query.dtype), hint)
        for name in TENSORS[1:]:
            tensor = getattr(self, name)
            if tensor is None:
                continue
            if name in ("key", "value") and tensor.dtype != query.dtype:
                hint = "nothing is cast in silence: convert one of them first"
                expected = f"{_named(query.dtype)}, the dtype of query"
                raise DtypeError(name, expected, _named(tensor.dtype), hint)
            if name in DIFFERENTIABLE[:5] and tensor.device != query.device:
                expected, received = f"a tensor on {query.device}, as query is", f"one on {tensor.device}"
                raise DtypeError(name, expected, received, f"{name}.to(query.device)")
        if self.attn_mask is not None and self.attn_mask.is_floating_point():
            self._check_float("attn_mask", self.attn_mask, "mask")
            if not _visible(self.attn_mask) and only_zeros_and_ones(self.attn_mask):
                expected = "booleans (True = attend) or floats (added to the scores)"
                received = (
                    f"{_named(self.attn_mask.dtype)} with nothing but 0 and 1 in it, which would add 1 and "
                    "hide no key"
                )
                hint = "attn_mask != 0 (.bool() in torch), if 1 means attend; attn_bias= adds any numbers"
                raise HeadwiseError("attn_mask", expected, received, hint)
        if self.attn_bias is not None and self.attn_bias.is_floating_point():
            self._check_float("attn_bias", self.attn_bias, "bias")

    def check_shapes(self) -> None:
        """Refuse what can be refused where some tensors hold no numbers (device "meta").

        Raises:
            ShapeError, DtypeError, CapabilityError, HeadwiseError: as :meth:`check` and :meth:`problem`.
        """
        self.check()
        self.on_kernel()
        if not self.query.is_meta:
            self._refuse_meta()
        later = {name: getattr(self, name) for name in TENSORS[5:]}
        unread: dict[str, Any] = {name: None for name, x in later.items() if x is not None and x.is_meta}
        if "query_offsets" in unread:
            unread["offset"] = 0
        if "query_ids" in unread or "key_ids" in unread:
            unread |= {"query_ids": None, "key_ids": None}
        replace(self, **unread | {"dropout_p": 0.0, "seed": None}).problem()

    def _refuse_meta(self) -> None:
        """A real query beside a tensor without numbers: torch would hand out memory that nobody wrote."""
        names = {"seed": "rng", "query_ids": "segment_ids", "key_ids": "segment_ids"}
        names["query_offsets"] = "query_offset"
        for name in TENSORS:
            tensor = getattr(self, name)
            if tensor is not None and tensor.is_meta:
                name = names.get(name, name)
                expected = f"a tensor that holds numbers, beside a query on {self.query.device}"
                hint = 'made under torch.device("meta")? device="cpu" makes a real one there too'
                raise DtypeError(name, expected, "one on meta", hint)

    def _check_float(self, name: str, tensor: Tensor, what: str) -> None:
        if tensor.dtype != self.query.dtype:
            expected = f"{_named(self.query.dtype)} as query has"
            expected = f"bool, or {expected}" if what == "mask" else expected
            hint = f"nothing is cast in silence: convert the {what} to the dtype of query"
            raise DtypeError(name, expected, _named(tensor.dtype), hint)


TYPES = {part.name: part.type for part in fields(Call)}
TENSORS = tuple(name for name, kind in TYPES.items() if kind in (Tensor, Tensor | None))
DIFFERENTIABLE = TENSORS[:7]  # backward answers for these


def make_call(tensors: Sequence[Tensor | None], values: Mapping[str, Any]) -> Call:
    """The call of these tensors, in the order of ``TENSORS`` (the last of them may be left out)."""
    named: dict[str, Any] = dict(zip(TENSORS, tensors, strict=False))
    return Call(**named, **values)


def answer_names(ids: tuple[Tensor | None, ...], values: Mapping[str, Any]) -> list[str]:
    """The statistics that a call brings, under the names of ``Aux`` and in the order of its fields.

    Args:
        ids: key tokens, query tokens and classes.
        values: the operator's plain values.
    """
    return answers_to(_asked(ids, values))


def _asked(ids: tuple[Tensor | None, ...], values: Mapping[str, Any]) -> set[str]:
    asked = {"lse", *values["statistics"].split(","), *(name for name in ASKED[1:] if values[name])}
    return asked | {name for name, given in (("matches", ids[0]), ("classes", ids[2])) if given is not None}


def answer_shapes(call: Call) -> dict[str, tuple[tuple[Any, ...], torch.dtype]]:
    """Shape and dtype of each statistic of ``call``, in the order of ``answer_names``."""
    head, n_q, n_k = tuple(call.query.shape[:-2]), call.query.shape[-2], call.key.shape[-2]
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    ids = (call.key_tokens, call.query_tokens, call.classes)
    asked = _asked(ids, {name: getattr(call, name) for name in ASKED})
    numbers = (call.top_k, len(call.relative), call.class_count, call.pooled)
    # Sizes may be symbols, which no cache can hold.
    axes = answer_axes.__wrapped__(asked, n_q, n_k, *numbers)
    return {name: ((*head, *lengths), torch.int64 if whole else dtype) for name, lengths, whole in axes}


def _visible(tensor: Tensor) -> bool:
    """Can NumPy look at its numbers?"""
    return tensor.device.type == "cpu" and tensor.dtype not in HALF


def _view(tensor: Tensor) -> Array:
    """The tensor as NumPy sees it; of one in other memory or of another width only the shape is seen."""
    tensor = tensor.detach()
    if _visible(tensor):
        view: Array = tensor.resolve_neg().numpy()
        return view
    dtype = {torch.bool: np.bool_, torch.float64: np.float64}.get(tensor.dtype, np.float32)
    if not tensor.is_floating_point() and tensor.dtype != torch.bool:
        dtype = np.int64
    return np.broadcast_to(np.full((), 2, dtype), tuple(tensor.shape))


def _host(tensor: Any) -> Any:
    """A small array in the CPU's memory."""
    if tensor is None:
        return None
    tensor = tensor.detach().cpu()
    if tensor.ndim == 0 and not tensor.is_floating_point():
        return tensor.item()
    return (tensor.float() if tensor.dtype in HALF else tensor).numpy()


def only_zeros_and_ones(mask: Tensor) -> bool:
    if mask.is_meta:
        return False
    one, zero = mask == 1, mask == 0
    return bool((one | zero).all() & one.any() & zero.any())


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
