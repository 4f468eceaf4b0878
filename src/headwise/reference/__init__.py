"""The specification, in float64 NumPy: the judge of every path, which shares nothing with any of them."""

from headwise.reference.dot_product import reference_attention
from headwise.reference.dropout import dropout_factors
from headwise.reference.statistics import dense_statistics
from headwise.reference.visibility import visible_and_bias

__all__ = ["dense_statistics", "dropout_factors", "reference_attention", "visible_and_bias"]
