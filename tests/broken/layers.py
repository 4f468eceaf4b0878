"""Layers of torch with one sin each. ``LAYERS``: class -> the mistake's name."""

import torch
from torch import nn

E, H = 12, 3


def attend(q, k, v, mask=None, scale=None):
    s = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return s.softmax(-1) @ v


class Right(nn.Module):
    """The layer that the others break in one place."""

    def __init__(self):
        super().__init__()
        self.num_heads = H
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(E, E) for _ in range(4))

    def split(self, x):
        return x.reshape(*x.shape[:2], self.num_heads, -1).transpose(1, 2)

    def merge(self, x):
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def heads(self, x, mask):
        return attend(*(self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj)), mask)

    def forward(self, x, mask=None):
        return self.out_proj(self.merge(self.heads(x, mask)))


class Fused(nn.Module):
    """One weight for q, k and v."""

    def __init__(self):
        super().__init__()
        self.n_head = H
        self.c_attn, self.c_proj = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        parts = (
            z.reshape(*x.shape[:2], self.n_head, -1).transpose(1, 2) for z in self.c_attn(x).chunk(3, -1)
        )
        return self.c_proj(attend(*parts).transpose(1, 2).flatten(2))


class OneByOne(nn.Module):
    """Every head a module of its own, without biases."""

    def __init__(self):
        super().__init__()
        self.num_heads = H
        make = lambda: nn.ModuleList(nn.Linear(E, E // H, bias=False) for _ in range(H))  # noqa: E731
        self.query, self.key, self.value, self.proj = make(), make(), make(), nn.Linear(E, E)

    def forward(self, x):
        one = zip(self.query, self.key, self.value, strict=True)
        return self.proj(torch.cat([attend(q(x), k(x), v(x)) for q, k, v in one], -1))


class InAList(nn.Module):
    """Four projections in a list, queries, keys and values given apart."""

    def __init__(self):
        super().__init__()
        self.h, self.linears, self.dropout = (
            H,
            nn.ModuleList(nn.Linear(E, E) for _ in range(4)),
            nn.Dropout(0.1),
        )

    def forward(self, query, key, value, mask=None):
        inputs = zip(self.linears, (query, key, value), strict=False)
        parts = (p(x).view(*x.shape[:2], self.h, -1).transpose(1, 2) for p, x in inputs)
        return self.linears[-1](self.dropout(attend(*parts, mask)).transpose(1, 2).flatten(2)), mask


class Raw(nn.Module):
    """Weights without a module around them, kept as (in, out)."""

    def __init__(self):
        super().__init__()
        self.num_heads = H
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Parameter(torch.randn(E, E)) for _ in range(4))

    def forward(self, x):
        parts = ((x @ w).view(*x.shape[:2], H, -1).transpose(1, 2) for w in (self.W_Q, self.W_K, self.W_V))
        return attend(*parts).transpose(1, 2).flatten(2) @ self.W_O


class OneHead(nn.Module):
    """A head of a list of heads, scaled by the width of its input."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(E, E // H, bias=False) for _ in range(3))

    def forward(self, x):
        return attend(self.query(x), self.key(x), self.value(x), scale=x.shape[-1] ** -0.5)


class HeadsScaledByInputWidth(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads, self.proj = nn.ModuleList(OneHead() for _ in range(H)), nn.Linear(E, E)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class IsCausalUnasked(Right):
    def heads(self, x, mask):
        seen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return super().heads(x, seen if mask is None else seen & mask)


class MergesByView(Right):
    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


class SplitsByView(Right):
    def split(self, x):
        return x.reshape(x.shape[0], self.num_heads, x.shape[1], -1)


class InterleavesHeads(Right):
    def split(self, x):
        return x.reshape(*x.shape[:2], -1, self.num_heads).permute(0, 3, 1, 2)


class LeavesOutW_O(Right):
    def forward(self, x, mask=None):
        return self.merge(self.heads(x, mask))


class HasNoW_O(Right):
    def __init__(self):
        super().__init__()
        del self.out_proj

    def forward(self, x, mask=None):
        return self.merge(self.heads(x, mask))


class SumsHeads(Right):
    def merge(self, x):
        return x.sum(1).repeat(1, 1, self.num_heads)


class UsesKeysAsValues(Right):
    def heads(self, x, mask):
        return attend(*(self.split(p(x)) for p in (self.q_proj, self.k_proj, self.k_proj)), mask)


class SharesOneProjection(Right):
    def __init__(self):
        super().__init__()
        self.k_proj = self.v_proj = self.q_proj


class SharesOverHeads(Right):
    def __init__(self):
        super().__init__()
        self.embed_dim = E
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(E // H, E // H) for _ in range(3))

    def heads(self, x, mask):
        x = self.split(x)
        return attend(self.q_proj(x), self.k_proj(x), self.v_proj(x), mask)


class StartsAllHeadsAlike(Right):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            for p in (self.q_proj, self.k_proj, self.v_proj):
                p.weight.copy_(p.weight[: E // H].repeat(H, 1))


class ScalesByWidth(Right):
    def heads(self, x, mask):
        return attend(*(self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj)), mask, E**-0.5)


class InvertsItsMask(Right):
    def heads(self, x, mask):
        return super().heads(x, None if mask is None else ~mask)


class AttendsAcrossTheBatch(Right):
    def heads(self, x, mask):
        parts = (self.split(p(x)).transpose(0, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return attend(*parts).transpose(0, 2)


class DropsOutInEvaluation(Right):
    def heads(self, x, mask):
        return nn.functional.dropout(super().heads(x, mask), 0.1, training=True)


class AddsItsInput(Right):
    def forward(self, x, mask=None):
        return x + super().forward(x, mask)


RIGHT = (Right, Fused, OneByOne, InAList, Raw)
LAYERS = {
    HeadsScaledByInputWidth: "scale 1/root d_model",
    IsCausalUnasked: "causal unasked",
    MergesByView: "merge without transpose",
    SplitsByView: "split without transpose",
    InterleavesHeads: "split as (d H)",
    LeavesOutW_O: "no output projection",
    HasNoW_O: "no output projection",
    SumsHeads: "heads summed",
    UsesKeysAsValues: "keys as values",
    SharesOneProjection: "one projection for q, k and v",
    SharesOverHeads: "one projection for all heads",
    StartsAllHeadsAlike: "identical heads",
    ScalesByWidth: "scale 1/root d_model",
    InvertsItsMask: "mask inverted",
    AttendsAcrossTheBatch: "attends across the batch",
    DropsOutInEvaluation: "dropout left on",
    AddsItsInput: "input added",
}


class LacksTheSum(torch.autograd.Function):
    """Attention whose backward lacks the sum in the softmax's derivative."""

    @staticmethod
    def forward(ctx, q, k, v):
        p = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1)
        ctx.save_for_backward(q, k, v, p)
        return p @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, p = ctx.saved_tensors
        ds = p * (grad @ v.transpose(-1, -2)) * q.shape[-1] ** -0.5
        return ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ grad


def half_a_softmax_gradient(q, k, v):
    return LacksTheSum.apply(q, k, v)


def detached_keys(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k.detach(), v)


def cut_off(q, k, v):
    return nn.functional.scaled_dot_product_attention(q.detach(), k.detach(), v.detach())


def doubled_gradient(q, k, v):
    output = nn.functional.scaled_dot_product_attention(q, k, v)
    return 2 * output - output.detach()


def nan_gradient(q, k, v, mask=None):
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is None:
        return s.softmax(-1) @ v
    p = (s + torch.zeros(mask.shape, dtype=s.dtype).masked_fill(~mask, float("-inf"))).softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), p, torch.zeros_like(p)) @ v


GRADIENTS = {
    half_a_softmax_gradient: "softmax gradient without its sum",
    detached_keys: "no gradient",
    cut_off: "no gradient",
    doubled_gradient: "gradient scaled",
    nan_gradient: "NaN gradient of empty rows",
}
