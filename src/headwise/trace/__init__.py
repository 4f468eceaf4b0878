"""Every step of a small forward pass, with its numbers, its formulas and the checks that hold."""

from headwise.trace.forward import explain

__all__ = ["explain"]
