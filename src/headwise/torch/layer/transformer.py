"""The home of the attention layer: encoder and decoder layers, with norms before or after."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.types import Device

from headwise.compute.request import Aux, AuxRequest
from headwise.errors import HeadwiseError, ShapeError
from headwise.plain.values import shown
from headwise.torch.arguments import check_key_mask, positive
from headwise.torch.caches.cache import Cache
from headwise.torch.layer.heads import KeysValues
from headwise.torch.layer.multi_head import MultiHeadAttention
from headwise.torch.layer.settings import check_probability

Activation = str | Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


class FeedForward(nn.Module):
    """``down(activation(up(x)))``, or ``down(activation(gate(x)) * up(x))`` where gated.

    Args:
        width: d_model.
        hidden: width between the two maps.
        activation: "gelu", "relu", "silu" or a function.
        gated: whether a third map gates the hidden numbers (Shazeer 2020); with "silu" this is SwiGLU.
        bias: of the maps.
        dropout: of the hidden numbers, in training.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        activation: Activation,
        gated: bool,
        bias: bool,
        dropout: float,
        **made: Any,
    ) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=bias, **made)
        self.gate = nn.Linear(width, hidden, bias=bias, **made) if gated else None
        self.down = nn.Linear(hidden, width, bias=bias, **made)
        self.dropout = nn.Dropout(dropout)
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.dropout(self.activation(self.up(x))))
        return self.down(self.dropout(self.activation(self.gate(x)) * self.up(x)))


def _check_widths(attention: MultiHeadAttention, hint: str) -> None:
    """Self-attention on a residual path: what goes in and comes out has the width of the path.

    Raises:
        ShapeError: an option gave it another width.
    """
    for name in ("kdim", "vdim", "out_dim"):
        width = getattr(attention, name)
        if width != attention.embed_dim:
            expected = f"embed_dim = {attention.embed_dim}: this is self-attention on a residual path"
            raise ShapeError(name, expected, str(width), hint)


