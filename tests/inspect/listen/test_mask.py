"""The lazy mask: a rule that says who sees whom, down to every block, and a tensor that can be asked."""

import types
import warnings

import numpy as np
import pytest
import torch
from transformers import masking_utils as hf

from headwise.inspect.call.call import AttentionCall
from headwise.inspect.listen.mask import LazyMask, MaskRule, mask_function
from tests.inspect.zoo import visible_of_call

BATCH, N_Q, N_K = 2, 9, 14
IDS = torch.tensor([[0] * 5 + [1] * 9, [0] * 2 + [1] * 4 + [2] * 8])
PADDING = torch.tensor([[True] * 14, [False] * 3 + [True] * 11])
RULES = {
    "causal": (hf.causal_mask_function, {"is_causal", "query_offset"}),
    "full": (hf.bidirectional_mask_function, {"query_offset"}),
    "window": (hf.sliding_window_causal_mask_function(4), {"is_causal", "query_offset", "window_size"}),
    "window both ways": (hf.sliding_window_bidirectional_mask_function(3), {"query_offset", "window_size"}),
    "two windows": (
        hf.and_masks(hf.sliding_window_overlay(6), hf.sliding_window_causal_mask_function(4)),
        {"is_causal", "query_offset", "window_size"},
    ),
    "chunks": (
        hf.chunked_causal_mask_function(4, torch.tensor([0, 3])),
        {"is_causal", "query_offset", "segment_ids"},
    ),
    "packed": (
        hf.and_masks(hf.causal_mask_function, hf.packed_sequence_mask_function(IDS)),
        {"is_causal", "query_offset", "segment_ids"},
    ),
    "padding inside": (
        hf.and_masks(hf.causal_mask_function, hf.padding_mask_function(PADDING)),
        {"is_causal", "query_offset", "segment_ids"},
    ),
    "union": (
        hf.or_masks(hf.causal_mask_function, hf.blockwise_overlay(IDS - 1)),
        {"query_offset", "attn_mask"},
    ),
    "of one's own": (lambda b, h, q, k: (q + k) % 3 != 0, {"query_offset", "attn_mask"}),
}


def rule_of(function, padding=None, q_offset=5, kv_offset=0, use_vmap=False):
    return MaskRule(BATCH, N_Q, N_K, q_offset, kv_offset, function, padding, use_vmap, torch.device("cpu"))


def seen_by(rule, kind="self"):
    call = AttentionCall(
        layer=0,
        name="",
        kind=kind,
        query=torch.zeros(BATCH, 1, rule.n_q, 1),
        key=torch.zeros(BATCH, 1, rule.n_k, 1),
        options=rule.options(kind),
    )
    return visible_of_call(call)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("padded", [False, True])
def test_options_say_what_the_function_says(name, padded):
    function, expected = RULES[name]
    rule = rule_of(function, PADDING if padded else None)
    options = rule.options("self")
    assert {key for key in options if key != "segment_ids"} == expected - {"segment_ids"}
    whole = rule.block((0, N_Q), (0, N_K)).numpy()
    reference = hf.sdpa_mask(
        BATCH, N_Q, N_K, 5, 0, function, rule.padding, allow_is_causal_skip=False
    ).numpy()
    assert np.array_equal(whole, reference)
    assert np.array_equal(seen_by(rule)[:, 0], np.broadcast_to(whole, (BATCH, 1, N_Q, N_K))[:, 0])


def test_queries_of_padding_see_nothing_in_self_attention_only():
    rule = MaskRule(BATCH, N_K, N_K, 0, 0, hf.causal_mask_function, PADDING, False, torch.device("cpu"))
    found = seen_by(rule)
    assert not found[1, 0, :3].any() and found[1, 0, 3, 3] and not found[1, 0, 3, :3].any()
    full = MaskRule(
        BATCH, N_K, N_K, 0, 0, hf.bidirectional_mask_function, PADDING, False, torch.device("cpu")
    )
    cross = seen_by(full, "cross")
    assert cross[1, 0, 0].tolist() == PADDING[1].tolist() and "query_offset" not in full.options("cross")


