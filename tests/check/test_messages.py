"""What the checker refuses, word for word, in golden/check_messages.txt."""

import pytest
import torch

from headwise import HeadwiseError, check_attention, check_layer
from headwise.check import CheckReport, Contract, parametrize_with_checks
from tests.broken.functions import forgets_scale
from tests.broken.layers import Right
from tests.raising import golden

LINEAR = torch.nn.Linear(4, 4)
CASES = {
    "no function": lambda: check_attention(3),
    "preset": lambda: check_attention(forgets_scale, "pytorch"),
    "layer contract": lambda: check_attention(forgets_scale, "torch-mha"),
    "features text": lambda: Contract(features="mask"),
    "always": lambda: Contract(always={"dropout"}),
    "layout": lambda: Contract(layout="hbnd"),
    "call": lambda: Contract(call=3),
    "mask means": lambda: Contract(mask_means="keep"),
    "no layer": lambda: check_layer(3),
    "no heads": lambda: check_layer(LINEAR),
    "no weights": lambda: check_layer(LINEAR, num_heads=2),
    "weights role": lambda: check_layer(Right(), weights={"x": "q_proj.weight"}),
    "weights name": lambda: check_layer(Right(), weights={"q": "p"}),
    "failures rule": lambda: parametrize_with_checks(forgets_scale, expected_failures={"scales": "why"}),
    "failures reason": lambda: parametrize_with_checks(forgets_scale, expected_failures={"values": " "}),
    "no json": lambda: CheckReport.from_json("{"),
    "no schema": lambda: CheckReport.from_json("{}"),
    "report list": lambda: CheckReport.from_json("[1]"),
    "other version": lambda: CheckReport.from_json('{"schema": "headwise.check", "version": 2}'),
    "parts missing": lambda: CheckReport.from_json('{"schema": "headwise.check", "version": 1}'),
}
EXPECTED = golden("check_messages.txt")


@pytest.mark.parametrize("name", CASES)
def test_message(name):
    with pytest.raises(HeadwiseError) as caught:
        CASES[name]()
    assert f"{type(caught.value).__name__}\n{caught.value}" == EXPECTED[name]


def test_no_golden_message_is_left_over():
    assert set(EXPECTED) == set(CASES)
