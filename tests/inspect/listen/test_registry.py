"""The first seam: every family gives the weights of its eager model; padding, masks, caches, refusals."""

import copy
import threading

import numpy as np
import pytest
import torch
import transformers

from headwise.errors import CapabilityError
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.registry import KEY
from headwise.inspect.run import inspect_heads
from tests.inspect.compare import assert_scene
from tests.inspect.dense import Scene
from tests.inspect.zoo import (
    FAMILIES,
    N_TARGET,
    N_TOKENS,
    build,
    eager_weights,
    inputs_of,
    random_ids,
    visible_of_call,
    weights_of_call,
)

SHARP = {"t5": 1e-4}  # float32 scores of size about 100; elsewhere about 30


def heard(model, inputs, compute="torch"):
    calls = []
    with attached(model, calls.append, compute=compute):
        output = model(**inputs)
    return calls, output


def assert_same(calls, dense, rows=None, tolerance=3e-5):
    """Calls against eager weights; of calls with as many queries, only ``rows`` (B, n_q) are compared."""
    assert len(calls) == len(dense)
    for call, weights in zip(calls, dense, strict=True):
        found = weights_of_call(call)
        off = np.abs(found - weights.numpy())
        if rows is not None and call.kind == "self" and rows.shape[1] == off.shape[2]:
            off = off.swapaxes(1, 2)[rows]
        assert off.max() < tolerance, (call.name, off.max())


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("compute", ["torch", "kernel"])
def test_calls_give_the_weights_and_the_output_of_the_eager_model(kind, compute):
    inputs = inputs_of(kind)
    dense, expected = eager_weights(kind, inputs)
    assert np.mean([weights.max(-1).values.mean() for weights in dense]) > 0.3  # far from uniform
    calls, output = heard(build(kind), inputs, compute)
    assert_same(calls, dense, tolerance=SHARP.get(kind, 3e-5))
    assert [call.layer for call in calls] == list(range(len(dense)))
    assert (output[0] - expected).abs().max() < 2e-4 * expected.abs().max()
    crosses = [call.kind == "cross" for call in calls]
    assert crosses == [kind in ("t5", "bart", "whisper") and i >= 2 and i % 2 == 1 for i in range(len(calls))]


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_score_of_every_head_against_the_eager_weights(kind):
    """In float64, where a score can be told from rounding (the experts of gpt-oss take float32 only)."""
    dtype = torch.float32 if kind == "gpt_oss" else torch.float64
    inputs = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in inputs_of(kind).items()
    }
    dense, _ = eager_weights(kind, inputs, build(kind, "eager").to(dtype))
    model = build(kind).to(dtype)
    calls, _ = heard(model, inputs)
    report = inspect_heads(model, inputs, special=None if kind == "vit" else [0])
    assert len(report.layers) == len(dense)
    for layer, weights, call in zip(report.layers, dense, calls, strict=True):
        cross = layer["kind"] == "cross"
        ids = {"text": inputs.get("input_ids"), "source": inputs.get("input_ids"),
               "target": inputs.get("decoder_input_ids")}.get(layer["queries"])  # fmt: skip
        special = [0] if layer["queries"] in ("text", "target") else []
        # The eager weights of gpt-oss are rounded to float32 on their way.
        tolerance = 1e-5
        for head, found in zip(layer["heads"], weights[0].double().numpy(), strict=True):
            scene = Scene(
                visible_of_call(call)[0, head["head"]],
                None if ids is None else ids[0].numpy(),
                special=special,
                key_special=([] if cross else None),
                is_causal=call.is_causal,
                offset=None if cross else 0,
                sinks="sinks" in call.options,
            )
            assert_scene(head, found, scene, tolerance, floor=1e-6)


