"""Weights of torch's own modules in ours."""

import torch
from torch import nn

from headwise.torch import EncoderLayer, MultiHeadAttention


def from_torch(module, **options):
    """A layer with the weights of an ``nn.MultiheadAttention``."""
    weight = next(module.parameters())
    layer = MultiHeadAttention(
        module.embed_dim, module.num_heads, kdim=module.kdim, vdim=module.vdim,
        bias=module.in_proj_bias is not None, dropout=module.dropout, dtype=weight.dtype, **options,
    )  # fmt: skip
    with torch.no_grad():
        if module.in_proj_weight is not None:
            weights = module.in_proj_weight.chunk(3)
        else:
            weights = module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
        for projection, part in zip((layer.q_proj, layer.k_proj, layer.v_proj), weights, strict=True):
            projection.weight.copy_(part)
        layer.out_proj.weight.copy_(module.out_proj.weight)
        if module.in_proj_bias is not None:
            for projection, part in zip(
                (layer.q_proj, layer.k_proj, layer.v_proj), module.in_proj_bias.chunk(3), strict=True
            ):
                projection.bias.copy_(part)
            layer.out_proj.bias.copy_(module.out_proj.bias)
    return layer.train(module.training)


def from_torch_block(block, **options):
    """An encoder layer with the weights of an ``nn.TransformerEncoderLayer``."""
    weight = block.linear1.weight
    ours = EncoderLayer(
        weight.shape[1], block.self_attn.num_heads, ff_dim=weight.shape[0], activation=block.activation,
        norm_first=block.norm_first, dropout=block.dropout.p, dtype=weight.dtype, **options,
    )  # fmt: skip
    causal = options.get("is_causal", False)
    ours.attention = from_torch(block.self_attn, is_causal=causal)
    for mine, theirs in (
        (ours.feed_forward.up, block.linear1),
        (ours.feed_forward.down, block.linear2),
        (ours.norms[0], block.norm1),
        (ours.norms[1], block.norm2),
    ):
        mine.load_state_dict(theirs.state_dict())
    return ours.train(block.training)


def randomised(module: nn.Module, seed=0) -> nn.Module:
    """Every parameter random: torch begins with biases of 0 and gains of 1, which hide faults."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 2 else 0.8))
    return module