class _Block(nn.Module):
    """What both layers share: sizes, norms, feed-forward, residual paths."""

    def __init__(
        self,
        embed_dim: int,
        ff_dim: int | None,
        norms: int,
        activation: Activation,
        gated: bool,
        norm: str,
        norm_first: Any,
        dropout: float,
        bias: bool,
        made: dict[str, Any],
    ) -> None:
        super().__init__()
        hidden = 4 * positive("embed_dim", embed_dim) if ff_dim is None else positive("ff_dim", ff_dim)
        if not callable(activation) and activation not in ACTIVATIONS:
            expected = f"{', '.join(ACTIVATIONS)} or a function"
            raise HeadwiseError("activation", expected, shown(activation), 'activation="gelu"')
        if norm not in ("layer", "rms"):
            raise HeadwiseError("norm", '"layer" or "rms"', shown(norm), 'norm="layer" is the usual one')
        if type(norm_first) is not bool:
            hint = "True: x + f(norm(x)); False: norm(x + f(x))"
            raise HeadwiseError("norm_first", "True or False", shown(norm_first), hint)
        check_probability(dropout)
        self.norm_first = norm_first
        kind = nn.LayerNorm if norm == "layer" else nn.RMSNorm
        self.norms = nn.ModuleList(kind(embed_dim, eps=1e-5, **made) for _ in range(norms))
        self.feed_forward = FeedForward(embed_dim, hidden, activation, gated, bias, dropout, **made)
        self.dropout = nn.Dropout(dropout)

    def _add(self, x: Tensor, index: int, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x plus a part of it, with norm number ``index`` before the part or after the sum."""
        norm = self.norms[index]
        if self.norm_first:
            return x + self.dropout(part(norm(x)))
        return norm(x + self.dropout(part(x)))


class EncoderLayer(_Block):
    """Self-attention and a feed-forward net, each with a norm and a residual path.

        norm_first:  x = x + attention(norm(x));  x = x + feed_forward(norm(x))
        otherwise:   x = norm(x + attention(x));  x = norm(x + feed_forward(x))

    With ``is_causal=True`` it is the layer of a decoder-only model, and takes a cache.

    Args:
        embed_dim, num_heads: d_model and H.
        ff_dim: hidden width of the feed-forward net; None means 4 * embed_dim.
        activation: "gelu", "relu", "silu" or a function.
        gated: feed-forward net with a gate.
        norm: "layer" or "rms".
        norm_first: norm before each part, or after each sum (Vaswani et al. 2017).
        dropout: of attention weights, hidden numbers and of what each part adds; in training only.
        bias: of all linear maps.
        device, dtype: of the parameters.
        attention: the other options of ``MultiHeadAttention``, such as ``rope=True``.

    Attributes:
        attention: the ``MultiHeadAttention``.
        norms: of attention and feed-forward net.

    Raises:
        ShapeError, HeadwiseError: sizes or options that do not fit.

    >>> import torch
    >>> EncoderLayer(32, 4, is_causal=True, rope=True)(torch.randn(2, 10, 32)).shape
    torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        ff_dim: int | None = None,
        activation: Activation = "gelu",
        gated: bool = False,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **attention: Any,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        super().__init__(embed_dim, ff_dim, 2, activation, gated, norm, norm_first, dropout, bias, made)
        self.attention = MultiHeadAttention(
            embed_dim, num_heads, dropout=dropout, bias=bias, **made, **attention
        )
        _check_widths(self.attention, "DecoderLayer(memory_dim=...) reads a sequence of another width")

    def forward(
        self, x: Tensor, *, return_aux: AuxRequest | None = None, **options: Any
    ) -> Tensor | tuple[Tensor, Aux]:
        """The layer's output ``(..., n, embed_dim)``, or ``(output, Aux)`` when ``return_aux`` is given.

        Args:
            x: ``(..., n, embed_dim)``.
            options: keywords of ``MultiHeadAttention.forward``: ``key_mask``, ``cache``, ``head_mask``, ...
        """
        said: list[Aux] = []

        def attend(normed: Tensor) -> Tensor:
            result = self.attention(normed, return_aux=return_aux, **options)
            if return_aux is None:
                return result
            said.append(result[1])
            return result[0]

        x = self._add(self._add(x, 0, attend), 1, self.feed_forward)
        return x if return_aux is None else (x, said[0])


class DecoderLayer(_Block):
    """Causal self-attention, attention over a memory, a feed-forward net, each with norm and residual.

    Args:
        embed_dim, num_heads, ff_dim, activation, gated, norm, norm_first, dropout, bias, device, dtype: as
            for :class:`EncoderLayer`.
        memory_dim: width of the memory; None means embed_dim.
        attention: the other options of the self-attention, causal unless they say otherwise. Of these
            ``num_kv_heads``, ``head_dim``, ``qk_norm`` and ``softcap`` go to the attention over the memory
            too.

    Attributes:
        attention, memory_attention: the two ``MultiHeadAttention``.
        norms: of self-attention, attention over the memory, feed-forward net.

    Raises:
        ShapeError, HeadwiseError: sizes or options that do not fit.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        memory_dim: int | None = None,
        ff_dim: int | None = None,
        activation: Activation = "gelu",
        gated: bool = False,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        **attention: Any,
    ) -> None:
        made = {"device": device, "dtype": dtype}
        super().__init__(embed_dim, ff_dim, 3, activation, gated, norm, norm_first, dropout, bias, made)
        attention = {"is_causal": True, "dropout": dropout, "bias": bias} | attention
        self.attention = MultiHeadAttention(embed_dim, num_heads, **made, **attention)
        _check_widths(self.attention, "memory_dim= is the width of the memory")
        shared = {
            name: attention[name]
            for name in ("num_kv_heads", "head_dim", "qk_norm", "softcap")
            if name in attention
        }
        self.memory_attention = MultiHeadAttention(
            embed_dim, num_heads, kdim=memory_dim, dropout=dropout, bias=bias, **made, **shared
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | KeysValues,
        *,
        memory_mask: Tensor | None = None,
        cache: Cache | None = None,
        return_aux: AuxRequest | None = None,
        **options: Any,
    ) -> Tensor | tuple[Tensor, tuple[Aux, ...]]:
        """The output ``(..., n, embed_dim)``, or ``(output, (Aux, Aux))`` when ``return_aux`` is given.

        Args:
            x: ``(..., n, embed_dim)``.
            memory: ``(..., n_k, memory_dim)``, or ``self.memory_attention.keys_and_values(memory)``, so that
                it is projected once for all tokens.
            memory_mask: ``(..., n_k)``, True = real token of the memory.
            cache: of the self-attention.
            return_aux: statistics of both attentions: of x over itself, of x over the memory.
            options: other keywords of ``MultiHeadAttention.forward`` for the self-attention.
        """
        said: list[Aux] = []
        if memory_mask is not None and isinstance(memory, Tensor):
            check_key_mask(memory_mask, tuple(memory.shape[:-1]), "memory_mask")

        def own(normed: Tensor) -> Tensor:
            return kept(self.attention(normed, cache=cache, return_aux=return_aux, **options))

        def other(normed: Tensor) -> Tensor:
            return kept(self.memory_attention(normed, memory, key_mask=memory_mask, return_aux=return_aux))

        def kept(result: Tensor | tuple[Tensor, Aux]) -> Tensor:
            if return_aux is None:
                return result
            said.append(result[1])
            return result[0]

        x = self._add(x, 0, own)
        x = self._add(x, 1, other)
        x = self._add(x, 2, self.feed_forward)
        return x if return_aux is None else (x, tuple(said))
