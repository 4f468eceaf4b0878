"""How the options of attention are packed for the operator, and what its signature could not carry there."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from headwise.compute.arrays import integers, numbers
from headwise.compute.options import check_dropout, check_flags, check_running
from headwise.compute.problem.rules import build_rules
from headwise.compute.request import FLAGS, AuxRequest
from headwise.errors import CapabilityError, DtypeError, HeadwiseError
from headwise.plain.values import is_number, is_whole, shown
from headwise.torch.operator.call import HALF

IMPLEMENTATIONS = ("auto", "kernel", "torch")
NOTHING = AuxRequest()
# Not a public name of torch; where it is missing, torch's own words refuse.
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def check_plain(
    query: Any, key: Any, value: Any, mask: Any, bias: Any, dropout_p: Any, is_causal: Any, scale: Any,
    enable_gqa: Any, softcap: Any, alignment: Any, implementation: Any, num_threads: Any, request: Any,
) -> None:  # fmt: skip
    """What the operator's signature could not carry to the checks behind it."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not isinstance(array, Tensor):
            hint = "headwise.attention takes NumPy and JAX arrays too"
            raise DtypeError(name, "a torch tensor", _kind_of(array), hint)
    for name, array in (("attn_mask", mask), ("attn_bias", bias)):
        if array is not None and not isinstance(array, Tensor):
            raise DtypeError(name, "None or a torch tensor", _kind_of(array), f"torch.as_tensor({name})")
    for name, array in (("query", query), ("key", key), ("value", value), ("attn_mask", mask)):
        if array is not None and array.layout is not torch.strided:
            raise DtypeError(name, "a dense tensor", f"layout {array.layout}", f"{name}.to_dense()")
    if _transforms is not None and _transforms() is not None:
        hint = "torch.autograd.grad gives gradients; a batch is one more leading axis"
        expected = "plain tensors, outside the transforms of torch.func (grad, vmap, jvp)"
        raise CapabilityError("query", expected, "a call inside one", hint)
    check_flags(is_causal, enable_gqa)
    check_dropout(dropout_p)
    if scale is not None and not is_number(scale):
        raise HeadwiseError("scale", "None or a finite number", shown(scale), "None means 1/sqrt(d_k)")
    if softcap is not None and not is_number(softcap):
        hint = "the score s becomes softcap * tanh(s / softcap); None caps nothing"
        raise HeadwiseError("softcap", "None or a finite number > 0", shown(softcap), hint)
    if alignment is not None and not isinstance(alignment, str):
        hint = "upper_left is offset 0, lower_right is offset n_k - n_q"
        raise HeadwiseError("causal_alignment", 'None, "upper_left" or "lower_right"', shown(alignment), hint)
    if type(implementation) is not str or implementation not in IMPLEMENTATIONS:
        expected = '"auto", "kernel" or "torch"'
        raise HeadwiseError("implementation", expected, shown(implementation), 'leave it at "auto"')
    check_running("auto", num_threads)
    if request is not None and not isinstance(request, AuxRequest):
        hint = "return_aux=headwise.AuxRequest(entropy=True)"
        raise HeadwiseError("return_aux", "None or an AuxRequest", shown(request), hint)


