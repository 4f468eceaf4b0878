"""The arguments of one call of a layer: checked, and brought into the form that ``attention`` takes."""

from typing import Any

import torch
from torch import Tensor, nn

from headwise.compute.arrays import integers
from headwise.compute.options import both_readings
from headwise.errors import CapabilityError, DtypeError, HeadwiseError, ShapeError
from headwise.plain.types import AnyArray
from headwise.plain.values import is_whole, shown
from headwise.torch.arguments import Shape, check_kind
from headwise.torch.caches.cache import Cache, Offset, Seen
from headwise.torch.layer.heads import KeysValues


def check_input(name: str, x: Tensor, width: int, projection: nn.Module, lead: Shape | None = None) -> None:
    """One input of the layer: ``(*lead, n, width)``, of the dtype of its projection.

    Raises:
        DtypeError, ShapeError: it is not.
    """
    if not isinstance(x, Tensor):
        raise DtypeError(name, "a torch tensor", type(x).__name__, "torch.as_tensor makes one")
    if x.layout is not torch.strided or x.is_nested:
        kind, hint = f"layout {x.layout}", f"{name}.to_dense()"
        if x.is_nested:
            kind, hint = "a nested tensor", f"{name}.to_padded_tensor(0.0), and key_mask= for the padding"
        raise DtypeError(name, "a dense tensor", kind, hint)
    if x.ndim < 2 or x.shape[-1] != width:
        hint = "batch first: (batch, tokens, width), or (tokens, width)"
        if name != "query" and x.ndim >= 2:
            hint = "kdim= and vdim= are the widths of keys and values that come from elsewhere"
        raise ShapeError(name, f"(..., n, {width})", f"shape {tuple(x.shape)}", hint)
    if lead is not None and tuple(x.shape[:-2]) != lead:
        hint = f"batch first: (batch, tokens, width); {name}.expand(...) repeats a tensor without a copy"
        raise ShapeError(name, f"leading axes {lead}, as query has", f"shape {tuple(x.shape)}", hint)
    # Quantised and adapted projections judge dtypes themselves; autocast is there to mix them.
    if type(projection) is nn.Linear:
        check_kind(name, x, projection.weight)


def check_roles(key: Any, value: Any, positions: Any, key_positions: Any, rotary: bool) -> None:
    """Arguments that do not go together.

    Args:
        rotary: the layer turns queries and keys.

    Raises:
        HeadwiseError: with the name of the one that has to go.
    """
    if value is not None and not isinstance(key, Tensor):
        received = "a value without a key" if key is None else "a value beside a KeysValues"
        raise HeadwiseError("value", "None without a key tensor", received, "layer(x, memory, values)")
    for name, given in (("positions", positions), ("key_positions", key_positions)):
        if given is None:
            continue
        if not rotary:
            hint = "rope=True turns queries and keys by their positions; ALiBi and T5 go by query_offset"
            raise HeadwiseError(name, "None: this layer has no rotary positions", shown(given), hint)
        if isinstance(key, KeysValues) and name == "key_positions":
            hint = "give them to keys_and_values"
            raise HeadwiseError(name, "None beside a KeysValues, whose keys are turned", "positions", hint)


def check_kept(kept: KeysValues, lead: Shape, heads: int, widths: tuple[int, int]) -> None:
    """Projected keys and values that come in the place of key.

    Raises:
        ShapeError: they are of another layer or another batch.
    """
    for name, held, width in (("key", kept.key, widths[0]), ("value", kept.value, widths[1])):
        shape = tuple(held.shape)
        if shape[:-2] != (*lead, heads) or shape[-1] != width:
            sizes = ", ".join(map(str, (*lead, heads, "n", width)))
            expected = f"{name}s ({sizes}) of layer.keys_and_values"
            hint = "they belong to the layer that made them, and to a batch of that size"
            raise ShapeError("key", expected, f"shape {shape}", hint)


