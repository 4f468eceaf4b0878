"""Multi-head attention as a torch layer: projections, positions and caches around ``attention``."""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.types import Device

from headwise.compute.request import Aux, AuxRequest
from headwise.errors import CapabilityError, HeadwiseError, ShapeError
from headwise.plain.types import AnyArray
from headwise.plain.values import shown
from headwise.torch.arguments import check_key_mask, refuse_script
from headwise.torch.caches.cache import Cache, Offset, Place
from headwise.torch.functional import attention
from headwise.torch.layer.heads import Heads, KeysValues
from headwise.torch.layer.inputs import (
    check_cache,
    check_input,
    check_kept,
    check_roles,
    merge_masks,
    offset_of,
    seen_columns,
)
from headwise.torch.layer.pruning import keep_columns, keep_rows, like, remaining
from headwise.torch.layer.settings import (
    check_options,
    resolve_alibi,
    resolve_norms,
    resolve_rel_bias,
    resolve_rope,
    resolve_sizes,
)
from headwise.torch.positions.biases import AlibiPositions, T5Positions
from headwise.torch.positions.embeddings import check_positions


class MultiHeadAttention(nn.Module):
    """Multi-head attention, batch first, with any number of leading axes, none included.

        head_i = attention(query W_Q^i, key W_K^i, value W_V^i)
        output = concatenate(head_1, ..., head_H) W_O

    (Vaswani et al. 2017, section 3.2.2.) The four projections are modules that are called: ``q_proj``,
    ``k_proj``, ``v_proj``, ``out_proj``; hooks, adapters and quantised replacements see every pass. Head i
    owns rows i * head_dim up to (i + 1) * head_dim of ``q_proj.weight``. No ``n_q x n_k`` array is made, in
    training neither, unless a mask, ``attn_bias`` or ``rel_bias`` is one.

    Args:
        embed_dim: width of the queries that come in.
        num_heads: H. Divides ``embed_dim`` unless ``head_dim`` is given.
        num_kv_heads: H_kv, divides H; query head h uses key head h // (H / H_kv). None means H; 1 is
            multi-query attention.
        head_dim: width of a head's queries and keys; None means embed_dim / H.
        v_head_dim: width of a head's values; None means ``head_dim``.
        kdim, vdim: width of the keys and values that come in; None means ``embed_dim``, and for ``vdim`` that
            of the keys.
        out_dim: width of the output; None means ``embed_dim``.
        bias: whether the projections have biases; ``q_bias``, ``k_bias``, ``v_bias``, ``out_bias`` override
            it one by one.
        qk_norm: "rms" or "layer" (over the features of a head, with learned gains ``q_norm``, ``k_norm``),
            "l2" (to length 1), or a pair of modules; before the rotation.
        rope: True or a ``RotaryPositions``: turns queries and keys.
        alibi: True or an ``AlibiPositions``: lowers scores with the distance.
        rel_bias: True or a ``T5Positions``: adds a learned bias per distance and head.
        window_size: (left, right): keys seen before and after the query's own position; None = open.
        softcap: c > 0; the scaled score s becomes c tanh(s / c).
        sinks: number of learned logits per head that take part in the softmax and have no value; parameter
            ``sinks``, ``(H, sinks)``, which begins at 0.
        is_causal: query i sees key j only if j <= i + offset.
        dropout: probability of dropping a weight, in training only.
        scale: factor of the scores; None means 1/sqrt(head_dim).
        device, dtype: of the parameters; ``device="meta"`` makes none.

    Attributes:
        embed_dim, num_heads, num_kv_heads, head_dim, v_head_dim, kdim, vdim, out_dim: the resolved sizes.

    Raises:
        ShapeError, HeadwiseError: sizes or options that do not fit.

    >>> layer = MultiHeadAttention(512, 8, is_causal=True)
    >>> x = torch.randn(2, 10, 512)
    >>> layer(x).shape
    torch.Size([2, 10, 512])
    >>> output, aux = layer(x, return_aux=AuxRequest(entropy=True))
    >>> aux.entropy.shape
    torch.Size([2, 8, 10])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        v_head_dim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        out_dim: int | None = None,
        bias: bool = True,
        q_bias: bool | None = None,
        k_bias: bool | None = None,
        v_bias: bool | None = None,
        out_bias: bool | None = None,
        qk_norm: str | tuple[nn.Module, nn.Module] | None = None,
        rope: bool | nn.Module | None = None,
        alibi: bool | AlibiPositions = False,
        rel_bias: bool | T5Positions | None = None,
        window_size: tuple[int | None, int | None] | None = None,
        softcap: float | None = None,
        sinks: int = 0,
        is_causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = resolve_sizes(embed_dim, num_heads, num_kv_heads, head_dim, v_head_dim, kdim, vdim, out_dim)
        self.embed_dim, self.out_dim, self.kdim, self.vdim = (
            sizes.embed_dim, sizes.out_dim, sizes.kdim, sizes.vdim,
        )  # fmt: skip
        self.num_heads, self.num_kv_heads = sizes.num_heads, sizes.num_kv_heads
        self.head_dim, self.v_head_dim = sizes.head_dim, sizes.v_head_dim
        self.window_size = check_options(is_causal, dropout, scale, softcap, sinks, window_size)
        self.is_causal, self.dropout, self.scale, self.softcap = is_causal, float(dropout), scale, softcap

        def linear(width_in: int, width_out: int, own_bias: bool | None) -> nn.Linear:
            with_bias = bias if own_bias is None else own_bias
            return nn.Linear(width_in, width_out, bias=with_bias, device=device, dtype=dtype)

        self.q_proj = linear(self.embed_dim, self.num_heads * self.head_dim, q_bias)
        self.k_proj = linear(self.kdim, self.num_kv_heads * self.head_dim, k_bias)
        self.v_proj = linear(self.vdim, self.num_kv_heads * self.v_head_dim, v_bias)
        self.out_proj = linear(self.num_heads * self.v_head_dim, self.out_dim, out_bias)
        norms = resolve_norms(qk_norm, self.head_dim, device, dtype)
        self.q_norm: nn.Module | None = None if norms is None else norms[0]
        self.k_norm: nn.Module | None = None if norms is None else norms[1]
        self.rope = resolve_rope(rope, self.head_dim)
        self.alibi = resolve_alibi(alibi, self.num_heads)
        self.rel_bias = resolve_rel_bias(rel_bias, self.num_heads, is_causal, device, dtype)
        self.sinks = None
        if sinks:
            self.sinks = nn.Parameter(torch.zeros(self.num_heads, sinks, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights uniform, of variance 2 / (width in + width out) (Glorot and Bengio 2010); others 0.

        What stands in the place of a projection, such as an adapter, resets itself if it can.
        """
        others: list[nn.Module | None] = [self.q_norm, self.k_norm, self.rel_bias]
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if not isinstance(projection, nn.Linear):
                others.append(projection)
                continue
            nn.init.xavier_uniform_(projection.weight)
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)
        for module in others:
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()

    def forward(
        self,
        query: Tensor,
        key: Tensor | KeysValues | None = None,
        value: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        attn_bias: Tensor | None = None,
        key_mask: Tensor | None = None,
        segment_ids: AnyArray | None = None,
        is_causal: bool | None = None,
        causal_alignment: str | None = None,
        query_offset: Offset | Sequence[int] | None = None,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        head_mask: AnyArray | None = None,
        cache: Cache | None = None,
        rng: int | Tensor | torch.Generator | np.random.Generator | None = None,
        return_aux: AuxRequest | None = None,
        implementation: str = "auto",
    ) -> Tensor | tuple[Tensor, Aux]:
        """Attend.

        Args:
            query: ``(..., n_q, embed_dim)``.
            key: ``(..., n_k, kdim)``; None means self-attention; or what :meth:`keys_and_values` made.
            value: ``(..., n_k, vdim)``; None means ``key``.
            attn_mask, attn_bias: as for ``attention``, over ``(..., H, n_q, n_k)``; beside a cache the
                columns are all tokens so far.
            key_mask: ``(..., n_k)``, True = real token; padding is seen by nobody. Beside a cache it covers
                the new tokens, padded on the left or on the right.
            segment_ids: for packed sequences, as for ``attention``: tokens see those of their own id. Beside
                a cache a pair: the ids of the new tokens, and those of all tokens so far.
            is_causal: None means what the layer was made with.
            causal_alignment, query_offset: where the queries stand among the keys, as for ``attention``;
                needed in cross-attention where something uses positions and n_q != n_k.
            positions, key_positions: whole numbers that broadcast to ``(..., n)``: which rotary angle each
                row gets. None means by the offset, or what the cache says; keys of self-attention take those
                of the queries.
            head_mask: ``(H,)`` or ``(..., H)``, factors of the heads' outputs.
            cache: keeps keys and values for the next call and says where the queries stand.
            rng: what decides which weights dropout drops, as for ``attention``; None draws from torch's own
                generator. Used in training only.
            return_aux: statistics to return beside the output.
            implementation: as for ``attention``.

        Returns:
            The output ``(..., n_q, out_dim)``, or ``(output, Aux)`` when ``return_aux`` is given.

        Raises:
            ShapeError, DtypeError, CapabilityError, HeadwiseError: see ``headwise.errors``.
        """
        heads = self.heads(
            query, key, value, attn_mask=attn_mask, attn_bias=attn_bias, key_mask=key_mask,
            segment_ids=segment_ids, is_causal=is_causal, causal_alignment=causal_alignment,
            query_offset=query_offset, positions=positions, key_positions=key_positions, head_mask=head_mask,
            cache=cache, rng=rng, return_aux=return_aux, implementation=implementation,
        )  # fmt: skip
        output = self.out_proj(heads.output.transpose(-2, -3).flatten(-2))
        return output if return_aux is None else (output, heads.aux)

    def heads(
        self,
        query: Tensor,
        key: Tensor | KeysValues | None = None,
        value: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        attn_bias: Tensor | None = None,
        key_mask: Tensor | None = None,
        segment_ids: AnyArray | None = None,
        is_causal: bool | None = None,
        causal_alignment: str | None = None,
        query_offset: Offset | Sequence[int] | None = None,
        positions: Tensor | None = None,
        key_positions: Tensor | None = None,
        head_mask: AnyArray | None = None,
        cache: Cache | None = None,
        rng: int | Tensor | torch.Generator | np.random.Generator | None = None,
        return_aux: AuxRequest | None = None,
        implementation: str = "auto",
    ) -> Heads:
        """The same pass, stopped before the heads are joined: queries, keys, values and outputs per head.

        ``layer.heads(x).weights()`` are the attention weights, computed where they are looked at. The
        arguments are those of :meth:`forward`.
        """
        check_input("query", query, self.embed_dim, self.q_proj)
        lead, n_q = tuple(query.shape[:-2]), query.shape[-2]
        check_roles(key, value, positions, key_positions, self.rope is not None)
        place: Place | None = None
        if cache is not None:
            placed = query_offset is not None or causal_alignment is not None
            check_cache(cache, key is None, self.is_causal or is_causal is not None, placed)
            cache.check_window(self.window_size)
            cache.check_user(self)
            place, key_mask = cache.place(lead, n_q, key_mask), None
        if isinstance(key, KeysValues):
            if key_mask is not None:
                hint = "keys_and_values(memory, key_mask=...)"
                expected = "None beside a KeysValues, which holds its own"
                raise HeadwiseError("key_mask", expected, "a mask", hint)
            check_kept(key, lead, self.num_kv_heads, (self.head_dim, self.v_head_dim))
            k, v, key_mask = key.key, key.value, key.key_mask
        else:
            if key is None and self.kdim != self.embed_dim:
                width = f"a tensor (..., n, {self.kdim})"
                expected = f"{width}: this layer reads another width than its queries have"
                raise ShapeError("key", expected, "None", "layer(x, memory)")
            k, v = self._project(query if key is None else key, value, lead)
        q = _split(self.q_proj(query), self.num_heads)
        if self.q_norm is not None:
            q = _normed(self.q_norm, q)
        n_k = k.shape[-2]
        if self.rope is not None:
            start: Offset = 0
            if place is not None:
                start = place.position
            elif positions is None:
                start = offset_of("rope", n_q, n_k, key is None, query_offset, causal_alignment)
            check_positions("positions", positions, (*lead, n_q))
            q = self.rope(q, positions, offset=start)
            if not isinstance(key, KeysValues):
                own_positions = positions if key is None and key_positions is None else key_positions
                check_positions("key_positions", own_positions, (*lead, n_k))
                k = self.rope(k, own_positions, offset=0 if place is None else start)

        options: dict[str, Any] = {"query_offset": query_offset, "causal_alignment": causal_alignment}
        if cache is not None and place is not None:
            seen = cache.write(k, v, place)
            k, v = seen.key, seen.value
            attn_mask = seen_columns("attn_mask", attn_mask, seen)
            attn_bias = seen_columns("attn_bias", attn_bias, seen)
            options = {"query_offset": seen.query_offset, "kv_lengths": seen.kv_lengths}
        if key_mask is not None:
            check_key_mask(key_mask, (*lead, n_k))
            attn_mask, segment_ids = merge_masks(attn_mask, key_mask, segment_ids, n_q)
        if self.rel_bias is not None:
            offset = options["query_offset"]
            if place is None:
                offset = offset_of("rel_bias", n_q, n_k, key is None, query_offset, causal_alignment)
            relative = self.rel_bias(n_q, k.shape[-2], offset=offset)
            attn_bias = relative if attn_bias is None else relative + attn_bias
        if self.training and self.dropout > 0:
            options["dropout_p"] = self.dropout
            options["rng"] = torch.randint(2**63 - 1, (), device="cpu") if rng is None else rng
        options |= {
            "attn_mask": attn_mask,
            "attn_bias": attn_bias,
            "segment_ids": segment_ids,
            "is_causal": self.is_causal if is_causal is None else is_causal,
            "scale": self.scale,
            "window_size": None if self.window_size == (None, None) else self.window_size,
            "softcap": self.softcap,
            "alibi_slopes": None if self.alibi is None else self.alibi(query.device),
            "sinks": self.sinks,
            "head_mask": head_mask,
            "implementation": implementation,
        }
        options = {name: option for name, option in options.items() if option is not None}
        result = attention(q, k, v, return_aux=return_aux, **options)
        if cache is not None and place is not None:
            cache.commit(place)
        output, aux = (result, None) if return_aux is None else result
        return Heads(q, k, v, output, aux, options)

    def keys_and_values(
        self,
        key: Tensor,
        value: Tensor | None = None,
        *,
        key_mask: Tensor | None = None,
        key_positions: Tensor | None = None,
    ) -> KeysValues:
        """Project a sequence once, to be read by any number of calls: ``layer(x, kept)``.

        The encoder's output in a decoder is the usual case: its keys and values do not change from token to
        token.

        Args:
            key, value, key_mask, key_positions: as for :meth:`forward`.

        Raises:
            ShapeError, DtypeError, HeadwiseError: as :meth:`forward`.
        """
        if not isinstance(key, Tensor):
            hint = "the sequence that the queries will read"
            raise HeadwiseError("key", f"a tensor (..., n_k, {self.kdim})", shown(key), hint)
        check_roles(key, value, None, key_positions, self.rope is not None)
        k, v = self._project(key, value, tuple(key.shape[:-2]))
        if self.rope is not None:
            k = self.rope(k, key_positions)
        if key_mask is not None:
            check_key_mask(key_mask, tuple(key.shape[:-1]))
        return KeysValues(k, v, key_mask)

    def prune_heads(self, heads: Iterable[int]) -> None:
        """Remove query heads for good: their rows of the projections, their columns of ``out_proj``.

        The result is that of a ``head_mask`` with 0 at these heads. Key heads that no query head uses any
        more go with them; the ones that stay have to serve equally many query heads. Make optimisers
        afterwards: the parameters are new ones.

        Args:
            heads: indexes among the heads that the layer has now.

        Raises:
            HeadwiseError: no such head, or all of them.
            ShapeError: key heads would be left with unlike numbers of query heads.
            CapabilityError: a projection that is no plain ``nn.Linear``.
        """
        kept, kept_kv = remaining(heads, self.num_heads, self.num_kv_heads)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            if type(getattr(self, name)) is not nn.Linear:
                received = f"{type(getattr(self, name)).__name__} in its place"
                hint = "merge adapters and prune before quantising; head_mask= switches heads off"
                raise CapabilityError(name, "a plain nn.Linear", received, hint)
        keep_rows(self.q_proj, kept, self.head_dim)
        keep_rows(self.k_proj, kept_kv, self.head_dim)
        keep_rows(self.v_proj, kept_kv, self.v_head_dim)
        keep_columns(self.out_proj, kept, self.v_head_dim)
        if self.sinks is not None:
            self.sinks = like(self.sinks, self.sinks[kept])
        if self.alibi is not None:
            self.alibi = self.alibi.keep(kept)
        if self.rel_bias is not None:
            self.rel_bias = self.rel_bias.keep(kept)
        self.num_heads, self.num_kv_heads = len(kept), len(kept_kv)

    def _project(self, key: Tensor, value: Tensor | None, lead: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Keys, normed, and values, per head."""
        value = key if value is None else value
        check_input("key", key, self.kdim, self.k_proj, lead)
        check_input("value", value, self.vdim, self.v_proj, lead)
        if value.shape[-2] != key.shape[-2]:
            expected = f"{key.shape[-2]} rows, one per row of key {tuple(key.shape)}"
            raise ShapeError("value", expected, f"shape {tuple(value.shape)}", "value j belongs to key j")
        k = _split(self.k_proj(key), self.num_kv_heads)
        v = _split(self.v_proj(value), self.num_kv_heads)
        return (k if self.k_norm is None else _normed(self.k_norm, k)), v

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_script()

    def extra_repr(self) -> str:
        told = [f"{self.embed_dim}", f"{self.num_heads}"]
        defaults = {
            "num_kv_heads": self.num_heads,
            "head_dim": self.embed_dim // self.num_heads,
            "v_head_dim": self.head_dim,
            "kdim": self.embed_dim,
            "vdim": self.kdim,
            "out_dim": self.embed_dim,
            "window_size": (None, None),
            "softcap": None,
            "is_causal": False,
            "dropout": 0.0,
            "scale": None,
        }
        for name, usual in defaults.items():
            found = getattr(self, name)
            if found != usual:
                told.append(f"{name}={found}")
        if self.sinks is not None:
            told.append(f"sinks={self.sinks.shape[1]}")
        return ", ".join(told)


def _normed(norm: nn.Module, heads: Tensor) -> Tensor:
    """The norm, in the dtype of its gains: under autocast features arrive in half precision."""
    gains = getattr(norm, "weight", None)
    if not isinstance(gains, Tensor) or gains.dtype == heads.dtype:
        return norm(heads)
    return norm(heads.to(gains.dtype)).to(heads.dtype)


def _split(x: Tensor, heads: int) -> Tensor:
    """(..., n, H * d) -> (..., H, n, d): a view."""
    *lead, width = x.shape
    return x.reshape(*lead, heads, width // heads).transpose(-2, -3)
