"""The mistakes that can be named, in the order in which they are tried."""

from headwise.check.cases.steps import Fault
from headwise.check.faults import cache, heads, masks, rotary, scores, window

FAULTS: tuple[Fault, ...] = (
    *scores.FAULTS,
    *heads.FAULTS,
    *rotary.FAULTS,
    *cache.FAULTS,
    *window.FAULTS,
    *masks.FAULTS,
)