def check_cache(cache: Any, own: bool, is_causal: bool, placed: bool) -> None:
    """What a cache asks of a call.

    Args:
        own: self-attention.
        is_causal: the layer is, or the call says itself whether it is.
        placed: the call says itself where its queries stand.

    Raises:
        HeadwiseError, CapabilityError: a call whose pieces would not give what the whole sequence gives.
    """
    if not isinstance(cache, Cache):
        hint = "cache=DynamicCache(), kept from call to call"
        raise HeadwiseError("cache", "None or a cache of headwise.torch", shown(cache), hint)
    if not own:
        expected = "None where a key is given: a cache belongs to self-attention"
        hint = "layer.keys_and_values(memory) projects the other sequence once; give that as key"
        raise HeadwiseError("cache", expected, type(cache).__name__, hint)
    if placed:
        expected = "None beside a cache, which knows where the queries stand"
        hint = "leave query_offset and causal_alignment out"
        raise HeadwiseError("query_offset", expected, "an offset or alignment", hint)
    if not is_causal:
        expected = "True beside a cache: a piece must not depend on tokens that come later"
        hint = "is_causal=True; is_causal=False in the call lets the tokens of this piece see each other"
        raise CapabilityError("is_causal", expected, "a layer that is not causal", hint)


def merge_masks(
    attn_mask: Tensor | None, key_mask: Tensor | None, segment_ids: AnyArray, n_q: int
) -> tuple[Tensor | None, Any]:
    """Let padding be seen by nobody, without an array of pairs: as a mask of one row, or as segments.

    Args:
        key_mask: ``(*lead, n_k)``, checked, or None.
        segment_ids: as for ``attention``.
    """
    if key_mask is None:
        return attn_mask, segment_ids
    if attn_mask is None:
        return key_mask[..., None, None, :], segment_ids
    if segment_ids is None:
        queries = torch.zeros(*key_mask.shape[:-1], n_q, dtype=torch.long, device=key_mask.device)
        return attn_mask, (queries, (~key_mask).long())
    ids = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
    queries, keys = (torch.as_tensor(part, device=key_mask.device) for part in ids)
    nowhere = queries.min() - 1 if queries.numel() else queries.new_zeros(())
    return attn_mask, (queries, torch.where(key_mask, keys, nowhere))


def seen_columns(name: str, mask: Tensor | None, seen: Seen) -> Tensor | None:
    """The columns of a mask over all tokens so far that belong to the keys which the cache still holds.

    Raises:
        CapabilityError: the entries have let go of different numbers of tokens.
    """
    if mask is None or mask.shape[-1] == 1:
        return mask
    dropped = seen.dropped
    if isinstance(dropped, Tensor):
        if bool((dropped != 0).any()):
            hint = "a DynamicCache keeps one column per token; window_size= needs no mask"
            received = "a rolling cache whose entries let go of different tokens"
            raise CapabilityError(name, "None", received, hint)
        return mask
    return mask[..., dropped:]


def offset_of(
    needed_by: str, n_q: int, n_k: int, own: bool, query_offset: Any, alignment: str | None
) -> Offset:
    """Position of query 0 beside keys that begin at 0, where no cache says it.

    Raises:
        ShapeError: cross-attention of unlike lengths that does not say where its queries stand.
    """
    if query_offset is not None:
        if is_whole(query_offset):
            return query_offset
        if isinstance(query_offset, list | tuple) or hasattr(query_offset, "shape"):
            found = query_offset
            if not isinstance(found, Tensor):
                found = torch.from_numpy(integers("query_offset", found).copy())
            if not found.is_floating_point() and found.dtype != torch.bool:
                return found
        expected, hint = "a whole number, or one per batch entry", "where query 0 stands among the keys"
        raise HeadwiseError("query_offset", expected, shown(query_offset), hint)
    if alignment == "lower_right":
        return n_k - n_q
    if alignment is None and n_q != n_k and not own:
        expected = "causal_alignment= or query_offset= beside it, as n_q != n_k"
        raise ShapeError(needed_by, expected, f"{n_q} queries and {n_k} keys", both_readings(n_q, n_k))
    return 0
