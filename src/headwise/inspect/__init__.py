"""What the heads of a trained model do on a text: one forward pass, a score card for every head."""

from headwise.inspect.qk import inspect_qk
from headwise.inspect.report.report import HeadReport
from headwise.inspect.run import inspect_heads

__all__ = ["HeadReport", "inspect_heads", "inspect_qk"]
