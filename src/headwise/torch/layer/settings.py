"""Sizes of a multi-head layer and what its options may be: every refusal at construction is born here."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.types import Device

from headwise.compute.problem.offsets import Window, check_window
from headwise.compute.problem.sizes import divisors, listed
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.values import is_number, is_whole, shown
from headwise.torch.positions.biases import AlibiPositions, T5Positions
from headwise.torch.positions.embeddings import RotaryPositions

Norms = tuple[nn.Module, nn.Module]

NORMS = ("rms", "layer", "l2")


@dataclass(frozen=True, slots=True)
class LayerSizes:
    """Widths and numbers of heads, every default resolved."""

    embed_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    kdim: int
    vdim: int
    out_dim: int


def resolve_sizes(
    embed_dim: int,
    num_heads: int,
    num_kv_heads: int | None,
    head_dim: int | None,
    v_head_dim: int | None,
    kdim: int | None,
    vdim: int | None,
    out_dim: int | None,
) -> LayerSizes:
    """Check the sizes and fill in what was left out.

    Raises:
        HeadwiseError: a size that is no whole number >= 1.
        ShapeError: heads that do not divide the width, key heads that do not divide the heads.
    """
    given: dict[str, Any] = {"embed_dim": embed_dim, "num_heads": num_heads, "num_kv_heads": num_kv_heads}
    given |= {"head_dim": head_dim, "v_head_dim": v_head_dim, "kdim": kdim, "vdim": vdim, "out_dim": out_dim}
    for name, size in given.items():
        if size is None and name not in ("embed_dim", "num_heads"):
            continue
        if not is_whole(size) or size < 1:
            hint = "MultiHeadAttention(768, 12) is 12 heads of width 64"
            raise HeadwiseError(name, "a whole number >= 1", shown(size), hint)
    if head_dim is None and embed_dim % num_heads:
        below = [d for d in divisors(embed_dim) if d < num_heads][-1:]
        above = [d for d in divisors(embed_dim) if d > num_heads][:1]
        nearest = listed(below + above)
        hint = f"the nearest numbers that divide it: {nearest}; with head_dim= any number of heads serves"
        raise ShapeError("num_heads", f"a divisor of embed_dim = {embed_dim}", str(num_heads), hint)
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    if num_heads % kv_heads:
        hint = f"{num_heads} query heads go with {listed(divisors(num_heads))} key/value heads"
        raise ShapeError("num_kv_heads", f"a divisor of num_heads = {num_heads}", str(kv_heads), hint)
    width = embed_dim // num_heads if head_dim is None else head_dim
    key_width = embed_dim if kdim is None else kdim
    return LayerSizes(
        embed_dim=int(embed_dim),
        num_heads=int(num_heads),
        num_kv_heads=int(kv_heads),
        head_dim=int(width),
        v_head_dim=int(width if v_head_dim is None else v_head_dim),
        kdim=int(key_width),
        vdim=int(key_width if vdim is None else vdim),
        out_dim=int(embed_dim if out_dim is None else out_dim),
    )


def check_options(is_causal: Any, dropout: Any, scale: Any, softcap: Any, sinks: Any, window: Any) -> Window:
    """Check the options that are no modules; the window comes back as (left, right).

    Raises:
        HeadwiseError: with the option's name.
    """
    if type(is_causal) is not bool:
        raise HeadwiseError("is_causal", "True or False", shown(is_causal), "a mask goes into the call")
    check_probability(dropout)
    if scale is not None and not (is_number(scale) and math.isfinite(scale)):
        raise HeadwiseError("scale", "None or a finite number", shown(scale), "None means 1/sqrt(head_dim)")
    if softcap is not None and not (is_number(softcap) and 0 < softcap < math.inf):
        hint = "the score s becomes softcap * tanh(s / softcap); None caps nothing"
        raise HeadwiseError("softcap", "None or a finite number > 0", shown(softcap), hint)
    if not is_whole(sinks) or sinks < 0:
        hint = "sinks=1 learns one logit per head that takes part in the softmax and has no value"
        raise HeadwiseError("sinks", "a whole number >= 0", shown(sinks), hint)
    return (None, None) if window is None else check_window(window)


def check_probability(dropout: float) -> None:
    """A probability of dropping.

    Raises:
        HeadwiseError: no number between 0 and 1.
    """
    if not is_number(dropout) or not 0.0 <= dropout <= 1.0:
        expected, hint = "a probability between 0 and 1", "0.1 drops one number in ten, in training only"
        raise HeadwiseError("dropout", expected, shown(dropout), hint)


def resolve_rope(rope: bool | nn.Module | None, head_dim: int) -> nn.Module | None:
    """The module that turns queries and keys, or None.

    Raises:
        HeadwiseError: no module.
        ShapeError: heads of odd or too small width.
    """
    if rope is None or rope is False:
        return None
    module = RotaryPositions() if rope is True else rope
    if not isinstance(module, nn.Module):
        hint = "rope=True, or RotaryPositions(base=500000.0)"
        raise HeadwiseError("rope", "None, True or a module such as RotaryPositions", shown(rope), hint)
    if isinstance(module, RotaryPositions):
        width = head_dim if module.width is None else module.width
        if width > head_dim or width % 2:
            hint = "features turn in pairs; RotaryPositions(width=...) turns the first ones only"
            raise ShapeError("rope", f"an even width of at most head_dim = {head_dim}", str(width), hint)
    return module


def resolve_alibi(alibi: Any, num_heads: int) -> AlibiPositions | None:
    """The slopes, or None.

    Raises:
        HeadwiseError: something else than True, False or slopes.
        ShapeError: slopes of another number of heads.
    """
    if alibi is None or alibi is False:
        return None
    module = AlibiPositions(num_heads) if alibi is True else alibi
    if not isinstance(module, AlibiPositions):
        hint = "AlibiPositions(num_heads, slopes=[...]) takes slopes of your own"
        raise HeadwiseError("alibi", "True, False or AlibiPositions", shown(alibi), hint)
    _same_heads("alibi", len(module.slopes), num_heads)
    return module


def resolve_rel_bias(
    rel_bias: Any, num_heads: int, is_causal: bool, device: Device, dtype: Any
) -> T5Positions | None:
    """The relative bias, or None.

    Raises:
        HeadwiseError: something else than None, True or a T5Positions.
        ShapeError: a bias of another number of heads.
    """
    if rel_bias is None or rel_bias is False:
        return None
    module = (
        T5Positions(num_heads, bidirectional=not is_causal, device=device, dtype=dtype)
        if rel_bias is True
        else rel_bias
    )
    if not isinstance(module, T5Positions):
        hint = (
            "T5Positions(num_heads, num_buckets=32); biases of any other kind go into attn_bias at the call"
        )
        raise HeadwiseError("rel_bias", "None, True or T5Positions", shown(rel_bias), hint)
    _same_heads("rel_bias", module.num_heads, num_heads)
    return module


def resolve_norms(qk_norm: Any, head_dim: int, device: Device, dtype: Any) -> Norms | None:
    """The norms of queries and keys, each over the features of one head, or None.

    Raises:
        HeadwiseError: an unknown name, or no pair of modules.
    """
    if qk_norm is None:
        return None
    if isinstance(qk_norm, str) and qk_norm in NORMS:
        made: list[nn.Module] = []
        for _ in range(2):
            if qk_norm == "rms":
                made.append(nn.RMSNorm(head_dim, eps=1e-6, device=device, dtype=dtype))
            elif qk_norm == "layer":
                made.append(nn.LayerNorm(head_dim, eps=1e-6, device=device, dtype=dtype))
            else:
                made.append(UnitLength())
        return made[0], made[1]
    if (
        isinstance(qk_norm, tuple | list)
        and len(qk_norm) == 2
        and all(isinstance(m, nn.Module) for m in qk_norm)
    ):
        return qk_norm[0], qk_norm[1]
    expected = 'None, "rms", "layer", "l2" or a pair of modules (of queries, of keys)'
    raise HeadwiseError(
        "qk_norm", expected, shown(qk_norm), 'qk_norm="rms" is the norm of Qwen 3 and Gemma 3'
    )


class UnitLength(nn.Module):
    """x / |x| over the last axis; 0 stays 0. Scores are then cosines: give the layer a ``scale``."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, dim=-1)


def _same_heads(name: str, found: int, num_heads: int) -> None:
    if found != num_heads:
        raise ShapeError(name, f"{num_heads} heads, as the layer has", f"{found}", f"num_heads={num_heads}")
