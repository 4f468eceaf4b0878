"""Which tokens a call is about: padding is cut, texts are told apart, images and sounds have places."""

import numpy as np
import pytest
import torch

from headwise.errors import HeadwiseError
from headwise.inspect.run import inspect_heads
from tests.inspect.zoo import build, eager_weights, inputs_of, random_ids


def scores_of(report):
    return [
        {key: line["value"] for key, line in head["scores"].items()}
        for layer in report.layers
        for head in layer["heads"]
    ]


def assert_alike(report, other):
    for found, expected in zip(scores_of(report), scores_of(other), strict=True):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert found[key] == (None if value is None else pytest.approx(value, rel=1e-3, abs=1e-4)), key


@pytest.mark.parametrize("kind", ["bert", "llama", "mistral", "gpt2"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_sequence_is_scored_as_if_it_stood_alone(kind, side):
    model, ids = build(kind), random_ids(2)
    mask = torch.ones_like(ids)
    mask[1, slice(None, 6) if side == "left" else slice(-6, None)] = 0
    alone = ids[1, 6:] if side == "left" else ids[1, :-6]
    position_ids = (mask.cumsum(1) - 1).clamp(min=0)
    inputs = {"input_ids": ids, "attention_mask": mask, "position_ids": position_ids}
    report = inspect_heads(model, inputs, special=[0], sequence=1)
    assert report.tokens == [str(token) for token in alone.tolist()] and report.special == [0]
    assert_alike(report, inspect_heads(model, alone, special=[0]))


def test_padding_in_the_middle_has_no_rows():
    ids = random_ids()
    mask = torch.ones_like(ids)
    mask[0, 7:9] = 0
    report = inspect_heads(build("bert"), {"input_ids": ids, "attention_mask": mask})
    assert report.text["n_tokens"] == 19
    assert {head["scores"]["entropy"]["rows"] for layer in report.layers for head in layer["heads"]} == {17}


def test_patches_of_an_image():
    report = inspect_heads(build("vit"), inputs_of("vit"))
    assert report.tokens[:4] == ["[0]", "0,0", "0,1", "0,2"] and report.tokens[-1] == "3,3"
    assert report.sequences[0]["name"] == "patches" and not report.model["causal"]
    image = inputs_of("vit")["pixel_values"]
    assert scores_of(inspect_heads(build("vit"), image)) == scores_of(report)


def test_distance_in_an_image():
    """Between the centres of patches of 4 x 4 pixels, without the class token, rows renormalised."""
    report = inspect_heads(build("vit"), inputs_of("vit"))
    dense, _ = eager_weights("vit", inputs_of("vit"))
    centres = np.array([[4 * row + 2, 4 * column + 2] for row in range(4) for column in range(4)])
    apart = np.sqrt(((centres[:, None] - centres) ** 2).sum(axis=-1))
    for layer, weights in zip(report.layers, dense, strict=True):
        for head, w in zip(layer["heads"], weights[0].double().numpy(), strict=True):
            line, w = head["scores"]["pixel_distance"], w[1:, 1:]
            expected = ((w * apart).sum(axis=1) / w.sum(axis=1)).mean()
            assert line["value"] == pytest.approx(expected, rel=1e-4)
            assert line["null"] == pytest.approx(apart.mean(), rel=1e-6) and line["rows"] == 16
    assert next(score for score in report.scores if score["key"] == "pixel_distance")["unit"] == "pixels"
    assert "pixel_distance" not in inspect_heads(build("bert"), random_ids()).layers[0]["heads"][0]["scores"]


def test_frames_of_a_sound_and_embeddings():
    report = inspect_heads(build("whisper"), inputs_of("whisper"))
    assert [text["name"] for text in report.sequences] == ["target", "frames"]
    model = build("llama")
    embedded = model.get_input_embeddings()(random_ids()).detach()
    report = inspect_heads(model, {"inputs_embeds": embedded}, special=[0])
    assert_same = inspect_heads(model, random_ids(), special=[0])
    assert report.tokens[:3] == ["0", "1", "2"]
    for found, expected in zip(scores_of(report), scores_of(assert_same), strict=True):
        assert found["entropy"] == pytest.approx(expected["entropy"], rel=1e-5)
        assert found["duplicate"] is None and expected["duplicate"] is not None


def test_words_and_special_tokens_may_be_functions():
    model, ids = build("llama"), random_ids()
    report = inspect_heads(model, ids, lambda found: [f"<{i}>" for i in found], special=lambda found: [0, 2])
    assert report.tokens[0] == f"<{int(ids[0, 0])}>" and report.special == [0, 2]
    with pytest.raises(HeadwiseError, match="tokens: expected 19 strings, one per id; received 1"):
        inspect_heads(model, ids, lambda found: ["x"])
    with pytest.raises(HeadwiseError, match="source_tokens: expected 19 strings"):
        inspect_heads(build("bart"), inputs_of("bart"), source_tokens=["x"])
    with pytest.raises(HeadwiseError, match="source_special: expected different positions from 0 to 18"):
        inspect_heads(build("t5"), inputs_of("t5"), source_special=np.array([19]))
