"""In the place of ``torch.nn.MultiheadAttention``: the same calls and parameters, headwise inside.

``docs/in_place_of_torch.md`` lists where the answers differ from torch's, and why.
"""

import copy
import math
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.compute.request import AuxRequest
from headwise.torch.arguments import refuse_script
from headwise.torch.compat.inputs import as_seen, check_call
from headwise.torch.functional import attention

LSE = AuxRequest(lse=True)


class MultiheadAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` with headwise's attention: names, defaults, masks, parameters as there.

    Everything that one is, this one is, and state dicts load both ways. In masks True hides a key, floats are
    added to the scores; sequences come first unless ``batch_first``; weights are returned unless
    ``need_weights=False``, averaged over heads unless ``average_attn_weights=False``. Output comes from the
    fused pass in either case; the weight matrix is made only where it is asked for.

    What is better than there (each with a test, listed in ``docs/in_place_of_torch.md``): a row whose keys
    are all hidden gives 0 before the output projection, and no gradient, instead of NaN; ``is_causal=True``
    needs no mask beside it and composes with one; masked NaN does not spread; returned weights are those
    before dropout; ``out_proj`` is called as a module, so that its hooks run and adapters on it work.

    Args:
        embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device,
            dtype: as for ``torch.nn.MultiheadAttention``.

    >>> import torch
    >>> layer = MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> output, weights = layer(x, x, x, is_causal=True)
    >>> output.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keep_fast_path_away()

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiheadAttention":
        """A layer that shares the parameters, submodules and hooks of ``module``; nothing is copied."""
        layer = cls.__new__(cls)
        for name, held in module.__dict__.items():
            # Dictionaries of the layer's own, so that later changes to one do not reach the other.
            layer.__dict__[name] = copy.copy(held) if isinstance(held, dict) else held
        layer._keep_fast_path_away()
        return layer

    def _keep_fast_path_away(self) -> None:
        # torch's encoder layers compute attention from the parameters, past forward(), unless this is False.
        self._qkv_same_embed_dim = False

    def _reset_parameters(self) -> None:
        """As there; torch's own asks the flag above which of the parameters exist."""
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        self._keep_fast_path_away()

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_script()

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of ``query`` to ``key`` and ``value``.

        Args:
            query: ``(n_q, B, embed_dim)``, ``(B, n_q, embed_dim)`` with ``batch_first``, or ``(n_q,
                embed_dim)``.
            key: as query, with n_k and kdim.
            value: as key, with vdim.
            key_padding_mask: ``(B, n_k)``, or ``(n_k,)`` without a batch: True hides the key; floats are
                added.
            need_weights: return the weights too.
            attn_mask: ``(n_q, n_k)`` or ``(B * num_heads, n_q, n_k)``: True hides; floats are added.
            average_attn_weights: weights ``(B, n_q, n_k)``, the mean over heads, or ``(B, num_heads, n_q,
                n_k)``.
            is_causal: query i sees keys up to i, beside what the masks hide. With n_q != n_k and a mask,
                the mask alone says who sees whom; without one the call is refused.

        Returns:
            The output, of query's shape, and the weights before dropout, or None.

        Raises:
            ShapeError, DtypeError, CapabilityError, HeadwiseError: see ``headwise.errors``.
        """
        batched = check_call(self, query, key, value)
        n_q, n_k = (x.shape[1 if self.batch_first and batched else 0] for x in (query, key))
        batch = query.shape[0 if self.batch_first else 1] if batched else 1
        q, k, v = self._projected(query, key, value, batched)
        lengths = (batch, n_q, n_k)
        mask, bias = as_seen(attn_mask, key_padding_mask, batched, self.num_heads, lengths, q.dtype)
        q_offset = None
        if is_causal and n_q != n_k and attn_mask is not None:
            is_causal = False
        if self.bias_k is not None and self.bias_v is not None:
            # The learned key stands before the others, so that a causal row sees it: at offset 1.
            k, v = (self._with_first(x, one) for x, one in ((k, self.bias_k), (v, self.bias_v)))
            mask, bias = (None if x is None else _with_first_column(x) for x in (mask, bias))
            if is_causal:
                q_offset = 1 if n_q == n_k else None
        dropout_p = self.dropout if self.training else 0.0
        output, lse = self._attend(q, k, v, mask, bias, is_causal, q_offset, dropout_p, need_weights)
        joined = output.permute(0, 2, 1, 3) if self.batch_first else output.permute(2, 0, 1, 3)
        joined = joined.flatten(-2)
        if not batched:
            joined = joined.squeeze(0 if self.batch_first else 1)
        answer = self.out_proj(joined)
        if not need_weights or lse is None:
            return answer, None
        weights = self._weights(q, k, lse, mask, bias, is_causal, q_offset, average_attn_weights)
        return answer, weights if batched else weights.squeeze(0)

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, is_causal: bool,
        q_offset: int | None, dropout_p: float, need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        sinks = None
        if self.add_zero_attn:  # a key and a value of zeros: a logit of 0 that has no value
            sinks = torch.zeros(self.num_heads, dtype=q.dtype, device=q.device)
        rng = torch.randint(2**63 - 1, (), device="cpu") if dropout_p > 0 else None
        answer = attention(
            q, k, v, mask, dropout_p, is_causal, attn_bias=bias, query_offset=q_offset, sinks=sinks, rng=rng,
            return_aux=LSE if need_weights else None,
        )  # fmt: skip
        return (answer[0], answer[1].lse) if need_weights else (answer, None)

    def _projected(
        self, query: Tensor, key: Tensor, value: Tensor, batched: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of all heads, ``(B, H, n, d)``, seen in the projections' own memory."""
        weight, bias, width = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        if weight is not None and query is key and key is value:
            projected = F.linear(query, weight, bias).split(width, -1)
        elif weight is not None and key is value:
            of_query, of_others = (None, None) if bias is None else bias.split((width, 2 * width))
            both = F.linear(key, weight[width:], of_others)
            projected = (F.linear(query, weight[:width], of_query), *both.split(width, -1))
        else:
            weights = (
                weight.split(width)
                if weight is not None
                else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            )
            biases = (None, None, None) if bias is None else bias.split(width)
            projected = tuple(map(F.linear, (query, key, value), weights, biases))
        q, k, v = (self._heads(x, batched) for x in projected)
        return q, k, v

    def _heads(self, x: Tensor, batched: bool) -> Tensor:
        if not batched:
            x = x.unsqueeze(0 if self.batch_first else 1)
        x = x.unflatten(-1, (self.num_heads, self.head_dim))
        return x.permute(0, 2, 1, 3) if self.batch_first else x.permute(1, 2, 0, 3)

    def _with_first(self, x: Tensor, one: Tensor) -> Tensor:
        first = one.view(1, self.num_heads, 1, self.head_dim).expand(x.shape[0], -1, -1, -1)
        return torch.cat([first.to(x.dtype), x], -2)

    def _weights(
        self, q: Tensor, k: Tensor, lse: Tensor, mask: Tensor | None, bias: Tensor | None, is_causal: bool,
        q_offset: int | None, average: bool,
    ) -> Tensor:  # fmt: skip
        """The weights before dropout: ``(B, n_q, n_k)`` averaged, or ``(B, H, n_q, n_k)``."""
        hidden = None
        if is_causal:
            i = torch.arange(q.shape[-2], device=q.device)[:, None] + (q_offset or 0)
            hidden = torch.arange(k.shape[-2], device=q.device) > i
        if mask is not None and mask.dtype == torch.bool:
            hidden = ~mask if hidden is None else hidden | ~mask
        added = [x for x in (mask, bias) if x is not None and x.dtype != torch.bool]
        # An empty row has a log-sum-exp of -inf; its weights are 0.
        lse = torch.where(lse == -math.inf, math.inf, lse)

        def of_heads(heads: slice) -> Tensor:
            scores = (q[:, heads] @ k[:, heads].transpose(-1, -2)).to(lse.dtype) / math.sqrt(q.shape[-1])
            for one in added:
                scores = scores + (one if one.ndim < 3 or one.shape[1] == 1 else one[:, heads])
            if hidden is not None:
                cut = hidden if hidden.ndim < 3 or hidden.shape[1] == 1 else hidden[:, heads]
                scores = scores.masked_fill(cut, -math.inf)
            weights = (scores - lse[:, heads, :, None]).exp()
            if self.bias_k is not None:  # torch has the learned key behind the others
                weights = weights.roll(-1, -1)
            if self.add_zero_attn:
                weights = torch.cat([weights, (-lse[:, heads, :, None]).exp()], -1)
            return weights.to(q.dtype)

        if not average:
            return of_heads(slice(None))
        # One head at a time: the mean needs no (B, H, n_q, n_k) array, where no gradient does.
        total = of_heads(slice(0, 1))
        for head in range(1, self.num_heads):
            total = total + of_heads(slice(head, head + 1))
        return (total / self.num_heads).squeeze(1)


def _with_first_column(mask: Tensor) -> Tensor:
    """A column before the others for a key that all see."""
    return F.pad(mask, (1, 0), value=mask.dtype == torch.bool)
