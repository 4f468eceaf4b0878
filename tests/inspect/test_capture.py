"""Listening: same output, same model afterwards, right query, key and scale; the rest is refused by name."""

import copy

import numpy as np
import pytest
import torch
import transformers

from headwise.errors import CapabilityError
from headwise.inspect import capture
from headwise.inspect.capture import KEY, attached

from .conftest import N_TOKENS, build
from .dense import weights_of


def calls_of(model, ids, **inputs):
    calls = []
    with attached(model, ids.shape[1], calls.append):
        output = model(input_ids=ids, use_cache=False, **inputs)
    return output, calls


def state_of(model):
    """All that an inspection must leave alone."""
    configs = {name: module.config for name, module in model.named_modules() if hasattr(module, "config")}
    return (
        copy.deepcopy(model.config.to_dict()),
        {name: copy.deepcopy(config.__dict__) for name, config in configs.items()},
        [(name, module.training, len(module._forward_hooks)) for name, module in model.named_modules()],
    )


def test_output_keeps_every_bit(model, ids):
    with torch.no_grad():
        before = model(input_ids=ids, use_cache=False)[0]
    output, _ = calls_of(model, ids)
    assert torch.equal(output[0], before)


def test_query_key_scale_and_causality_give_the_weights_of_the_eager_model(kind, ids):
    _, calls = calls_of(build(kind), ids)
    with torch.no_grad():
        dense = build(kind, "eager")(input_ids=ids, output_attentions=True).attentions
    assert len(calls) == len(dense) == 3
    for number, (call, weights) in enumerate(zip(calls, dense, strict=True)):
        assert call.layer == number
        assert call.is_causal == (kind != "bert")
        found = weights_of(call.query[0], call.key[0], call.scale, call.is_causal)
        assert np.abs(found - weights[0].numpy()).max() < 2e-5  # float32 scores of size about 30
        assert found.max(axis=-1).mean() > 0.3  # far from uniform, so a wrong scale or grouping cannot hide


NAMES = {
    "bert": "encoder.layer.{}.attention.self",
    "llama": "model.layers.{}.self_attn",
    "gpt2": "transformer.h.{}.attn",
}


def test_layers_have_the_names_of_their_modules(kind, model, ids):
    _, calls = calls_of(model, ids)
    assert [call.name for call in calls] == [NAMES[kind].format(layer) for layer in range(3)]


def test_scale_is_the_models_own(ids):
    _, calls = calls_of(build("gpt2"), ids)
    assert [call.scale for call in calls] == pytest.approx([12**-0.5 / layer for layer in (1, 2, 3)])


def test_nothing_is_copied(bert, ids):
    made = {"query": [], "key": []}
    for layer in bert.encoder.layer:
        for name, found in made.items():
            getattr(layer.attention.self, name).register_forward_hook(
                lambda _, args, output, found=found: found.append(output.data_ptr())
            )
    _, calls = calls_of(bert, ids)
    assert [call.query.data_ptr() for call in calls] == made["query"]
    assert [call.key.data_ptr() for call in calls] == made["key"]
    assert not any(call.query.requires_grad or call.key.requires_grad for call in calls)


def test_nothing_of_the_model_is_held_afterwards(bert, ids):
    calls_of(bert, ids)
    assert capture._BY_CONFIG == {} and capture._BY_MODULE == {}


def test_one_module_called_for_every_layer(ids):
    made = transformers.AlbertConfig(
        embedding_size=16, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=40,
        vocab_size=29,
    )  # fmt: skip
    _, calls = calls_of(transformers.AlbertModel(made).eval(), ids)
    name = "encoder.albert_layer_groups.0.albert_layers.0.attention"
    assert [call.name for call in calls] == [name, f"{name} (call 2)", f"{name} (call 3)"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_model_is_left_as_it_was_after_an_exception(model, ids, error):
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=False)[0]
    before = state_of(model)

    def fail(_):
        raise error

    with pytest.raises(error), attached(model, N_TOKENS, fail):
        assert model.config._attn_implementation == KEY
        model(input_ids=ids, use_cache=False)
    assert state_of(model) == before
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids, use_cache=False)[0], output)


def test_each_sub_config_gets_its_own_implementation_back():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 20},
        vision_config={**small, "image_size": 8, "patch_size": 4},
        attn_implementation={"": "sdpa", "text_config": "eager", "vision_config": "sdpa"},
    )
    model = transformers.CLIPModel(made).eval()
    names = (model.config, model.config.text_config, model.config.vision_config, model.text_model.config)

    def implementations():
        return [config._attn_implementation for config in names]

    before = implementations()
    assert set(before) == {"sdpa", "eager"}
    with attached(model, 3, lambda call: None):
        assert set(implementations()) == {KEY}
    assert implementations() == before


def test_the_eager_model_runs_too(kind, ids):
    model = build(kind, "eager")
    with torch.no_grad():
        before = model(input_ids=ids, use_cache=False)[0]
    output, _ = calls_of(model, ids)
    assert model.config._attn_implementation == "eager"
    assert (output[0] - before).abs().max() < 1e-4 * before.abs().max()


