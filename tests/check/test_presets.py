"""Each convention on a stand-in that keeps it, written over the specification, and on one that does not."""

import numpy as np
import pytest

from headwise import check_attention
from headwise.check import PRESETS, Contract
from headwise.reference import reference_attention


def reference(q, k, v, mask=None, **options):
    return reference_attention(q, k, v, mask, **options)[0].astype(q.dtype)


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0):
    """(B, n, H, d), bottom-right, -1 = open."""
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    window = tuple(None if side == -1 else side for side in window_size)
    options = {"scale": softmax_scale, "is_causal": causal, "window_size": window, "softcap": softcap or None}
    return reference(q, k, v, query_offset=k.shape[2] - q.shape[2], **options).swapaxes(1, 2)


def onnx_attention(
    q, k, v, attn_mask=None, past_key=None, past_value=None, is_causal=0, scale=None, softcap=0.0
):
    """(B, H, n, d), top-left without a cache; gives (Y, present key, present value)."""
    past = 0 if past_key is None else past_key.shape[2]
    if past:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    options = {"scale": scale, "is_causal": bool(is_causal), "query_offset": past, "softcap": softcap or None}
    return reference(q, k, v, attn_mask, **options), k, v


def mlx_attention(q, k, v, *, scale, mask=None):
    """(B, H, n, d), bottom-right, mask is "causal" or an array."""
    causal = isinstance(mask, str)
    offset = k.shape[2] - q.shape[2]
    return reference(q, k, v, None if causal else mask, scale=scale, is_causal=causal, query_offset=offset)


STAND_INS = {"flash-attn": flash_attn_func, "onnx": onnx_attention, "mlx": mlx_attention}
ASKED = {
    "flash-attn": {
        "causal, more keys",
        "causal window",
        "soft cap and causal",
        "grouped heads and causal",
        "scale",
    },
    "onnx": {"causal, more keys", "cache", "mask", "bias", "soft cap and mask", "empty rows"},
    "mlx": {"causal, more keys", "mask", "bias", "scale", "grouped heads and mask"},
}


@pytest.mark.parametrize("name", STAND_INS)
def test_a_stand_in_keeps_its_contract(name):
    report = check_attention(STAND_INS[name], name)
    assert report.passed, str(report)
    assert ASKED[name] <= {outcome.rule for outcome in report.outcomes if outcome.status == "passed"}


def test_top_left_breaks_the_contract_of_bottom_right():
    def top_left(q, k, v, **options):
        keys = k.shape[1] - q.shape[1]
        padded = np.concatenate([q, np.zeros_like(q[:, :1]).repeat(keys, 1)], 1) if keys > 0 else q
        return flash_attn_func(padded, k, v, **options)[:, : q.shape[1]]

    report = check_attention(top_left, PRESETS["flash-attn"].but(features={"causal"}))
    assert report.faults == ("causal from the other corner",)


def test_every_preset_says_what_a_contract_can():
    for name, contract in PRESETS.items():
        assert contract.name == name
        assert contract.but() == contract
    assert Contract() == PRESETS["default"]
    assert PRESETS["headwise"].notes == frozenset()
