"""One attention problem, checked once: sizes, masks, offsets and rules in one normal form."""

from headwise.compute.problem.problem import NOTHING, Problem, build_problem
from headwise.compute.problem.projections import BlockSizes, check_block
from headwise.compute.problem.rules import Rules
from headwise.compute.problem.sizes import divisors

__all__ = ["NOTHING", "BlockSizes", "Problem", "Rules", "build_problem", "check_block", "divisors"]
