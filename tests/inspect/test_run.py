"""``inspect_heads`` from end to end: what it takes, what it refuses, what it leaves behind."""

import contextlib
import json

import numpy as np
import pytest
import torch
import transformers

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect import inspect_heads
from headwise.inspect.call.marks import marked
from headwise.inspect.listen.capture import attached
from headwise.inspect.report import entries as heads
from tests.inspect.listen.test_capture import state_of
from tests.inspect.zoo import N_TOKENS, build, eager_weights, inputs_of


def test_the_report_says_what_was_inspected(ids):
    report = inspect_heads(
        build("llama"), ids, ["w"] * N_TOKENS, special=[0], name="tiny", source="here", text_source="a test",
        notes=["First."],
    )  # fmt: skip
    assert report.model == {
        "name": "tiny",
        "source": "here",
        "architecture": "LlamaForCausalLM",
        "layers": 3,
        "heads": 6,
        "kv_heads": 2,
        "head_dim": 8,
        "causal": True,
    }
    assert report.text == {"source": "a test", "n_tokens": N_TOKENS}
    assert report.check == {"tokens": N_TOKENS, "max_abs_difference": 0.0, "causal_leak": 0.0}
    assert report.tokens == ["w"] * N_TOKENS and report.special == [0]
    first, more = report.notes
    assert first == "First." and more.startswith("Labels that need more on this text: previous token 0.7")
    assert report.layers[1]["name"] == "model.layers.1.self_attn"
    assert json.loads(report.to_json()) == report.to_dict()  # plain data, nothing lost


@pytest.mark.parametrize(
    "form", ["tensor", "flat tensor", "list", "mapping", "flat mapping", "batch encoding"]
)
def test_every_form_of_ids_gives_the_same_report(bert, ids, form):
    forms = {
        "tensor": ids,
        "flat tensor": ids[0],
        "list": ids[0].tolist(),
        "mapping": {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        "flat mapping": {"input_ids": ids[0], "token_type_ids": torch.zeros_like(ids[0])},
        "batch encoding": transformers.BatchEncoding({"input_ids": ids}),
    }
    assert inspect_heads(bert, forms[form]) == inspect_heads(bert, ids)


def test_tokens_default_to_the_ids(bert, ids):
    report = inspect_heads(bert, ids)
    assert report.tokens == [str(number) for number in ids[0].tolist()]
    assert report.special == [] and report.notes == [
        "No special tokens were named, so that score is missing.",
        "Labels that need more on this text: induction 0.40 instead of 0.30, five times what uniform "
        "attention gives.",
    ]
    assert report.layers[0]["heads"][0]["scores"]["special"]["value"] is None


def test_classes_of_ones_own(bert, ids):
    words = ["a", "b"] * 9 + ["c"]
    report = inspect_heads(bert, ids, words, classes={"b": ["b", "z"], "ends": [0, N_TOKENS - 1]})
    dense, _ = eager_weights("bert", {"input_ids": ids})
    for layer, weights in zip(report.layers, dense, strict=True):
        for head, w in zip(layer["heads"], weights[0].double().numpy(), strict=True):
            for name, where in (("b", list(range(1, 18, 2))), ("ends", [0, 18])):
                line = head["scores"][f"class:{name}"]
                assert line["value"] == pytest.approx(w[:, where].sum(axis=1).mean(), abs=1e-5)
                assert line["null"] == pytest.approx(len(where) / N_TOKENS, abs=1e-9)
    assert {"class:b", "class:ends"} <= {score["key"] for score in report.scores}
    two = inputs_of("bart")
    report = inspect_heads(build("bart"), two, classes={"x": [1]}, source_classes={"y": [2, 3]})
    for layer in report.layers:
        keys = {key for key in layer["heads"][0]["scores"] if key.startswith("class:")}
        assert keys == {"class:y" if layer["keys"] == "source" else "class:x"}


def test_classes_that_the_text_does_not_have_are_refused(bert, ids):
    refused(bert, ids, r"classes: expected a mapping from names to positions or tokens; received list",
            classes=[1])  # fmt: skip
    refused(bert, ids, r"classes\['a'\]: expected tokens of the text, as they are shown, or positions; "
            "received 'x', 'y'", classes={"a": ["x", "y"]})  # fmt: skip
    for members in ([19], [1, 1], "abc", ["x", 1], [0.5]):
        refused(
            bert, ids, r"classes\['a'\]: expected different positions from 0 to 18", classes={"a": members}
        )
    two = inputs_of("t5")
    refused(build("t5"), two, r"source_classes\['a'\]: expected different", source_classes={"a": [40]})


def test_progress_counts_layers(bert, ids):
    seen = []
    inspect_heads(bert, ids, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_the_model_is_left_as_it_was(model, ids):
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=False)[0]
    before = state_of(model)
    given = {"input_ids": ids[0], "attention_mask": torch.ones_like(ids[0])}
    inspect_heads(model, given)
    assert state_of(model) == before
    assert list(given) == ["input_ids", "attention_mask"] and given["input_ids"].shape == (N_TOKENS,)
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids, use_cache=False)[0], output)


