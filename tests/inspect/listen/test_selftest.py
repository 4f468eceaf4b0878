"""The self-test at attach time: it finds a listener that changes the output, and a model that looks ahead."""

from dataclasses import dataclass

import pytest
import torch
import transformers

from headwise.errors import CapabilityError
from headwise.inspect import inspect_heads
from headwise.inspect.listen.inputs import take_inputs
from headwise.inspect.listen.selftest import self_test
from tests.inspect.zoo import FAMILIES, N_TOKENS, build, eager_weights, inputs_of, random_ids


def probed(model, inputs, **options):
    return self_test(model, take_inputs(model, inputs), **options)


def test_numbers_of_a_good_model(kind, ids):
    found = probed(build(kind), ids)
    assert found.tokens == N_TOKENS and found.layers == 3
    assert found.max_abs_difference == 0.0
    assert found.causal_leak == (None if kind == "bert" else 0.0)
    assert (found.heads, found.kv_heads) == {"bert": (6, 6), "llama": (6, 2), "gpt2": (4, 4)}[kind]
    assert found.all_heads == 3 * found.heads and found.is_causal == (kind != "bert")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("compute", ["torch", "kernel"])
def test_every_family_passes(kind, compute):
    found = probed(build(kind), inputs_of(kind), compute=compute)
    assert found.max_abs_difference < 1e-3 and (found.causal_leak or 0) < 1e-6
    assert (found.causal_leak is None) == (kind in ("bert", "albert", "vit"))


def test_half_precision_has_its_own_tolerance(ids):
    for dtype in (torch.float16, torch.bfloat16):
        for compute in ("torch", "kernel"):
            found = probed(build("llama").to(dtype), ids, compute=compute)
            assert found.causal_leak == 0.0


def test_at_most_32_tokens_are_used():
    model, lengths = build("llama"), []
    model.model.register_forward_pre_hook(
        lambda _, args, keywords: lengths.append(keywords["input_ids"].shape[1]), with_kwargs=True
    )
    ids = torch.arange(50)[None] % 29
    assert probed(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}).tokens == 32
    assert lengths == [32] * 3  # as it is, with the listener, with the last token exchanged


def test_one_token_has_no_later_one():
    assert probed(build("llama"), torch.tensor([[3]])).causal_leak is None


def test_equal_tokens_can_be_exchanged_too():
    for token in (0, 3):
        assert probed(build("llama"), torch.full((1, 5), token)).causal_leak == 0.0


def test_the_difference_to_eager_attention_is_measured(ids):
    found = probed(build("llama", "eager"), ids)
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
        probed(bert, ids)


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


def test_a_model_without_attention_is_refused():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Softmax(-1)).eval()
    message = r"Sequential: no attention call seen\. Hint: headwise\.inspect_qk\(query, key\)"
    with pytest.raises(CapabilityError, match=message):
        inspect_heads(model, torch.ones(2, 3))


def test_causal_and_full_layers_together_are_listed_as_they_are(ids):
    """A model of which some layers look ahead: the page says so, layer by layer."""
    model = build("bert")
    model.encoder.layer[1].attention.self.is_causal = True
    found = probed(model, ids)
    assert not found.is_causal and found.causal_leak is None


@pytest.mark.parametrize("kind", ["gemma2", "llama"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_part_of_the_probe(kind, side):
    """What a model computes at padding is nobody's concern, and differs between attention functions."""
    ids, padding = random_ids(n=20), torch.zeros(1, 40, dtype=torch.int64)
    parts = [padding, ids] if side == "left" else [ids, padding]
    found = inspect_heads(build(kind), {
        "input_ids": torch.cat(parts, 1), "attention_mask": torch.cat([p.sign() for p in parts], 1),
    })  # fmt: skip
    assert found.check["tokens"] == 20 and found.check["causal_leak"] < 1e-5
    assert found.check["max_abs_difference"] < 1e-4


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_mask_of_pairs_is_cut_for_the_probe(kind):
    ids = random_ids(n=45)
    mask = torch.ones(45, 45, dtype=torch.bool).tril()
    mask[5:, 2] = False
    found = inspect_heads(build(kind), {"input_ids": ids, "attention_mask": mask[None, None]})
    added = torch.zeros(1, 1, 45, 45).masked_fill(~mask, -1e9)
    dense, _ = eager_weights(kind, {"input_ids": ids, "attention_mask": added})
    for layer, weights in zip(found.layers, dense, strict=True):
        for head, w in zip(layer["heads"], weights[0].double().numpy(), strict=True):
            assert abs(head["scores"]["max_weight"]["value"] - w.max(axis=-1).mean()) < 1e-5
            assert abs(head["scores"]["first"]["value"] - w[:, 0].mean()) < 1e-5


@dataclass
class Answer:
    hidden: torch.Tensor


class Wrapped(torch.nn.Module):
    """A model of one's own whose output is a plain dataclass, and that notices whether it is listened to."""

    def __init__(self):
        super().__init__()
        self.inner = build("llama")

    def forward(self, input_ids):
        hidden = self.inner(input_ids=input_ids).logits
        return Answer(hidden * (2 if self.inner.config._attn_implementation == "headwise" else 1))


def test_outputs_in_a_dataclass_are_compared():
    with pytest.raises(CapabilityError, match="stay the same while headwise listens"):
        probed(Wrapped(), random_ids())
