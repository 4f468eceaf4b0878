"""The listings of the drills: the checker finds the wrong line of each, and calls it as they do."""

import numpy as np
import pytest

from headwise.check import Contract, check_attention
from headwise.learn.listings import CAUSAL, PLAIN, WRONG_LINES


def function_of(lines):
    names = {"np": np}
    body = "\n    ".join([*lines, "return out"])
    exec(f"def layer(x, W_Q, W_K, W_V, W_O, h):\n    {body}", names)
    return names["layer"]


def contract(causal):
    return Contract(always={"causal"} if causal else ())


@pytest.mark.parametrize("line", WRONG_LINES, ids=lambda line: line.key)
def test_the_checker_names_it(line):
    report = check_attention(function_of(line.listing()[0]), contract(line.causal))
    assert report.faults[0] == line.fault.key, str(report)


@pytest.mark.parametrize("causal", [False, True])
def test_the_right_listing_passes(causal):
    assert check_attention(function_of(CAUSAL if causal else PLAIN), contract(causal)).passed
