"""The self-test at attach time: it finds a listener that changes the output, and a model that looks ahead."""

import pytest
import torch
import transformers

from headwise.errors import CapabilityError
from headwise.inspect import capture, inspect_heads
from headwise.inspect.selftest import self_test

from .conftest import N_TOKENS, build


def test_numbers_of_a_good_model(kind, ids):
    found = self_test(build(kind), {"input_ids": ids, "use_cache": False})
    assert found.tokens == N_TOKENS and found.layers == 3
    assert found.max_abs_difference == 0.0
    assert found.causal_leak == (None if kind == "bert" else 0.0)
    assert (found.heads, found.kv_heads) == {"bert": (6, 6), "llama": (6, 2), "gpt2": (4, 4)}[kind]


def test_at_most_32_tokens_are_used():
    model, lengths = build("llama"), []
    model.model.register_forward_pre_hook(
        lambda _, args, keywords: lengths.append(keywords["input_ids"].shape[1]), with_kwargs=True
    )
    ids = torch.arange(50)[None] % 29
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "use_cache": False}
    assert self_test(model, inputs).tokens == 32
    assert lengths == [32, 32, 32]  # without the listener, with it, with the last token exchanged


def test_one_token_has_no_later_one():
    assert self_test(build("llama"), {"input_ids": torch.tensor([[3]])}).causal_leak is None


def test_equal_tokens_can_be_exchanged_too():
    for token in (0, 3):
        assert self_test(build("llama"), {"input_ids": torch.full((1, 5), token)}).causal_leak == 0.0


def test_the_difference_to_eager_attention_is_measured(ids):
    found = self_test(build("llama", "eager"), {"input_ids": ids})
    assert 0 < found.max_abs_difference < 1e-4


def test_a_changed_output_is_refused(monkeypatch, bert, ids):
    sdpa = transformers.AttentionInterface()["sdpa"]

    def half_of_it(*args, **keywords):
        output, weights = sdpa(*args, **keywords)
        return output / 2, weights

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "other", sdpa)
    bert.set_attn_implementation("other")
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "sdpa", half_of_it)
    with pytest.raises(
        CapabilityError, match="stay the same while headwise listens; received .* a difference of"
    ):
        self_test(bert, {"input_ids": ids})


def test_outputs_that_are_no_numbers_are_refused(bert, ids):
    with torch.no_grad():
        bert.encoder.layer[0].attention.self.value.weight[0, 0] = float("nan")
    with pytest.raises(CapabilityError, match="outputs that are finite"):
        inspect_heads(bert, ids)


def test_a_causal_model_that_looks_ahead_is_refused(ids):
    model = build("llama")
    model.model.embed_tokens.register_forward_hook(
        lambda _, args, output: output + output.mean(dim=1, keepdim=True)  # every token sees the mean of all
    )
    with pytest.raises(CapabilityError, match=r"model\.layers\.0\.self_attn: an earlier output moved by"):
        inspect_heads(model, ids)


def test_a_model_that_never_calls_the_registry_is_refused(ids):
    made = transformers.BloomConfig(hidden_size=32, n_layer=2, n_head=4, vocab_size=29)
    with pytest.raises(CapabilityError, match="BloomModel: no attention call seen"):
        inspect_heads(transformers.BloomModel(made).eval(), ids)


def test_causal_and_full_layers_together_are_refused(monkeypatch, ids):
    model = build("bert")
    model.encoder.layer[1].attention.self.is_causal = True
    monkeypatch.setattr(
        capture, "_mask", lambda *args, **keywords: None
    )  # so that no mask contradicts a layer
    with pytest.raises(CapabilityError, match="all causal or all not; received BertModel, which has both"):
        self_test(model, {"input_ids": ids})
