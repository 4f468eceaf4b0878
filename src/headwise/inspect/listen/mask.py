"""The mask of an inspected model as a rule: who sees whom, without an n_q x n_k array.

transformers hands a mask function the sizes, the offsets, the padding and a function of indices. A
``MaskRule`` keeps these, says them as options of ``headwise.attention`` where it knows them (causal, windows,
chunks, packed sequences, padding), and builds any block of the mask on request. ``LazyMask`` is the tensor
that travels through the model in its place.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._pytree import tree_map
from transformers import masking_utils
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from headwise.inspect.call.call import Span

Ids = npt.NDArray[np.int64]
HIDDEN_KEY, HIDDEN_QUERY = -1, -2  # ids of padding: never equal, so neither is ever seen or sees
CHECKED_ROWS = 16  # rows of a recognised mask that are compared with the model's own function


@dataclass(frozen=True, eq=False)
class MaskRule:
    """What a model asked its mask to be.

    Attributes:
        batch, n_q, n_k: sizes of the mask, (batch, 1, n_q, n_k).
        q_offset, kv_offset: positions of query 0 and of key 0 in the text.
        function: (batch index, head index, query position, key position) -> seen?
        padding: (batch, positions), True = a real token; None: all are.
        use_vmap: whether ``function`` takes one index at a time.
    """

    batch: int
    n_q: int
    n_k: int
    q_offset: int
    kv_offset: int
    function: Callable[..., Any]
    padding: torch.Tensor | None
    use_vmap: bool
    device: torch.device

    def block(self, queries: Span, keys: Span) -> torch.Tensor:
        """(batch, 1, queries, keys): this part of the mask, True = attend."""
        (a, z), (b, y) = queries, keys
        built = sdpa_mask(
            batch_size=self.batch,
            q_length=z - a,
            kv_length=y - b,
            q_offset=self.q_offset + a,
            kv_offset=self.kv_offset + b,
            mask_function=self.function,
            attention_mask=self.padding,
            allow_is_causal_skip=False,
            allow_is_bidirectional_skip=False,
            use_vmap=self.use_vmap,
            device=self.device,
        )
        return built.expand(self.batch, -1, z - a, y - b)

    def options(self, kind: str) -> dict[str, Any]:
        """The rule as options of ``headwise.attention``.

        Padding queries see nothing in self-attention; of a "cross" mask only the keys are known. A function
        that is not known becomes ``attn_mask``, n_q x n_k booleans.
        """
        options: dict[str, Any] = {}
        if kind == "self":
            options["query_offset"] = self.q_offset - self.kv_offset
        known = self._known
        if known is None:
            return {**options, "attn_mask": self._dense}
        if known.is_causal:
            options["is_causal"] = True
        if known.window != (None, None):
            options["window_size"] = known.window
        ids = self._segments(known, kind)
        if ids is not None:
            options["segment_ids"] = ids
        return options

    @cached_property
    def _known(self) -> "_Parts | None":
        parts = _Parts()
        if self.use_vmap or not _take_apart(self.function, parts) or not self._agrees(parts):
            return None
        return parts

    @cached_property
    def _dense(self) -> torch.Tensor:
        return self.block((0, self.n_q), (0, self.n_k)).contiguous()

    def _agrees(self, parts: "_Parts") -> bool:
        """Whether the options show the same keys as the model's function, on some rows from first to last."""
        rows = np.unique(np.linspace(0, self.n_q - 1, CHECKED_ROWS).astype(int))
        position = rows[:, None] + self.q_offset - self.kv_offset
        key = np.arange(self.n_k)
        seen = np.ones((self.batch, len(rows), self.n_k), bool)
        if parts.is_causal:
            seen &= key <= position
        left, right = parts.window
        if left is not None:
            seen &= key >= position - left
        if right is not None:
            seen &= key <= position + right
        ids = self._segments(parts, "cross")
        if ids is not None:
            seen &= ids[0][:, rows, None] == ids[1][:, None, :]
        for at, row in enumerate(rows.tolist()):
            block = self.block((row, row + 1), (0, self.n_k))
            if block.shape[1] != 1 or not np.array_equal(block[:, 0, 0].cpu().numpy(), seen[:, at]):
                return False
        return True

    def _segments(self, parts: "_Parts", kind: str) -> tuple[Ids, Ids] | None:
        """Ids of queries and keys, (batch, n_q) and (batch, n_k); None where all are the same."""
        query_at = np.arange(self.n_q) + self.q_offset
        key_at = np.arange(self.n_k) + self.kv_offset
        of_queries = np.zeros((self.batch, self.n_q), np.int64)
        of_keys = np.zeros((self.batch, self.n_k), np.int64)
        for ids_at in parts.segments:
            new = np.concatenate([ids_at(query_at, self.batch), ids_at(key_at, self.batch)], axis=1)
            joined = np.stack([np.concatenate([of_queries, of_keys], axis=1), new])
            unique = np.unique(joined.reshape(2, -1), axis=1, return_inverse=True)[1].reshape(new.shape)
            of_queries, of_keys = unique[:, : self.n_q].copy(), unique[:, self.n_q :].copy()
        for real in [self.padding, *parts.paddings]:
            if real is not None:
                of_keys[~_real(real, key_at)] = HIDDEN_KEY
                if kind == "self":
                    of_queries[~_real(real, query_at)] = HIDDEN_QUERY
        first = of_keys.flat[0] if of_keys.size else 0
        if (of_keys == first).all() and (of_queries == first).all():
            return None
        return of_queries, of_keys


