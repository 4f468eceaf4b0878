"""In the place of torch's own layer: the same calls and the same parameters, headwise inside."""

from headwise.torch.compat.drop_in import MultiheadAttention
from headwise.torch.compat.replacement import Replacement, Report, replace_attention

__all__ = ["MultiheadAttention", "Replacement", "Report", "replace_attention"]
