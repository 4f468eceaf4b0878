"""A model that writes with a cache: its steps together are one pass over the whole text."""

import numpy as np
import pytest
import torch

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.generation import Steps, read_by
from headwise.inspect.run import inspect_heads
from tests.inspect.zoo import N_TOKENS, WRITERS, build, eager_weights, inputs_of, weights_of_call

NEW = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "num_beams": 1}


def prompt_of(kind, n=N_TOKENS):
    given = inputs_of(kind, target=False)
    return {name: value[:, :n] if name == "input_ids" else value for name, value in given.items()}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("cache", [None, "static"])
def test_steps_give_the_weights_of_one_eager_pass(kind, cache):
    compute = "torch" if cache is None else "kernel"
    for n in (N_TOKENS, 3):  # 3: shorter than the window, which only later steps fill
        model, steps, prompt = build(kind), Steps(), prompt_of(kind, n)
        options = {**NEW, **({"cache_implementation": cache} if cache else {})}
        with attached(model, steps.observe, compute=compute), read_by(model) as read:
            model.generate(**prompt, **options)
        ids = torch.cat([part for _, part in read], dim=1)
        name = "input_ids" if read[0][0] == "input_ids" else "decoder_input_ids"
        dense, _ = eager_weights(kind, {**prompt, name: ids})
        calls = steps.calls()
        assert len(calls) == len(dense)
        for call, weights in zip(calls, dense, strict=True):
            assert np.abs(weights_of_call(call) - weights.numpy()).max() < (1e-4 if kind == "t5" else 3e-5)


def test_the_report_of_a_model_that_wrote():
    model, prompt = build("llama"), prompt_of("llama")
    written = model.generate(**prompt, **NEW)
    report = inspect_heads(
        model, prompt, lambda ids: [f"t{token}" for token in ids], special=[0], generate=NEW
    )
    assert report.tokens == [f"t{token}" for token in written[0, :-1].tolist()]  # the last one is never read
    start = prompt["input_ids"].shape[1]
    new = written.shape[1] - start
    assert (
        f"The model wrote {new} tokens, from token {start} on; the last one it never read" in report.notes[0]
    )
    whole = inspect_heads(model, written[:, :-1], special=[0])
    for layer, other in zip(report.layers, whole.layers, strict=True):
        for head, same in zip(layer["heads"], other["heads"], strict=True):
            for key, line in head["scores"].items():
                expected = same["scores"][key]["value"]
                assert line["value"] == (
                    None if expected is None else pytest.approx(expected, rel=1e-3, abs=1e-4)
                ), key


def test_the_report_of_two_texts():
    report = inspect_heads(build("bart"), prompt_of("bart"), source_special=[0], generate=5)
    assert [text["name"] for text in report.sequences] == ["target", "source"]
    assert report.text["n_tokens"] == 5 and len(report.sequences[1]["tokens"]) == N_TOKENS
    kinds = [(layer["kind"], layer["queries"], layer["keys"]) for layer in report.layers]
    assert (
        kinds
        == [("self", "source", "source")] * 2
        + [
            ("self", "target", "target"),
            ("cross", "target", "source"),
        ]
        * 2
    )


def refused(message, error, model, **options):
    with pytest.raises(error, match=message):
        inspect_heads(model, prompt_of("llama"), **options)


def test_what_cannot_be_put_together_is_refused():
    model = build("llama")
    beams = {"max_new_tokens": 4, "num_beams": 2}
    refused(
        r"generate: expected one sequence in every step.*num_beams=1", CapabilityError, model, generate=beams
    )
    refused("a number of tokens from 1", HeadwiseError, model, generate=0)
    refused("a number of tokens from 1", HeadwiseError, model, generate=True)
    refused("None for a model that does not write", HeadwiseError, build("bert"), generate=3)
    again = {"max_new_tokens": 4, "use_cache": False}
    refused("steps that go on where the last one ended", CapabilityError, model, generate=again)