def test_an_offset_of_the_keys_moves_the_positions():
    """A sliding cache holds the keys from position 6 on; the query stands at 19."""
    function = hf.sliding_window_causal_mask_function(20)
    rule = MaskRule(1, 1, N_K, 19, 6, function, None, False, torch.device("cpu"))
    assert rule.options("self") == {"query_offset": 13, "is_causal": True, "window_size": (19, None)}
    assert rule.block((0, 1), (0, N_K)).all()


def test_a_function_that_is_not_what_it_looks_like_is_taken_at_its_word():
    """The parts are known by name; should their meaning change one day, the function itself decides."""
    function = hf.sliding_window_overlay(4)
    impostor = types.FunctionType(
        (lambda b, h, q, k, sliding_window=None: q >= 0).__code__, {}, closure=None, argdefs=(None,)
    )
    honest, lying = rule_of(function), rule_of(hf.and_masks(function))
    assert honest.options("self")["window_size"] == lying.options("self")["window_size"] == (3, None)
    impostor.__module__, impostor.__qualname__ = hf.__name__, hf.causal_mask_function.__qualname__
    assert "attn_mask" in rule_of(impostor).options("self")
    if hasattr(hf, "remap_positions_for_packed_sequence"):  # of later versions
        positions = torch.arange(28).reshape(2, 14) % 5
        moved = hf.remap_positions_for_packed_sequence(hf.causal_mask_function, positions)
        assert "attn_mask" in rule_of(moved).options("self")  # positions that start anew need their ids


def test_the_tensor_travels_lazily():
    rule = rule_of(RULES["window"][0])
    mask = LazyMask(rule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mask.shape == (BATCH, 1, N_Q, N_K) and mask.dtype == torch.bool and mask.ndim == 4
        assert isinstance(mask, torch.Tensor) and mask.device.type == "cpu" and mask is not None
        assert mask.to("cpu") is mask and mask.detach().rule is rule
        assert mask[:, :, :, :N_K].rule is rule and mask.expand(-1, -1, -1, -1).rule is rule
        cut = mask[:, :, 2:5, :7]
        assert isinstance(cut, LazyMask) and cut.shape == (BATCH, 1, 3, 7)
        assert repr(mask) == "LazyMask(2, 1, 9, 14)"
    whole = rule.block((0, N_Q), (0, N_K))
    assert torch.equal(cut.rule.block((0, 3), (0, 7)), whole[:, :, 2:5, :7])


def test_computing_with_it_builds_it_whole_and_says_so():
    rule = rule_of(RULES["chunks"][0])
    whole = rule.block((0, N_Q), (0, N_K))
    for compute in (lambda m: ~m, lambda m: m & True, lambda m: m[:1], lambda m: torch.where(m, 0.0, 1.0)):
        with pytest.warns(UserWarning, match=r"computes with its attention mask .* 2 x 1 x 9 x 14 booleans"):
            found = compute(LazyMask(rule))
        assert torch.equal(found, compute(whole))


def test_no_mask_where_transformers_makes_none():
    assert mask_function(1, 6, 6) is None and mask_function(1, 1, 6, 5) is None
    full = {"mask_function": hf.bidirectional_mask_function, "allow_is_causal_skip": False}
    assert mask_function(1, 6, 6, allow_is_bidirectional_skip=True, **full) is None
    assert mask_function(1, 6, 6, attention_mask=torch.ones(1, 6, dtype=bool)) is None
    padded = mask_function(1, 6, 6, attention_mask=torch.tensor([[True] * 4 + [False] * 2]))
    assert isinstance(padded, LazyMask)
    window = hf.sliding_window_causal_mask_function(3)
    assert isinstance(mask_function(1, 6, 6, mask_function=window, local_size=3), LazyMask)
    assert mask_function(1, 2, 2, mask_function=window, local_size=3) is None
