"""What goes into the attention of a layer and comes out of it, head by head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.compute.request import Aux
from headwise.compute.weights import AttentionWeights
from headwise.torch.operator.call import HALF


@dataclass(frozen=True, eq=False, repr=False)
class Heads:
    """One pass of a layer, head by head: ``layer.heads(x)``.

    Attributes:
        query: ``(..., H, n_q, d_k)``, as attention saw them: projected, normed, rotated.
        key: ``(..., H_kv, n_k, d_k)``, likewise.
        value: ``(..., H_kv, n_k, d_v)``.
        output: ``(..., H, n_q, d_v)``, before they are joined and go through ``out_proj``.
        aux: the statistics that were asked for, or None.
        options: the keyword arguments of ``attention`` that made them.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    aux: Aux | None
    options: dict[str, Any]

    def weights(self) -> AttentionWeights:
        """The attention weights of all heads, lazily: only what is indexed is computed.

        Half precision is read as float32, which holds its numbers exactly, as ``attention`` reads it.

        Raises:
            CapabilityError: not in the CPU's memory.

        >>> from headwise.torch import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, 2, is_causal=True)
        >>> layer.heads(torch.zeros(4, 8)).weights()[0, 3]
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        later = ("dropout_p", "rng", "head_mask", "implementation", "return_aux")
        options = {name: _read(option) for name, option in self.options.items() if name not in later}
        return AttentionWeights(_read(self.query), _read(self.key), **options)

    def __repr__(self) -> str:
        parts = ("query", "key", "value", "output")
        return f"Heads({', '.join(f'{name} {tuple(getattr(self, name).shape)}' for name in parts)})"


@dataclass(frozen=True, eq=False, repr=False)
class KeysValues:
    """Keys and values that many calls read, projected once: ``layer.keys_and_values(memory)``.

    It goes in the place of ``key``: ``layer(x, kept)``.

    Attributes:
        key, value: ``(..., H_kv, n_k, d)``.
        key_mask: ``(..., n_k)``, True = real token, or None.
    """

    key: Tensor
    value: Tensor
    key_mask: Tensor | None = None

    def reorder(self, index: Tensor | Sequence[int]) -> "KeysValues":
        """Entry i is what entry ``index[i]`` was, as beam search asks for; along the first axis."""
        picked = torch.as_tensor(index, device=self.key.device)
        mask = None if self.key_mask is None else self.key_mask[picked]
        return replace(self, key=self.key[picked], value=self.value[picked], key_mask=mask)

    def __repr__(self) -> str:
        masked = "" if self.key_mask is None else f", key_mask {tuple(self.key_mask.shape)}"
        return f"KeysValues(key {tuple(self.key.shape)}, value {tuple(self.value.shape)}{masked})"


def _read(option: Any) -> Any:
    """Tensors without their record, half precision as float32."""
    if isinstance(option, Tensor):
        option = option.detach()
        return option.float() if option.dtype in HALF else option
    return tuple(map(_read, option)) if isinstance(option, tuple) else option
