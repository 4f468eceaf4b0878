"""Every known right and wrong variant of attention is named right, and no harmless one is accused."""

import json
from pathlib import Path

import numpy as np
import pytest

from headwise.check import Contract, check_attention
from headwise.check.verdict.findings import FAILED, FOLLOWS
from tests.check.variants import FAMILIES, RIGHT

FACTS = json.loads((Path(__file__).parent / "facts.json").read_text())
EVERY = [(family, name) for family, (_, _, variants) in FAMILIES.items() for name in variants]


def contract_of(family):
    call, always, _ = FAMILIES[family]
    alignment = "lower_right" if family == "B" else "upper_left"
    return Contract(
        call=call, always=always, features=(), layout="bhnd", causal_alignment=alignment, kind="numpy"
    )


def test_all_of_them_are_here():
    assert len(EVERY) == 208
    assert [len(variants) for _, _, variants in FAMILIES.values()] == [49, 23, 23, 34, 15, 26, 21, 17]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_formulas_give_the_known_numbers(family):
    inputs = {name: np.array(array) for name, array in FACTS[family]["inputs"].items()}
    for (function, _), known in zip(FAMILIES[family][2].values(), FACTS[family]["outputs"], strict=True):
        with np.errstate(all="ignore"):
            found = np.nan_to_num(function(*inputs.values()), nan=777.0)
        np.testing.assert_allclose(found.ravel()[: len(known)], known, atol=2e-5)


@pytest.mark.parametrize("family, name", EVERY, ids=lambda part: part)
def test_named(family, name):
    function, expected = FAMILIES[family][2][name]
    report = check_attention(function, contract_of(family))
    wrong = [outcome for outcome in report.outcomes if outcome.status in (FAILED, FOLLOWS)]
    if expected == RIGHT:
        assert not [one for one in wrong if one.group in ("values", "layer")], str(report)
        return
    assert not report.passed
    first = next(outcome for outcome in wrong if outcome.group in ("values", "layer"))
    named = {outcome.fault: outcome.also for outcome in wrong if outcome.group in ("values", "layer")}
    assert expected in named or any(expected in also for also in named.values()), str(report)
    assert first.error > first.allowed