def test_a_model_is_not_attached_twice(bert):
    with (
        attached(bert, 3, print),
        pytest.raises(CapabilityError, match="being inspected already"),
        attached(bert, 3, print),
    ):
        pass
    assert bert.config._attn_implementation == "sdpa"


def test_the_name_serves_no_other_purpose(bert, ids):
    with attached(bert, 3, print):
        pass
    bert.set_attn_implementation(KEY)
    with pytest.raises(CapabilityError, match="only listens during an inspection"):
        bert(input_ids=ids)


# What is refused. Each line: how to make the model, what else it is given, what the message names.


def mistral(window):
    made = transformers.MistralConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=40, vocab_size=29, sliding_window=window, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.MistralModel(made).eval()


def gemma():
    made = transformers.Gemma2Config(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
        intermediate_size=40, vocab_size=29, sliding_window=64, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.Gemma2Model(made).eval()


def with_sinks():
    made = transformers.GptOssConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
        intermediate_size=40, vocab_size=29, sliding_window=64, num_local_experts=2, num_experts_per_tok=1,
        attn_implementation="eager",
    )  # fmt: skip
    return transformers.GptOssModel(made).eval()


def t5():
    made = transformers.T5Config(d_model=48, d_kv=12, num_layers=2, num_heads=4, d_ff=40, vocab_size=29)
    return transformers.T5EncoderModel(made).eval()


def chunked():
    made = transformers.Llama4TextConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
        intermediate_size=40, intermediate_size_mlp=40, vocab_size=29, attention_chunk_size=4,
        num_local_experts=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.Llama4TextModel(made).eval()


PADDED = torch.tensor([[1] * (N_TOKENS - 3) + [0] * 3])
PACKED = torch.tensor([[*range(10), *range(N_TOKENS - 10)]])
REFUSALS = {
    "padding": (
        lambda: build("bert"),
        {"attention_mask": PADDED},
        r"without padding; received 3 masked positions",
    ),
    "padding, causal": (lambda: build("llama"), {"attention_mask": PADDED}, "without padding"),
    "window": (
        lambda: mistral(4),
        {},
        r"a sliding window or chunk of 4 tokens over a text of 19.*--max-tokens 3",
    ),
    "chunks": (chunked, {}, r"a sliding window or chunk of 4 tokens"),
    "packed": (lambda: build("llama"), {"position_ids": PACKED}, "a mask of packed"),
    "own mask": (
        lambda: build("bert"),
        {"attention_mask": torch.zeros(1, 1, N_TOKENS, N_TOKENS)},
        r"encoder\.layer\.0\.attention\.self with a mask of its own, shape \(1, 1, 19, 19\)",
    ),
    "soft cap": (gemma, {}, r"layers\.0\.self_attn with a soft cap"),
    "sinks": (with_sinks, {}, r"layers\.0\.self_attn with learned sink logits"),
    "position bias": (t5, {}, r"SelfAttention with a position bias"),
    "half precision": (
        lambda: build("bert").half(),
        {},
        r"float32 or float64; received .*self in torch\.float16",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refused_by_name(case, ids):
    make, inputs, message = REFUSALS[case]
    model = make()
    before = state_of(model)
    with pytest.raises(CapabilityError, match=message):
        calls_of(model, ids, **inputs)
    assert state_of(model) == before


def test_a_window_wider_than_the_text_is_no_window(ids):
    _, calls = calls_of(mistral(N_TOKENS + 1), ids)
    assert [call.is_causal for call in calls] == [True, True]
    with pytest.raises(CapabilityError, match="window"):
        calls_of(mistral(N_TOKENS), ids)


def test_a_batch_is_refused(bert, ids):
    with pytest.raises(CapabilityError, match="one sequence at a time; received .* with a batch of 2"):
        calls_of(bert, ids.repeat(2, 1))


def test_a_cache_is_refused(ids):
    model = build("llama")
    with torch.no_grad():
        cache = model(input_ids=ids, use_cache=True).cache
    with pytest.raises(CapabilityError, match="1 queries over 20 keys.*caches"), attached(model, 1, print):
        model(input_ids=ids[:, :1], cache=cache)


def test_dropout_is_refused(bert, ids):
    bert.encoder.layer[1].attention.self.training = True
    with pytest.raises(
        CapabilityError, match=r"encoder\.layer\.1\.attention\.self with dropout 0\.1.*model\.eval"
    ):
        calls_of(bert, ids)


def test_another_length_is_refused(bert, ids):
    message = "attention over the 4 tokens of the text; received .* over 19"
    with pytest.raises(CapabilityError, match=message), attached(bert, 4, print):
        bert(input_ids=ids)


def test_a_layer_that_contradicts_the_mask_is_refused(bert, ids):
    bert.encoder.layer[0].attention.self.is_causal = True
    with pytest.raises(CapabilityError, match="is_causal=True, but the model's mask says False"):
        calls_of(bert, ids)
