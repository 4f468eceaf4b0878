"""Attention on torch tensors that records gradients: the front door."""

from typing import Any

import torch
from torch import Tensor

from headwise.compute.problem.offsets import check_window
from headwise.compute.problem.rules import refuse_unknown
from headwise.compute.request import Aux, AuxRequest
from headwise.torch.operator.autograd import CARRY_GRADIENTS, recorded
from headwise.torch.operator.call import answer_names, make_call
from headwise.torch.operator.custom_op import attend
from headwise.torch.operator.dispatch import compute
from headwise.torch.operator.packing import (
    NOTHING,
    as_asked,
    as_floats,
    as_head_mask,
    as_integers,
    as_offset,
    as_pair,
    as_seed,
    check_plain,
    in_autocast,
    refuse_dual,
)

PLAIN = (Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)


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
    refuse_unknown({"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, "block_table": block_table})
    if not torch.compiler.is_compiling():
        check_plain(
            query, key, value, attn_mask, attn_bias, dropout_p, is_causal, scale, enable_gqa, softcap,
            causal_alignment, implementation, num_threads, return_aux,
        )  # fmt: skip
    left, right = (None, None) if window_size is None else check_window(window_size)
    query, key, value, attn_mask, attn_bias = in_autocast(query, key, value, attn_mask, attn_bias)
    query_ids, key_ids = as_pair(segment_ids)
    offset, query_offsets = as_offset(query_offset)
    tensors = (
        query,
        key,
        value,
        attn_mask,
        attn_bias,
        as_floats("alibi_slopes", alibi_slopes),
        as_floats("sinks", sinks),
        as_integers("query_lengths", query_lengths),
        as_integers("kv_lengths", kv_lengths),
        query_ids,
        key_ids,
        query_offsets,
        as_seed(rng, dropout_p),
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
    if not torch.compiler.is_compiling():
        refuse_dual(tensors)
    answers: Any
    if _undisturbed(tensors):
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
            output, answers = recorded(tensors, values, return_aux)
        else:
            request = NOTHING if return_aux is None else return_aux
            output, answers = compute(make_call(tensors, values), request)
    else:
        if not torch.compiler.is_compiling() and any(x is not None and x.is_meta for x in tensors):
            make_call(tensors, values).check_shapes()
        ids, asked = as_asked(return_aux)
        output, *answers = attend(*tensors, *ids, **values, **asked)
        answers = dict(zip(answer_names(ids, asked), answers, strict=True))
    if head_mask is not None:
        output = output * as_head_mask(head_mask, output, key.shape[-2])
    if return_aux is None:
        return output
    if not return_aux.lse:
        answers.pop("lse", None)
    return output, Aux(
        **{name: answer if name in CARRY_GRADIENTS else answer.detach() for name, answer in answers.items()}
    )


def _undisturbed(tensors: tuple[Tensor | None, ...]) -> bool:
    """Plain tensors that hold numbers, and nobody who traces the call?

    Then it need not go through torch's dispatcher, which costs more than a small call itself.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    if any(tensor is not None and (type(tensor) not in PLAIN or tensor.is_meta) for tensor in tensors):
        return False
    # Not a public name of torch; where it is missing, the dispatcher is asked.
    return _dispatch_modes is not None and not _dispatch_modes()
