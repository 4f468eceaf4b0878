"""Which heads stay when others are removed for good, and their share of a projection."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.values import is_whole, shown


def remaining(heads: Iterable[int], num_heads: int, num_kv_heads: int) -> tuple[list[int], list[int]]:
    """The query heads that stay without these, and the key heads that they use.

    Raises:
        HeadwiseError, ShapeError: as ``MultiHeadAttention.prune_heads``.
    """
    gone = _checked(heads, num_heads)
    kept = [head for head in range(num_heads) if head not in gone]
    group = num_heads // num_kv_heads
    users = [0] * num_kv_heads
    for head in kept:
        users[head // group] += 1
    kept_kv = [kv_head for kv_head, count in enumerate(users) if count]
    if len({users[kv_head] for kv_head in kept_kv}) > 1:
        expected = "equally many query heads left on every key head that stays"
        hint = "prune whole groups, or the same number from each; head_mask= switches any head off"
        raise ShapeError("heads", expected, f"{users} left on the {len(users)} key heads", hint)
    return kept, kept_kv


def keep_rows(projection: nn.Linear, heads: list[int], width: int) -> None:
    """Leave the outputs of these heads only."""
    rows = _features(heads, width, projection.weight.device)
    projection.weight = like(projection.weight, projection.weight[rows])
    if projection.bias is not None:
        projection.bias = like(projection.bias, projection.bias[rows])
    projection.out_features = len(rows)


def keep_columns(projection: nn.Linear, heads: list[int], width: int) -> None:
    """Leave the inputs of these heads only."""
    columns = _features(heads, width, projection.weight.device)
    projection.weight = like(projection.weight, projection.weight[:, columns])
    projection.in_features = len(columns)


def like(parameter: nn.Parameter, values: Tensor) -> nn.Parameter:
    """A parameter of these values that is trained if the other one is."""
    return nn.Parameter(values.detach().clone(), requires_grad=parameter.requires_grad)


def _checked(heads: Iterable[int], num_heads: int) -> set[int]:
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


def _features(heads: list[int], width: int, device: torch.device) -> Tensor:
    index = torch.tensor(heads, device=device)[:, None] * width + torch.arange(width, device=device)
    return index.flatten()