class _Parts:
    """What a mask function is made of, as far as it is known."""

    def __init__(self) -> None:
        self.is_causal = False
        self.window: tuple[int | None, int | None] = (None, None)
        self.segments: list[Callable[[Ids, int], Ids]] = []  # positions, batch -> ids (batch, positions)
        self.paddings: list[torch.Tensor] = []

    def narrow(self, left: int, right: int | None) -> None:
        sides = zip(self.window, (left, right), strict=True)
        narrowed = [min((s for s in side if s is not None), default=None) for side in sides]
        self.window = (narrowed[0], narrowed[1])


def _take_apart(function: Callable[..., Any], parts: _Parts) -> bool:
    """Add what ``function`` asks for to ``parts``; False where one of its parts is not known."""
    if function is causal_mask_function:
        parts.is_causal = True
        return True
    if function is bidirectional_mask_function:
        return True
    if getattr(function, "__module__", None) != masking_utils.__name__ or not hasattr(function, "__code__"):
        return False
    maker = function.__qualname__.split(".")[0]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    held = dict(zip(function.__code__.co_freevars, cells, strict=True))
    if maker == "and_masks":
        return all(_take_apart(part, parts) for part in held["mask_functions"])
    if maker == "sliding_window_overlay":
        parts.narrow(held["sliding_window"] - 1, None)
    elif maker == "sliding_window_bidirectional_overlay":
        parts.narrow(held["sliding_window"], held["sliding_window"])
    elif maker == "chunked_overlay":
        size, padding = held["chunk_size"], np.asarray(held["left_padding"].cpu())
        parts.segments.append(lambda at, batch: (at[None] - padding[:, None]) // size)
    elif maker == "packed_sequence_mask_function":
        ids = np.asarray(held["packed_sequence_mask"].cpu())
        parts.segments.append(lambda at, batch: np.broadcast_to(ids[:, at], (batch, len(at))))
    elif maker == "remap_positions_for_packed_sequence":  # the same inside one sequence, checked by `_agrees`
        return _take_apart(held["mask_function"], parts)
    elif maker == "padding_mask_function":
        parts.paddings.append(held["padding_mask"])
    else:
        return False
    return True


def _real(padding: torch.Tensor, at: Ids) -> npt.NDArray[np.bool_]:
    """(batch, positions): whether a real token stands there; beyond the padding mask none does."""
    real = np.asarray(padding.cpu()).astype(bool)
    inside = (at >= 0) & (at < real.shape[1])
    found: npt.NDArray[np.bool_] = real[:, np.where(inside, at, 0)] & inside
    return found


class LazyMask(torch.Tensor):
    """A boolean mask tensor, (batch, 1, n_q, n_k), that holds its rule in place of numbers.

    Cutting queries or keys off keeps it lazy. Where a model computes with it, it becomes the whole mask, and
    a warning says so.
    """

    rule: MaskRule
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, rule: MaskRule) -> "LazyMask":
        size = (rule.batch, 1, rule.n_q, rule.n_k)
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=torch.bool, device=rule.device)

    def __init__(self, rule: MaskRule) -> None:
        self.rule = rule

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"LazyMask{tuple(self.shape)}"

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
    ) -> Any:
        aten = torch.ops.aten
        if function in (aten.detach.default, aten.alias.default):
            return LazyMask(args[0].rule)
        if function is aten.slice.Tensor:
            cut = _cut(*args)
            if cut is not None:
                return LazyMask(cut)
        if function is aten.expand.default and tuple(args[1]) in (tuple(args[0].shape), (-1, -1, -1, -1)):
            return LazyMask(args[0].rule)
        whole: Callable[[Any], Any] = lambda a: _whole(a, function) if isinstance(a, LazyMask) else a  # noqa: E731
        return function(*tree_map(whole, args), **tree_map(whole, keywords or {}))


def _cut(
    mask: LazyMask, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> MaskRule | None:
    """The rule of the mask cut along queries or keys; None where something else is asked for."""
    size = mask.shape[dim]
    start, end, step = slice(start, end, step).indices(size)
    rule, axis = mask.rule, dim % 4
    if (start, end, step) == (0, size, 1):
        return rule
    if step != 1 or axis < 2:
        return None
    n = max(0, end - start)
    if axis == 2:
        return replace(rule, n_q=n, q_offset=rule.q_offset + start)
    return replace(rule, n_k=n, kv_offset=rule.kv_offset + start)


def _whole(mask: LazyMask, function: Any) -> torch.Tensor:
    size = " x ".join(map(str, mask.shape))
    warnings.warn(
        f"The model computes with its attention mask ({function}), so it is built whole: {size} booleans.",
        stacklevel=2,
    )
    return mask.rule._dense


def mask_function(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: torch.Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **keywords: Any,
) -> torch.Tensor | None:
    """The mask function for transformers' registry.

    None exactly where transformers' own "sdpa" mask function gives None (plainly causal, plainly full), so
    that the model's output stays its own; a ``LazyMask`` everywhere else.
    """
    padding = masking_utils.prepare_padding_mask(attention_mask, kv_length, kv_offset)
    local = keywords.get("local_size")
    if keywords.get("allow_is_causal_skip", True) and masking_utils._ignore_causal_mask_sdpa(
        padding, q_length, kv_length, q_offset, kv_offset, local
    ):
        return None
    if keywords.get("allow_is_bidirectional_skip", False) and masking_utils._ignore_bidirectional_mask_sdpa(
        padding, kv_length, local
    ):
        return None
    rule = MaskRule(
        int(batch_size), int(q_length), int(kv_length), int(q_offset), int(kv_offset), mask_function,
        padding, use_vmap, torch.device(device),
    )  # fmt: skip
    return LazyMask(rule)
