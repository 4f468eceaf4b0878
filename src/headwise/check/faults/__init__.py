"""The mistakes that can be named, in the order in which they are tried."""

from headwise.check.faults import cache, heads, masks, rotary, scores, window
from headwise.check.steps import Fault

FAULTS: tuple[Fault, ...] = (
    *scores.FAULTS,
    *heads.FAULTS,
    *rotary.FAULTS,
    *cache.FAULTS,
    *window.FAULTS,
    *masks.FAULTS,
)