def padded(kind, side, lengths):
    """Inputs of a batch with padding, and which rows are real."""
    n = N_TARGET if kind == "whisper" else N_TOKENS
    at = np.arange(n)
    lengths = np.array(lengths)[:, None]
    real = at < lengths if side == "right" else at >= n - lengths
    name = "decoder_attention_mask" if kind == "whisper" else "attention_mask"
    return {**inputs_of(kind, 3), name: torch.tensor(real).long()}, real


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind != "vit"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("compute", ["torch", "kernel"])
def test_padded_batches(kind, side, compute):
    inputs, real = padded(kind, side, (11 if kind == "whisper" else 19, 5, 3))
    dense, expected = eager_weights(kind, inputs)
    calls, output = heard(build(kind), inputs, compute)
    for call in calls:
        assert "attn_mask" not in call.options  # no n x n for padding
    keep = [call.kind == "self" or kind != "whisper" for call in calls]  # rows of padding differ, and may
    calls = [call for call, kept in zip(calls, keep, strict=True) if kept]
    dense = [weights for weights, kept in zip(dense, keep, strict=True) if kept]
    assert_same(calls, dense, real, tolerance=5 * SHARP.get(kind, 3e-5))
    found, expected = (out[torch.tensor(real)] if out.shape[1] == real.shape[1] else out for out in
                       (output[0], expected))  # fmt: skip
    assert not found.isnan().any()
    assert (found - expected).abs().max() < 3e-4 * expected.abs().max()


def test_packed_sequences_and_chunks_are_segments():
    inputs = {"input_ids": random_ids(), "position_ids": torch.tensor([[*range(10), *range(9)]])}
    for kind in ("llama", "mistral"):
        dense, _ = eager_weights(kind, inputs)
        calls, _ = heard(build(kind), {**inputs, "use_cache": False})
        assert all("segment_ids" in call.options and "attn_mask" not in call.options for call in calls)
        assert_same(calls, dense)
    mask = torch.tensor([[1] * N_TOKENS, [0] * 5 + [1] * (N_TOKENS - 5)])
    inputs = {"input_ids": random_ids(2), "attention_mask": mask}
    dense, _ = eager_weights("llama4", inputs)
    calls, _ = heard(build("llama4"), {**inputs, "use_cache": False})
    assert {"segment_ids"} == {
        name for call in calls for name in call.options if name in ("attn_mask", "segment_ids")
    }
    assert_same(calls, dense, mask.bool().numpy())


def test_ready_made_masks():
    ids, lowest = random_ids(), torch.finfo(torch.float32).min
    seen = torch.rand(1, 1, N_TOKENS, N_TOKENS, generator=torch.Generator().manual_seed(2)) > 0.3
    seen[..., 0] = True
    added = torch.where(seen, 0.0, lowest)
    dense, _ = eager_weights("bert", {"input_ids": ids, "attention_mask": added})
    for mask, name in ((seen, "attn_mask"), (added, "attn_bias"), (added + 0.5 * seen, "attn_bias")):
        calls, _ = heard(build("bert"), {"input_ids": ids, "attention_mask": mask})
        assert name in calls[0].options
        assert_same(calls, dense)
        assert np.array_equal(visible_of_call(calls[0])[:, 0], seen[:, 0].numpy())


def test_a_single_query_beside_a_cache_stands_at_its_end():
    model, ids = build("llama"), random_ids()
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=True)
    name = "cache" if "cache" in output else "past_key_values"  # as transformers called it at first
    dense, _ = eager_weights("llama", {"input_ids": torch.cat([ids, ids[:, :1]], dim=1)})
    calls, _ = heard(model, {"input_ids": ids[:, :1], name: output[name]})
    assert [(call.offset, call.is_causal) for call in calls] == [(N_TOKENS, True)] * 3
    for call, weights in zip(calls, dense, strict=True):
        assert np.abs(weights_of_call(call)[0, :, 0] - weights[0, :, -1].numpy()).max() < 3e-5


