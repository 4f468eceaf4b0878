"""The listings of the drills: the checker finds the wrong line of each, and calls it as they do."""

import numpy as np
import pytest

from headwise.check import Contract, check_attention
from headwise.learn.listings import CAUSAL, FAULTS, PLAIN


def function_of(lines):
    names = {"np": np}
    body = "\n    ".join([*lines, "return out"])
    exec(f"def layer(x, W_Q, W_K, W_V, W_O, h):\n    {body}", names)
    return names["layer"]


def contract(causal):
    return Contract(always={"causal"} if causal else ())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.key)
def test_the_checker_names_it(fault):
    report = check_attention(function_of(fault.listing()[0]), contract(fault.causal))
    assert report.faults[0] == fault.key, str(report)


@pytest.mark.parametrize("causal", [False, True])
def test_the_right_listing_passes(causal):
    assert check_attention(function_of(CAUSAL if causal else PLAIN), contract(causal)).passed
