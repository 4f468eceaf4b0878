"""In the place of torch's own layer: the same calls and the same parameters, headwise inside."""

from headwise.torch.compat.multi_head import MultiheadAttention, replace_attention
from headwise.torch.compat.replace import Replacement, Report

__all__ = ["MultiheadAttention", "Replacement", "Report", "replace_attention"]
