"""Rotary scaling from its definitions, pair by pair, and against what transformers computes."""

import math

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from headwise.compute.positions import RotaryScaling, rotary, rotary_table

LONG = {"factor": 8.0, "original_length": 4096}
OTHER = {"beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5}
CASES = [
    (RotaryScaling(kind="linear", factor=4.0), {"rope_type": "linear", "factor": 4.0}),
    (RotaryScaling(kind="yarn", **LONG), {"rope_type": "yarn"}),
    (
        RotaryScaling(kind="yarn", whole_pairs=False, **OTHER, **LONG),
        {"rope_type": "yarn", "truncate": False, **OTHER},
    ),
    (
        RotaryScaling(kind="llama3", **LONG),
        {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ),
    (
        RotaryScaling(kind="llama3", low_turns=2.0, high_turns=9.0, **LONG),
        {"rope_type": "llama3", "low_freq_factor": 2.0, "high_freq_factor": 9.0},
    ),
]


@pytest.mark.parametrize("width, base", [(64, 10000.0), (128, 500000.0), (6, 100.0)])
@pytest.mark.parametrize("scaling, theirs", CASES)
def test_what_transformers_computes(scaling, theirs, width, base):
    parameters = {"rope_theta": base, "factor": 8.0, "original_max_position_embeddings": 4096} | theirs
    config = LlamaConfig(
        hidden_size=width, num_attention_heads=1, max_position_embeddings=32768, rope_parameters=parameters
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config)
    np.testing.assert_allclose(scaling.frequencies(width, base), frequencies.numpy(), rtol=2e-6)
    assert scaling.magnitude == pytest.approx(factor, rel=1e-12)


def test_ntk_keeps_the_fastest_pair_and_slows_the_slowest_by_the_factor():
    plain = 10000.0 ** (-np.arange(0, 64, 2) / 64)
    scaled = RotaryScaling(kind="ntk", factor=5.0).frequencies(64, 10000.0)
    assert scaled[0] == 1.0
    assert plain[-1] / scaled[-1] == pytest.approx(5.0, rel=1e-12)
    # Every step between neighbours is the same, as for some base.
    np.testing.assert_allclose(scaled[1:] / scaled[:-1], scaled[1] / scaled[0], rtol=1e-12)


def test_llama3_pair_by_pair():
    scaling = RotaryScaling(kind="llama3", **LONG)
    for i, found in enumerate(scaling.frequencies(128, 500000.0)):
        plain = 500000.0 ** (-2 * i / 128)
        turns = 4096 * plain / (2 * math.pi)
        if turns > 4:
            expected = plain
        elif turns < 1:
            expected = plain / 8
        else:
            smooth = (turns - 1) / 3
            expected = plain * (smooth + (1 - smooth) / 8)
        assert found == pytest.approx(expected, rel=1e-13)


def test_yarn_keeps_fast_pairs_and_divides_slow_ones():
    scaled = RotaryScaling(kind="yarn", **LONG).frequencies(128, 10000.0)
    plain = 10000.0 ** (-np.arange(0, 128, 2) / 128)
    turns = 4096 * plain / (2 * math.pi)
    np.testing.assert_array_equal(scaled[turns > 40], plain[turns > 40])
    np.testing.assert_allclose(scaled[turns < 0.8], plain[turns < 0.8] / 8, rtol=1e-14)
    assert (np.diff(scaled) < 0).all()


@pytest.mark.parametrize("kind", ["linear", "ntk", "yarn", "llama3"])
def test_factor_one_changes_nothing(kind):
    scaling = RotaryScaling(kind=kind, factor=1.0, original_length=512)
    for scaled, plain in zip(rotary_table(40, 16, scaling=scaling), rotary_table(40, 16), strict=True):
        np.testing.assert_allclose(scaled, plain, atol=1e-13)


def test_scaled_rotation():
    x = np.random.default_rng(0).normal(size=(3, 20, 16))
    linear = RotaryScaling(kind="linear", factor=2.0)
    np.testing.assert_allclose(
        rotary(x, 2 * np.arange(20), scaling=linear), rotary(x, np.arange(20)), atol=1e-13
    )
    yarn = RotaryScaling(kind="yarn", factor=math.e**10, original_length=64)
    turned = rotary(x, scaling=yarn)  # its factor is 2: lengths double, and scores grow fourfold
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), 2 * np.linalg.norm(x, axis=-1), rtol=1e-12)
    np.testing.assert_allclose(turned, rotary(x, table=rotary_table(20, 16, scaling=yarn)), atol=1e-14)
