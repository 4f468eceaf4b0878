"""What attention costs, as numbers with their formulas, before anything is run."""

from headwise.costs.sources import cost

__all__ = ["cost"]