def test_the_model_is_left_as_it_was_after_ctrl_c(model, ids):
    before = state_of(model)

    def interrupt(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect_heads(model, ids, progress=interrupt)
    assert state_of(model) == before


@pytest.mark.parametrize("which", [1, 2])
def test_the_model_is_left_as_it_was_after_ctrl_c_on_the_way_out(monkeypatch, model, ids, which):
    """Before the first line that puts anything back; the exception, with all its frames, is still held."""
    before, leaving, met = state_of(model), contextlib._GeneratorContextManager.__exit__, []

    def interrupted(manager, *error):
        if manager.gen.__name__ == attached.__name__:
            met.append(manager)
            if len(met) == which:
                raise KeyboardInterrupt
        return leaving(manager, *error)

    monkeypatch.setattr(contextlib._GeneratorContextManager, "__exit__", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        inspect_heads(model, ids)
    monkeypatch.undo()
    same = state_of(model) == before
    assert same and len(met) == which and caught.value.__traceback__
    assert inspect_heads(model, ids).layers


def test_dense_weights_are_never_asked_for(model, ids):
    asked = []
    for module in model.modules():
        module.register_forward_pre_hook(
            lambda _, args, keywords: asked.append(keywords.get("output_attentions")), with_kwargs=True
        )
    inspect_heads(model, ids)
    assert asked and not any(asked)


def test_a_language_model_gives_logits_for_one_token_only(ids):
    model, lengths = build("llama"), []
    model.lm_head.register_forward_hook(lambda _, args, output: lengths.append(output.shape[1]))
    inspect_heads(model, ids)
    assert lengths[-1] == 1


def test_no_cache_is_made(ids):
    model, asked = build("llama"), []
    model.register_forward_pre_hook(
        lambda _, args, keywords: asked.append(keywords.get("use_cache")), with_kwargs=True
    )
    inspect_heads(model, ids)
    assert asked == [False] * 4  # as it is, listened to, with another last token, the whole text


def test_an_induction_head_keeps_its_strongest_link_that_counts(monkeypatch, bert, ids):
    assert all(
        h["evidence"] is None
        for h in inspect_heads(bert, ids).layers[0]["heads"]
        if h["label"] != "induction"
    )
    monkeypatch.setattr(heads, "label_of", lambda card: "induction")
    numbers = ids[0].tolist()
    for head in inspect_heads(bert, ids).layers[1]["heads"]:
        rows = [
            zip(*pair, strict=True)
            for pair in zip(head["rows"]["index"], head["rows"]["weight"], strict=True)
        ]
        links = [(query, key, weight) for query, row in enumerate(rows) for key, weight in row]
        counting = [
            link
            for link in links
            if link[1] >= 1 and numbers[link[1] - 1] == numbers[link[0]] and link[1] - 1 != link[0]
        ]
        assert tuple(head["evidence"]) == max(counting, key=lambda link: link[2])


def test_a_short_text_says_which_labels_it_cannot_have(bert, ids):
    report = inspect_heads(bert, ids[:, :4], special=[0])
    assert report.notes == [
        "The text is short: with 4 tokens the labels previous token, next token, separator and first token "
        "cannot be reached, since they need five times what uniform attention gives."
    ]
    beyond = {label["key"] for label in report.labels if not label["reachable"]}
    assert beyond >= {"previous", "next", "separator", "first"} and "broad" not in beyond
    assert all(label["reachable"] for label in inspect_heads(bert, ids, special=[0]).labels[:4])


# What is refused at the door.


def refused(model, inputs, message, error=HeadwiseError, **options):
    with pytest.raises(error, match=message) as caught:
        inspect_heads(model, inputs, **options)
    assert type(caught.value) is error


def test_wrong_inputs_are_refused(bert, ids):
    refused(bert, "The cat", r"inputs: expected token ids .* received a text\. Hint: tokenizer\(text")
    refused(bert, ids.float(), r"received Tensor of torch\.float32")
    refused(bert, ids > 3, r"received Tensor of torch\.bool")
    refused(bert, ids[:, :0], r"received shape \(1, 0\)")
    refused(bert, ids[None], r"received shape \(1, 1, 19\)")
    refused(bert, {"text": ids}, "received a mapping with text in it")
    refused(bert, {}, "received a mapping with nothing in it")
    refused(bert, object(), "received object")
    refused(bert, ids + 40, r"token ids from 0 to 28; received ids from \d+ to \d+")
    refused(bert, torch.ones(1, 65, dtype=int), r"at most 64 tokens.*received 65\. Hint: .*--max-tokens 64")
    refused(bert, ids, r"tokens: expected 19 strings, one per id; received 2", tokens=["a", "b"])
    refused(bert, ids, r"tokens: expected 19 strings, one per id; received one string", tokens="a" * 19)
    refused(bert, ids, r"special: expected different positions from 0 to 18; received \[101\]", special=[101])
    refused(bert, ids, r"special: expected different positions from 0 to 18; received \[-1\]", special=[-1])


def test_what_is_not_served_is_refused_by_name(bert, ids):
    refused(bert, ids.repeat(3, 1), r"a batch of 3 sequences\. Hint: sequence=0 … 2", CapabilityError)
    refused(bert, ids.repeat(3, 1), "sequence: expected a number from 0 to 2; received 3", sequence=3)
    hidden = {"input_ids": ids, "attention_mask": torch.zeros_like(ids)}
    refused(bert, hidden, "at least one real token; received 19 of padding")
    refused(bert, {"input_ids": ids, "cache": object()}, "a key/value cache", CapabilityError)
    refused(bert, {"input_ids": ids, "past_key_values": object()}, "Hint: .*generate=n", CapabilityError)
    refused(bert, {"input_ids": ids, "use_cache": True}, "received use_cache=True", CapabilityError)
    refused(
        bert, {"input_ids": ids, "output_attentions": True}, "received output_attentions", CapabilityError
    )
    refused(
        build("t5"), ids, r"both texts of an encoder-decoder model; received one text\. Hint: add decoder"
    )
    refused(
        build("t5"), {"input_ids": ids, "decoder_input_ids": ids + 40}, r"inputs\['decoder_input_ids'\]: "
    )
    refused(build("vit"), torch.randn(1, 3, 16, 16), "pairs: expected None for a model", pairs=[(1, 0)])
    refused(bert, ids, 'compute: expected "torch" or "kernel"', compute="gpu")


def test_wrong_models_are_refused(bert, ids):
    refused("minilm", ids, r"a torch model; received builtins\.str\. Hint: AutoModel")
    refused(torch.nn.Linear(2, 2).eval(), 3, r"inputs: expected a tensor, a tuple .* received int")
    refused(build("bert").to("meta"), ids, r"a model on the CPU; received \S+ on meta", CapabilityError)
    refused(build("bert").train(), ids, r"BertModel in training mode\. Hint: model\.eval\(\)")
    bert.encoder.layer[1].train()
    refused(bert, ids, r"encoder\.layer\.1 in training mode")
    eager = build("bert", "eager")
    eager.config.output_attentions = True
    refused(eager, ids, r"received config\.output_attentions=True", CapabilityError)


def test_one_token_and_half_precision(ids):
    report = inspect_heads(build("llama"), ids[:, :1])
    assert report.text["n_tokens"] == 1 and report.check["causal_leak"] is None
    assert report.layers[0]["heads"][0]["scores"]["self"]["value"] == 1.0
    half = inspect_heads(build("llama").bfloat16(), ids, special=[0])
    whole = inspect_heads(build("llama"), ids, special=[0])
    for found, expected in zip(half.layers[0]["heads"], whole.layers[0]["heads"], strict=True):
        assert found["scores"]["first"]["value"] == pytest.approx(
            expected["scores"]["first"]["value"], abs=0.2
        )
    assert half.check["max_abs_difference"] > 0 or half.check["causal_leak"] == 0


@pytest.mark.parametrize("kind", ["llama", "mistral", "t5"])
def test_our_kernel_may_compute_the_models_output(kind):
    inputs = inputs_of(kind)
    report = inspect_heads(build(kind), inputs, compute="kernel")
    other = inspect_heads(build(kind), inputs)
    assert 0 < report.check["max_abs_difference"] < 1e-3
    assert "Our kernel computed the model's attention" in report.notes[0]
    for layer, same in zip(report.layers, other.layers, strict=True):
        for head, expected in zip(layer["heads"], same["heads"], strict=True):
            found, value = head["scores"]["entropy"]["value"], expected["scores"]["entropy"]["value"]
            assert found == pytest.approx(value, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    "special", [[1, 0, 0, 1], [True, False], np.array([1.0]), "12", [0, 99], [-1], [[0]]]
)
def test_a_mask_is_not_taken_for_positions(special):
    with pytest.raises(HeadwiseError, match="special: expected different positions"):
        marked("special", special, 4)


def test_positions_are_sorted_and_may_be_none():
    assert marked("special", [3, 0], 4) == [0, 3]
    assert marked("special", np.array([2]), 4) == [2]
    assert marked("special", [], 4) == marked("special", None, 4) == []


def test_an_inspection_inside_another(bert, ids):
    def again(done, many):
        if done:
            inspect_heads(bert, ids)

    before = state_of(bert)
    refused(bert, ids, "expected a model at rest", CapabilityError, progress=again)
    same = state_of(bert) == before
    assert same and inspect_heads(bert, ids).layers
