"""Attention on torch tensors that records gradients: the front door, and how its options are packed."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise.arrays import integers, numbers
from headwise.errors import CapabilityError, DtypeError, HeadwiseError
from headwise.options import UNSERVED, check_dropout, check_flags, check_running, is_number, is_whole, shown
from headwise.problem_positions import check_window
from headwise.problem_rules import build_rules, refuse_unknown
from headwise.request import FLAGS, AuxRequest
from headwise.statistics import Aux
from headwise.torch.call import HALF, answer_names, make_call
from headwise.torch.compute import compute
from headwise.torch.op import attend
from headwise.torch.recorded import CARRY_GRADIENTS, recorded

IMPLEMENTATIONS = ("auto", "kernel", "torch")
NOTHING = AuxRequest()
PLAIN = (Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    *,
    attn_bias: Tensor | None = None,
    causal_alignment: str | None = None,
    query_offset: Any = None,
    window_size: tuple[int | None, int | None] | None = None,
    query_lengths: Any = None,
    kv_lengths: Any = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None,
    segment_ids: Any = None,
    softcap: float | None = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    head_mask: Any = None,
    block_table: Any = None,
    rng: Any = None,
    return_aux: AuxRequest | None = None,
    implementation: str = "auto",
    num_threads: int | None = None,
) -> Any:
    """``headwise.attention`` on torch tensors of any device, under autograd and ``torch.compile``.

    The arguments mean what they mean there. What this one adds:

    * Gradients for query, key and value, for a floating mask and bias, for ALiBi slopes, sinks and head mask,
      through the output, ``lse`` and ``entropy``. The backward pass makes the weights anew, tile by tile: no
      ``n_q x n_k`` array, in training neither. An empty row has gradient 0. Second derivatives are refused.
    * float16 and bfloat16, computed in float32 and rounded once; ``lse`` and the other statistics are then
      float32.
    * Under ``torch.autocast``, query, key, value, floating mask and bias are brought to autocast's dtype, as
      torch's own function does.

    Args:
        query: ``(..., H, n_q, d_k)``, or ``(n_q, d_k)`` for one head.
        key: ``(..., H_kv, n_k, d_k)``.
        value: ``(..., H_kv, n_k, d_v)``.
        rng: a seed, a ``numpy.random.Generator``, a ``torch.Generator``, or an int64 tensor of one number
            (``torch.randint(2**63 - 1, ())`` draws one from torch's own generator, also in a compiled
            graph). The same seed drops the same weights on every device.
        implementation: "kernel" is the package's own kernel, for tensors in the CPU's memory; "torch" the
            same in tiles of torch operations, for any device; "auto" takes the first where it can.
        return_aux: statistics to return beside the output.

    Returns:
        The output ``(..., H, n_q, d_v)``, or ``(output, Aux)``. Of the statistics ``lse`` and ``entropy``
        carry gradients.

    Raises:
        ShapeError, DtypeError, CapabilityError, HeadwiseError: see ``headwise.errors``.

    >>> import torch
    >>> scores, values = torch.tensor([[4.0, 2.0, 5.0]]), torch.eye(3, requires_grad=True)
    >>> attention(scores, torch.eye(3), values, scale=1.0).sum().backward()
    >>> values.grad[:, 0]
    tensor([0.2595, 0.0351, 0.7054])
    """
    unserved = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table}
    if not torch.compiler.is_compiling():
        refuse_unknown(unserved)
        _check_plain(
            query, key, value, attn_mask, attn_bias, dropout_p, is_causal, scale, enable_gqa, softcap,
            causal_alignment, implementation, num_threads, return_aux,
        )  # fmt: skip
    elif not all(option is None for option in unserved.values()):
        raise NotImplementedError(f"{' and '.join(UNSERVED)} are not yet served")
    left, right = (None, None) if window_size is None else check_window(window_size)
    query, key, value, attn_mask, attn_bias = _autocast(query, key, value, attn_mask, attn_bias)
    query_ids, key_ids = _pair(segment_ids)
    offset, query_offsets = _offset(query_offset)
    tensors = (
        query,
        key,
        value,
        attn_mask,
        attn_bias,
        _floats("alibi_slopes", alibi_slopes, query),
        _floats("sinks", sinks, query),
        _integers("query_lengths", query_lengths),
        _integers("kv_lengths", kv_lengths),
        query_ids,
        key_ids,
        query_offsets,
        _seed(rng, dropout_p),
    )
    values: dict[str, Any] = {
        "scale": None if scale is None else float(scale),
        "is_causal": is_causal,
        "enable_gqa": enable_gqa,
        "alignment": causal_alignment,
        "offset": offset,
        "window_left": left,
        "window_right": right,
        "softcap": None if softcap is None else float(softcap),
        "dropout_p": float(dropout_p),
        "implementation": implementation,
        "num_threads": num_threads,
    }
    answers: Any
    if _undisturbed(tensors):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            output, answers = recorded(tensors, values, return_aux)
        else:
            request = NOTHING if return_aux is None else return_aux
            output, answers = compute(make_call(tensors, values), request)
    else:
        ids, asked = _asked(return_aux)
        output, *answers = attend(*tensors, *ids, **values, **asked)
        answers = dict(zip(answer_names(ids, asked), answers, strict=True))
    if head_mask is not None:
        output = output * _head_mask(head_mask, output, key.shape[-2])
    if return_aux is None:
        return output
    if not return_aux.lse:
        answers.pop("lse", None)
    return output, Aux(
        **{name: answer if name in CARRY_GRADIENTS else answer.detach() for name, answer in answers.items()}
    )


def _undisturbed(tensors: tuple[Tensor | None, ...]) -> bool:
    """Plain tensors, and nobody who traces the call?

    Then it need not go through torch's dispatcher, which costs more than a small call itself.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if any(tensor is not None and type(tensor) not in PLAIN for tensor in tensors):
        return False
    # Not a public name of torch; where it is missing, the dispatcher is asked.
    return _dispatch_modes is not None and not _dispatch_modes()


