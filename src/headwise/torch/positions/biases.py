"""Positions in the scores, as torch modules: the slopes of ALiBi and the learned relative biases of T5."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.types import Device

from headwise.compute.positions import alibi_slopes, t5_buckets
from headwise.errors import HeadwiseError
from headwise.plain.types import AnyArray
from headwise.plain.values import shown
from headwise.torch.arguments import positive
from headwise.torch.caches.cache import Offset


class AlibiPositions(nn.Module):
    """The slopes of ALiBi (Press et al. 2022), for ``MultiHeadAttention(alibi=...)``: no parameters.

    Args:
        num_heads: number of query heads.
        slopes: one per head; None means those of ``headwise.positions.alibi_slopes``.

    Raises:
        HeadwiseError: ``num_heads`` is no whole number >= 1, or the slopes are not one finite number per
        head.
    """

    def __init__(self, num_heads: int, *, slopes: AnyArray | None = None) -> None:
        super().__init__()
        given = alibi_slopes(num_heads) if slopes is None else np.asarray(slopes, np.float64)
        if given.shape != (num_heads,) or not np.isfinite(given).all():
            expected = f"{num_heads} finite numbers, one per head"
            raise HeadwiseError("slopes", expected, shown(slopes), "None takes those of the paper")
        self.slopes = tuple(given.tolist())

    def forward(self, device: torch.device | None = None) -> Tensor:
        """The slopes, ``(num_heads,)`` float64, for ``attention(..., alibi_slopes=...)``."""
        return torch.tensor(self.slopes, dtype=torch.float64, device=device)

    def keep(self, heads: list[int]) -> "AlibiPositions":
        """The same for some of the heads."""
        return AlibiPositions(len(heads), slopes=[self.slopes[head] for head in heads])

    def extra_repr(self) -> str:
        return f"{len(self.slopes)}"


class T5Positions(nn.Module):
    """T5's learned relative biases (Raffel et al. 2020), for ``MultiHeadAttention(rel_bias=...)``.

    The bias of head h for query i and key j is ``weight[bucket(j - i), h]``;
    ``headwise.positions.t5_buckets`` has the formula. One module may serve any number of layers, as in T5.
    Attention takes the bias as numbers, so that this is the one position scheme here that holds ``H x n_q x
    n_k`` of them.

    Args:
        num_heads: number of query heads.
        bidirectional: True in encoders; False in decoders.
        num_buckets: of both sides together.
        max_distance: from here on every distance shares the last bucket.
        device, dtype: of the parameter ``weight``, ``(num_buckets, num_heads)``, normal with deviation 0.02.

    Raises:
        HeadwiseError: ``num_heads`` is no whole number >= 1, too few buckets, ``max_distance`` too small.
    """

    def __init__(
        self,
        num_heads: int,
        *,
        bidirectional: bool = True,
        num_buckets: int = 32,
        max_distance: int = 128,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.bidirectional = positive("num_heads", num_heads), bidirectional
        self.num_buckets, self.max_distance = num_buckets, positive("max_distance", max_distance)
        # Bucket of every key position minus query position from -max_distance to max_distance.
        buckets = t5_buckets(
            1, 2 * max_distance + 1, query_offset=max_distance, bidirectional=bidirectional,
            num_buckets=num_buckets, max_distance=max_distance,
        )  # fmt: skip
        self._buckets = tuple(buckets[0].tolist())
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, n_q: int, n_k: int, *, offset: Offset = 0) -> Tensor:
        """The bias ``(H, n_q, n_k)``, or ``(*lead, H, n_q, n_k)`` for offsets per entry.

        Args:
            n_q, n_k: number of queries and of keys.
            offset: position of query 0 among the keys.
        """
        device = self.weight.device
        # One number per distance: from key 0 seen by the last query to the last key seen by query 0.
        relative = torch.arange(max(n_q + n_k - 1, 0), device=device) - (n_q - 1)
        if isinstance(offset, Tensor):
            relative = relative - offset.to(device)[..., None]
        else:
            relative = relative - offset
        buckets = torch.tensor(self._buckets, device=device)
        at = buckets[relative.clamp(-self.max_distance, self.max_distance) + self.max_distance]
        by_distance = self.weight[at].transpose(-1, -2)  # (..., H, n_q + n_k - 1)
        if n_q == 0 or n_k == 0:
            return by_distance.new_empty(*by_distance.shape[:-1], n_q, n_k)
        if torch.compiler.is_compiling():  # an exported unfold would hold for this n_k only
            keys, queries = torch.arange(n_k, device=device), torch.arange(n_q, device=device)
            return by_distance[..., keys + (n_q - 1) - queries[:, None]]
        # Window a of n_k distances is the row of query n_q - 1 - a.
        return by_distance.unfold(-1, n_k, 1).flip(-2)

    def keep(self, heads: list[int]) -> "T5Positions":
        """A module of its own for some of the heads."""
        kept = T5Positions(
            len(heads),
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        with torch.no_grad():
            kept.weight.copy_(self.weight[:, heads])
        kept.weight.requires_grad_(self.weight.requires_grad)
        return kept

    def extra_repr(self) -> str:
        return (
            f"{self.num_heads}, bidirectional={self.bidirectional}, num_buckets={self.num_buckets}, "
            f"max_distance={self.max_distance}"
        )