def test_half_precision_is_shown_in_float32():
    model = build("llama").bfloat16()
    calls, output = heard(model, {"input_ids": random_ids()})
    assert output[0].dtype == torch.bfloat16
    assert {call.query.dtype for call in calls} == {call.output.dtype for call in calls} == {torch.float32}
    kernel, same = heard(model, {"input_ids": random_ids()}, "kernel")
    assert same[0].dtype == torch.bfloat16 and (same[0] - output[0]).abs().max() < 0.1 * output[0].abs().max()


def test_equal_query_and_key_are_one_attention():
    """DiffLlama calls attention twice a layer, on two halves of the values."""
    inputs = {"input_ids": random_ids(), "use_cache": False}
    model = build("diffllama")
    with torch.no_grad():
        expected = model(**inputs)[0]
    for compute in ("torch", "kernel"):
        calls, output = heard(model, inputs, compute)
        assert [call.name for call in calls] == [f"model.layers.{i}.self_attn" for i in range(3)]
        assert (output[0] - expected).abs().max() < 1e-4 * expected.abs().max()


def test_one_module_called_for_every_layer():
    calls, _ = heard(build("albert"), inputs_of("albert"))
    name = "encoder.albert_layer_groups.0.albert_layers.0.attention"
    assert [call.name for call in calls] == [name, f"{name} (call 2)", f"{name} (call 3)"]


def test_scale_is_the_models_own():
    calls, _ = heard(build("gpt2"), inputs_of("gpt2"))
    assert [call.scale for call in calls] == pytest.approx([12**-0.5 / layer for layer in (1, 2, 3)])


def test_each_sub_config_gets_its_own_implementation_back():
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    made = transformers.CLIPConfig(
        text_config={**small, "vocab_size": 20},
        vision_config={**small, "image_size": 8, "patch_size": 4},
        attn_implementation={"": "sdpa", "text_config": "eager", "vision_config": "sdpa"},
    )
    model = transformers.CLIPModel(made).eval()
    configs = (model.config, model.config.text_config, model.config.vision_config, model.text_model.config)

    def implementations():
        return [config._attn_implementation for config in configs]

    before = implementations()
    assert set(before) == {"sdpa", "eager"}
    with attached(model, lambda call: None):
        assert set(implementations()) == {KEY}
    assert implementations() == before


def test_the_name_serves_no_other_purpose(bert, ids):
    with attached(bert, print):
        pass
    bert.set_attn_implementation(KEY)
    with pytest.raises(CapabilityError, match="only listens during an inspection"):
        bert(input_ids=ids)


def test_dropout_is_refused(bert, ids):
    bert.encoder.layer[1].attention.self.training = True
    message = r"encoder\.layer\.1\.attention\.self with dropout 0\.1.*model\.eval"
    with pytest.raises(CapabilityError, match=message):
        heard(bert, {"input_ids": ids})


@pytest.mark.parametrize(
    ("keyword", "what"),
    [("cu_seq_lens_q", "sequences packed by cumulative lengths"), ("read_index", "a paged cache")],
)
def test_what_is_not_served_is_refused_by_name(keyword, what):
    model = build("llama")
    before = copy.deepcopy(model.config.to_dict())
    with pytest.raises(CapabilityError, match=rf"layers\.0\.self_attn with {what}"):
        heard(
            model, {"input_ids": random_ids(), "use_cache": False, keyword: torch.zeros(2, dtype=torch.int32)}
        )
    assert model.config.to_dict() == before


def test_models_of_one_config_in_two_threads():
    config = build("llama").config
    models = [transformers.LlamaForCausalLM(config).eval() for _ in range(2)]
    calls, entered, leave = [], threading.Event(), threading.Event()

    def second():
        with attached(models[1], calls.append):
            entered.set()
            assert leave.wait(60)
            models[1](random_ids(), use_cache=False)

    other = threading.Thread(target=second)
    with attached(models[0], calls.append):
        other.start()
        assert entered.wait(60)
        models[0](random_ids(), use_cache=False)
    leave.set()
    other.join()
    assert len(calls) == 6 and config._attn_implementation == "sdpa"
