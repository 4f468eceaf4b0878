"""The chain of steps with nothing exchanged is the specification; every mistake changes what it should."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.check.cases import rotation
from headwise.check.cases.case import allowed, expected
from headwise.check.cases.chain import RIGHT, attend
from headwise.check.cases.layer_case import attend_layer, expected_layer, random_layer
from headwise.check.explanation import explain
from headwise.check.faults import FAULTS
from headwise.check.faults.layer_faults import LAYER_FAULTS
from headwise.check.rules.makers import MAKERS, maker
from headwise.check.subjects.presets import PRESETS
from headwise.compute.positions import rotary


@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(MAKERS)), again=st.sampled_from([0, 2]))
def test_the_right_chain_is_the_specification(seed, name, again):
    contract = PRESETS["default"].but(features={"causal", "rope", "cache"})
    case = maker(name, contract)(np.random.default_rng(seed), again)
    output, weights = expected(case)
    assert (np.abs(attend(case) - output) <= allowed(case, weights, 2.0**-52)).all()
    assert weights.sum(-1).min() > 0.999  # no row is left empty


@given(seed=st.integers(0, 10**6), causal=st.booleans(), heads=st.sampled_from([1, 3]))
def test_the_right_layer_is_the_specification(seed, causal, heads):
    case = random_layer(np.random.default_rng(seed), heads=heads)
    case = replace(case, options={"is_causal": causal})
    output, lost = expected_layer(case)
    assert (np.abs(attend_layer(case, None) - output) <= lost * 2.0**-52).all()


def test_turning_is_that_of_the_package():
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8))
    angle = rotation.angles(np.arange(7), 8, 100.0)
    np.testing.assert_allclose(rotation.halves(x, angle), rotary(x, base=100.0), atol=1e-14)
    np.testing.assert_allclose(
        rotation.interleaved(x, angle), rotary(x, base=100.0, interleaved=True), atol=1e-14
    )


def test_mistakes_have_names_of_their_own():
    keys = [fault.key for fault in FAULTS]
    assert len(keys) == len(set(keys)) > 150
    assert len({mistake.key for mistake in LAYER_FAULTS}) == len(LAYER_FAULTS)
    for fault in (*FAULTS, *LAYER_FAULTS):
        assert fault.what[0].islower() or fault.what.startswith("W_") or fault.what[0].isdigit()
        assert fault.what != fault.repair != ""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.key)
def test_every_mistake_changes_some_case(fault):
    """Those whose numbers never change here show in special cases only, and are named so."""
    contract = PRESETS["default"].but(features={"causal", "rope", "cache"})
    differs = False
    for name in MAKERS:
        case = maker(name, contract)(np.random.default_rng(3), 0)
        if not fault.needs <= case.has():
            continue
        try:
            with np.errstate(all="ignore"):
                wrong = attend(case, RIGHT.exchange(fault.changes))
        except (ValueError, IndexError):
            continue
        right = attend(case)
        differs |= wrong.shape != right.shape or bool(np.abs(wrong - right).max() > 1e-2)
    assert differs == (fault.key != "fill -1e9")
    assert fault.key in explain(fault.key)