def _check_plain(
    query: Any, key: Any, value: Any, mask: Any, bias: Any, dropout_p: Any, is_causal: Any, scale: Any,
    enable_gqa: Any, softcap: Any, alignment: Any, implementation: Any, num_threads: Any, request: Any,
) -> None:  # fmt: skip
    """What the operator's signature could not carry to the checks behind it."""
    for name, array in (("query", query), ("key", key), ("value", value)):
        if not isinstance(array, Tensor):
            hint = "headwise.attention takes NumPy and JAX arrays too"
            raise DtypeError(name, "a torch tensor", shown_kind(array), hint)
    for name, array in (("attn_mask", mask), ("attn_bias", bias)):
        if array is not None and not isinstance(array, Tensor):
            raise DtypeError(name, "None or a torch tensor", shown_kind(array), f"torch.as_tensor({name})")
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


def shown_kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _autocast(query: Tensor, *others: Tensor | None) -> tuple[Any, ...]:
    """The floating tensors in autocast's dtype, where it is on."""
    arrays = (query, *others)
    kind = query.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return arrays
    dtype = torch.get_autocast_dtype(kind)
    cast = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(x.to(dtype) if x is not None and x.dtype in cast else x for x in arrays)


def _integers(name: str, value: Any) -> Tensor | None:
    if value is None or isinstance(value, Tensor):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    if is_whole(value):
        return torch.tensor(int(value))
    return torch.from_numpy(integers(name, value).copy())


def _floats(name: str, value: Any, query: Tensor) -> Tensor | None:
    if value is None or isinstance(value, Tensor):
        return value
    if torch.compiler.is_compiling():
        return torch.as_tensor(value)
    return torch.from_numpy(numbers(name, value).copy())


def _pair(given: Any) -> tuple[Tensor | None, Tensor | None]:
    """Segment ids of queries and of keys; the second is None where one array serves both."""
    # Only a tuple of two sequences is a pair: a list of two lists is a batch of two sequences.
    if isinstance(given, tuple) and len(given) == 2 and not any(map(is_whole, given)):
        return _integers("segment_ids", given[0]), _integers("segment_ids", given[1])
    return _integers("segment_ids", given), None


def _offset(given: Any) -> tuple[int | None, Tensor | None]:
    if given is None or is_whole(given):
        return given if given is None else int(given), None
    if isinstance(given, Tensor | list | tuple) or hasattr(given, "shape"):
        return None, _integers("query_offset", given)
    if torch.compiler.is_compiling():
        return given, None
    expected = "a whole number, or one per batch entry"
    hint = "it is the position of query 0 among the keys"
    raise HeadwiseError("query_offset", expected, shown(given), hint)


def _seed(rng: Any, dropout_p: float) -> Tensor | None:
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


def _asked(request: AuxRequest | None) -> tuple[tuple[Tensor | None, ...], dict[str, Any]]:
    """The request as the operator takes it: ids of tokens and classes, and plain values."""
    if request is None:
        request = NOTHING
    keys = queries = None
    if request.matches is not None:
        keys, queries = request.matches if isinstance(request.matches, tuple) else (request.matches, None)
    ids = tuple(None if x is None else torch.as_tensor(x) for x in (keys, queries, request.segments))
    flags = [name for name in FLAGS if getattr(request, name)]
    return ids, {
        "statistics": ",".join(flags),
        "top_k": request.top_k,
        "sink_mass": request.sink_mass,
        "relative": request.offsets,
        "pooled": request.pooled,
        "classes": 0 if request.segments is None else request.classes,
    }


def _head_mask(given: Any, output: Tensor, n_k: int) -> Tensor:
    """The factors of the heads, checked, in the shape that meets the output."""
    factors = _floats("head_mask", given, output)
    assert factors is not None
    full = (*output.shape[:-1], n_k) if output.ndim > 2 else (1, output.shape[0], n_k)
    if not torch.compiler.is_compiling():
        seen = factors.detach().cpu()
        build_rules(
            {"head_mask": seen.float() if seen.dtype in HALF else seen}, 0.0, full, np.dtype(np.float32)
        )
    factors = factors.to(output.device, output.dtype)
    return factors[..., None, None] if output.ndim > 2 else factors.reshape(())
