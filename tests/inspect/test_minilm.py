"""The packaged real model on real text: all 72 heads against the dense weights of the same query and key."""

import pydoc_data.topics

import pytest
import torch

from headwise.inspect import inspect_heads
from headwise.inspect.listen.capture import attached
from headwise.inspect.load.models import load_model
from headwise.inspect.load.tokens import EXAMPLE, encode, position_limit
from tests.inspect.compare import assert_head
from tests.inspect.dense import weights_of

N_TOKENS = 300


@pytest.fixture(scope="module")
def loaded():
    return load_model("minilm")


@pytest.fixture(scope="module")
def long_text(loaded):
    prose = pydoc_data.topics.topics["exceptions"]
    return encode(loaded.tokenizer, prose, max_tokens=N_TOKENS, limit=position_limit(loaded.model))


@pytest.fixture(scope="module")
def long_report(loaded, long_text):
    return inspect_heads(loaded.model, long_text.inputs, long_text.tokens, special=long_text.special)


@pytest.fixture(scope="module")
def example(loaded):
    encoded = encode(loaded.tokenizer, EXAMPLE)
    return inspect_heads(loaded.model, encoded.inputs, encoded.tokens, special=encoded.special)


@pytest.mark.parametrize("layer", range(6))
def test_all_heads_agree_with_dense_weights(loaded, long_text, long_report, layer):
    calls = []
    with attached(loaded.model, calls.append):
        loaded.model(**long_text.inputs)
    call = calls[layer]
    dense = weights_of(call.query[0], call.key[0], call.scale, call.is_causal)
    ids = long_text.inputs["input_ids"][0].tolist()
    assert dense.shape == (12, N_TOKENS, N_TOKENS)
    for head, weights in zip(long_report.layers[layer]["heads"], dense, strict=True):
        assert_head(head, weights, ids, long_text.special, False, 1e-5, floor=1e-6)


def test_the_long_text_has_what_the_scores_look_for(long_report):
    scores = long_report.layers[0]["heads"][0]["scores"]
    assert long_report.special == [0, N_TOKENS - 1]
    assert scores["duplicate"]["share"] > 0.5 and scores["induction"]["share"] > 0.5
    assert long_report.layers[0]["heads"][0]["pooled"]["block"] == 7
    assert long_report.check["max_abs_difference"] == 0.0 and long_report.check["tokens"] == 32


def test_captured_weights_are_those_of_the_eager_model(loaded, long_text, long_report):
    eager = type(loaded.model)(loaded.model.config.__class__(**loaded.model.config.to_dict()))
    eager.load_state_dict(loaded.model.state_dict())
    eager.set_attn_implementation("eager")
    with torch.no_grad():
        dense = eager.eval()(**long_text.inputs, output_attentions=True).attentions
    for layer, weights in zip(long_report.layers, dense, strict=True):
        for head, found in zip(layer["heads"], weights[0], strict=True):
            mean = found.max(dim=-1).values.double().mean().item()
            assert head["scores"]["max_weight"]["value"] == pytest.approx(mean, abs=1e-4)


def test_it_looks_at_the_cat(example):
    head = example.layers[5]["heads"][11]
    it = example.tokens.index("it")
    assert example.tokens[head["rows"]["index"][it][0]] == "cat"
    assert head["rows"]["weight"][it][0] == pytest.approx(0.41, abs=0.005)


def test_known_heads_have_their_labels(example):
    labels = {
        (layer["layer"], head["head"]): head["label"] for layer in example.layers for head in layer["heads"]
    }
    assert labels[0, 2] == "previous" and labels[1, 8] == "next" and labels[0, 1] == "broad"
    assert example.telling[0]["layer"] == 0 and example.telling[0]["head"] == 2
    assert example.telling[0]["value"] > 0.99