def refuse_dual(tensors: Iterable[Tensor | None]) -> None:
    """Forward-mode derivatives: without a record the tangents would be dropped, and nobody would notice.

    Raises:
        CapabilityError: a tensor carries one.
    """
    if getattr(forward_ad, "_current_level", 0) < 0:  # not a public name of torch; where missing, we look
        return
    if any(x is not None and forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        hint = (
            "torch.autograd.grad gives gradients; a directional derivative is their product with the tangent"
        )
        raise CapabilityError("query", "plain tensors, without tangents", "forward-mode derivatives", hint)


def _kind_of(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def in_autocast(query: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """The floating tensors in autocast's dtype, where it is on."""
    arrays = (query, *others)
    kind = query.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return arrays
    dtype = torch.get_autocast_dtype(kind)
    cast = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(x.to(dtype) if x is not None and x.dtype in cast else x for x in arrays)


def as_integers(name: str, value: Any) -> Tensor | None:
    if value is None or isinstance(value, Tensor):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    if is_whole(value):
        return torch.tensor(int(value))
    return torch.from_numpy(integers(name, value).copy())


def as_floats(name: str, value: Any) -> Tensor | None:
    if value is None or isinstance(value, Tensor):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    return torch.from_numpy(numbers(name, value).copy())


def as_pair(given: Any) -> tuple[Tensor | None, Tensor | None]:
    """Segment ids of queries and of keys; the second is None where one array serves both."""
    # Only a tuple of two sequences is a pair: a list of two lists is a batch of two sequences.
    if isinstance(given, tuple) and len(given) == 2 and not any(map(is_whole, given)):
        return as_integers("segment_ids", given[0]), as_integers("segment_ids", given[1])
    return as_integers("segment_ids", given), None


def as_offset(given: Any) -> tuple[int | None, Tensor | None]:
    if given is None or is_whole(given):
        return given if given is None else int(given), None
    if isinstance(given, Tensor | list | tuple) or hasattr(given, "shape"):
        return None, as_integers("query_offset", given)
    if torch.compiler.is_compiling():
        return given, None
    expected = "a whole number, or one per batch entry"
    hint = "it is the position of query 0 among the keys"
    raise HeadwiseError("query_offset", expected, shown(given), hint)


def as_seed(rng: Any, dropout_p: float) -> Tensor | None:
    """The seed as a tensor, its 64 bits read as a signed number."""
    if rng is None or isinstance(rng, Tensor):
        if rng is not None and (rng.dtype != torch.int64 or rng.numel() != 1):
            received = f"a tensor of shape {tuple(rng.shape)} and {rng.dtype}"
            hint = "torch.randint(2**63 - 1, ()) draws one"
            raise HeadwiseError("rng", "an int64 tensor of one number", received, hint)
        return rng
    if isinstance(rng, torch.Generator):
        if dropout_p == 0:
            return None
        return torch.randint(-(2**63), 2**63 - 1, (), generator=rng, device=rng.device)
    if isinstance(rng, np.random.Generator):
        if dropout_p == 0:
            return None
        seed = int(rng.integers(2**64, dtype=np.uint64))
    elif is_whole(rng) and 0 <= rng < 2**64:
        seed = int(rng)
    else:
        expected = (
            "a seed (a whole number >= 0, < 2**64), a numpy.random.Generator, a torch.Generator or an int64 "
            "tensor of one number"
        )
        hint = "rng=0; the same seed drops the same weights for any number of threads"
        raise HeadwiseError("rng", expected, shown(rng), hint)
    return torch.tensor(seed - 2**64 if seed >= 2**63 else seed)


def as_asked(request: AuxRequest | None) -> tuple[tuple[Tensor | None, ...], dict[str, Any]]:
    """The request as the operator takes it: ids of tokens and classes, and plain values."""
    if request is None:
        request = NOTHING
    keys = queries = None
    if request.matches is not None:
        keys, queries = request.matches if isinstance(request.matches, tuple) else (request.matches, None)
    ids = tuple(None if x is None else torch.as_tensor(x) for x in (keys, queries, request.classes))
    flags = [name for name in FLAGS if getattr(request, name)]
    return ids, {
        "statistics": ",".join(flags),
        "top_k": request.top_k,
        "sink_mass": request.sink_mass,
        "relative": request.relative,
        "pooled": request.pooled,
        "class_count": 0 if request.classes is None else request.class_count,
    }


def as_head_mask(given: Any, output: Tensor, n_k: int) -> Tensor:
    """The factors of the heads, checked, in the shape that meets the output."""
    factors = as_floats("head_mask", given)
    assert factors is not None
    full = (*output.shape[:-1], n_k) if output.ndim > 2 else (1, output.shape[0], n_k)
    if not torch.compiler.is_compiling():
        seen = factors.detach().cpu()
        build_rules(
            {"head_mask": seen.float() if seen.dtype in HALF else seen}, 0.0, full, np.dtype(np.float32)
        )
    factors = factors.to(output.device, output.dtype)
    return factors[..., None, None] if output.ndim > 2 else factors.reshape(())
