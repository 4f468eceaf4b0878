"""From a text, or the name of a sound file, to what is inspected."""

import struct
import wave

import numpy as np
import pytest

from headwise.errors import HeadwiseError
from headwise.inspect.load.encoding import encoding, read_wav
from headwise.inspect.load.models import LoadedModel, load_model
from tests.inspect.zoo import build


def write(path, samples, rate=16000, width=2, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(samples)
    return path


def test_sounds(tmp_path):
    path = write(tmp_path / "a.wav", struct.pack("<4h", 0, 16384, -32768, 8192))
    assert read_wav(path, 16000).tolist() == [0.0, 0.5, -1.0, 0.25]
    path = write(tmp_path / "b.wav", struct.pack("<4h", 0, 16384, -32768, 0), channels=2)
    assert read_wav(path, 16000).tolist() == [0.25, -0.5]
    assert read_wav(write(tmp_path / "c.wav", bytes([128, 192, 0]), width=1), 16000).tolist() == [
        0.0,
        0.5,
        -1.0,
    ]
    assert read_wav(write(tmp_path / "d.wav", struct.pack("<i", 2**30), width=4), 16000).tolist() == [0.5]


def test_files_that_are_no_sound(tmp_path):
    (tmp_path / "text.wav").write_text("no sound")
    for path, message in [
        (tmp_path / "none.wav", r"none\.wav \(No such file"),
        (tmp_path / "text.wav", r"text\.wav \(file does not start with RIFF id\)"),
        (
            write(tmp_path / "slow.wav", b"\0\0", rate=8000),
            r"slow\.wav: 8000 a second.*Hint: ffmpeg .* -ar 16000",
        ),
        (write(tmp_path / "empty.wav", b""), "0 bytes"),
    ]:
        with pytest.raises(
            HeadwiseError, match=r"a WAV file of 16000 samples a second; received .*" + message
        ):
            read_wav(path, 16000)


def test_texts():
    loaded = load_model("minilm")
    made = encoding(loaded, "A cat.")
    assert made["tokens"] == ["[CLS]", "a", "cat", ".", "[SEP]"] and made["special"] == [0, 4]
    assert "generate" not in made
    written = encoding(loaded, "A cat.", generate=7)
    assert written["generate"] == 7 and written["special"]([101, 5, 102]) == [0, 2]
    two = encoding(LoadedModel("x", "y", build("bart"), loaded.tokenizer), "A cat.")
    assert two["source_tokens"] == made["tokens"] and two["generate"] == 32
    assert np.asarray(two["inputs"]["input_ids"]).shape == (1, 5)


def test_marks():
    loaded = load_model("minilm")
    one = encoding(loaded, "A cat.", classes={"a": [1]}, needle="cat", generate=3)
    assert one["classes"] == {"a": [1]} and one["needle"] == (2, 3)
    assert encoding(loaded, "A cat.", classes={"a": [1]})["classes"] == {"a": [1]}
    model = LoadedModel("x", "y", build("bart"), loaded.tokenizer)
    two = encoding(model, "A cat.", classes={"a": [1]}, needle="1:2")
    assert two["source_classes"] == {"a": [1]} and "classes" not in two and two["needle"] == (1, 2)
    hears = LoadedModel("x", "y", build("whisper"), loaded.tokenizer, hears=object())
    for marks in ({"classes": {"a": [1]}}, {"needle": "1:2"}):
        option = f"--{next(iter(marks))}"
        with pytest.raises(
            HeadwiseError, match=f"{option}: expected a model that reads a text; received one that"
        ):
            encoding(hears, "a.wav", **marks)
