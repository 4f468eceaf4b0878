"""The mistakes that can be named, in the order in which they are tried."""

from headwise.check.cases.chain import Fault
from headwise.check.cases.layer_case import LayerFault
from headwise.check.faults import decode, formula, grouping, masking, rotary, window
from headwise.check.faults.layer_faults import LAYER_FAULTS

FAULTS: tuple[Fault, ...] = (
    *formula.FAULTS,
    *grouping.FAULTS,
    *rotary.FAULTS,
    *decode.FAULTS,
    *window.FAULTS,
    *masking.FAULTS,
)
ALL: tuple[Fault | LayerFault, ...] = (*FAULTS, *LAYER_FAULTS)
