"""Removing heads of a layer for good."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headwise.errors import CapabilityError, HeadwiseError, ShapeError
from headwise.plain.values import is_whole, shown

if TYPE_CHECKING:
    from headwise.torch.layer.multi_head import MultiHeadAttention


def prune(layer: "MultiHeadAttention", heads: Iterable[int]) -> None:
    """See ``MultiHeadAttention.prune_heads``."""
    gone = _checked(heads, layer.num_heads)
    kept = [head for head in range(layer.num_heads) if head not in gone]
    group = layer.num_heads // layer.num_kv_heads
    users = [0] * layer.num_kv_heads
    for head in kept:
        users[head // group] += 1
    kept_kv = [kv_head for kv_head, count in enumerate(users) if count]
    if len({users[kv_head] for kv_head in kept_kv}) > 1:
        expected = "equally many query heads left on every key head that stays"
        hint = "prune whole groups, or the same number from each; head_mask= switches any head off"
        raise ShapeError("heads", expected, f"{users} left on the {len(users)} key heads", hint)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        if type(getattr(layer, name)) is not nn.Linear:
            received = f"{type(getattr(layer, name)).__name__} in its place"
            hint = "merge adapters and prune before quantising; head_mask= switches heads off"
            raise CapabilityError(name, "a plain nn.Linear", received, hint)
    _keep_rows(layer.q_proj, kept, layer.head_dim)
    _keep_rows(layer.k_proj, kept_kv, layer.head_dim)
    _keep_rows(layer.v_proj, kept_kv, layer.v_head_dim)
    columns = _columns(kept, layer.v_head_dim, layer.out_proj.weight.device)
    layer.out_proj.weight = _like(layer.out_proj.weight, layer.out_proj.weight[:, columns])
    layer.out_proj.in_features = len(columns)
    if layer.sinks is not None:
        layer.sinks = _like(layer.sinks, layer.sinks[kept])
    if layer.alibi is not None:
        layer.alibi = layer.alibi.keep(kept)
    if layer.rel_bias is not None:
        layer.rel_bias = layer.rel_bias.keep(kept)
    layer.num_heads, layer.num_kv_heads = len(kept), len(kept_kv)


def _checked(heads: Any, num_heads: int) -> set[int]:
    hint = "layer.prune_heads([0, 3])"
    if isinstance(heads, str | bytes) or not isinstance(heads, Iterable):
        raise HeadwiseError("heads", "a list of head numbers", shown(heads), hint)
    given = heads.tolist() if isinstance(heads, Tensor) else list(heads)
    for head in given:
        if not is_whole(head) or not 0 <= head < num_heads:
            expected = f"whole numbers between 0 and {num_heads - 1}"
            raise HeadwiseError("heads", expected, shown(head), hint)
    gone = set(map(int, given))
    if len(gone) == num_heads:
        raise HeadwiseError("heads", "at least one head left", f"all {num_heads}", hint)
    return gone


def _columns(heads: list[int], width: int, device: torch.device) -> Tensor:
    index = torch.tensor(heads, device=device)[:, None] * width + torch.arange(width, device=device)
    return index.flatten()


def _keep_rows(projection: nn.Linear, heads: list[int], width: int) -> None:
    rows = _columns(heads, width, projection.weight.device)
    projection.weight = _like(projection.weight, projection.weight[rows])
    if projection.bias is not None:
        projection.bias = _like(projection.bias, projection.bias[rows])
    projection.out_features = len(rows)


def _like(parameter: nn.Parameter, values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.detach().clone(), requires_grad=parameter.requires_grad)
