"""From what a user types (a text, a reaction, the name of a sound file) to what ``inspect_heads`` takes."""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.errors import HeadwiseError
from headwise.inspect.load.models import LoadedModel
from headwise.inspect.load.tokens import display_tokens, encode, place_of, position_limit, special_token_ids

WRITTEN = {"sound": 200, "text": 32}  # tokens that an encoder-decoder model writes where nobody says how many
BYTES = {1: np.uint8, 2: np.int16, 4: np.int32}  # of one sample


def encoding(
    loaded: LoadedModel,
    words: str,
    *,
    max_tokens: int | None = None,
    generate: int | None = None,
    classes: dict[str, Any] | None = None,
    needle: str | None = None,
) -> dict[str, Any]:
    """Keywords of ``inspect_heads`` for one text, or for the sound in a WAV file.

    An encoder-decoder model writes its second text itself.

    Args:
        words: the text; for a model that hears, the name of the file.
        max_tokens: keep at most so many tokens of the text.
        generate: how many tokens the model shall write; None: as many as the model needs.
        classes: classes of tokens of the text.
        needle: a passage of the text, or its tokens as "start:stop".

    Raises:
        HeadwiseError: a text without tokens, a file that is no such sound, or no such passage.
    """
    tokenizer = loaded.tokenizer
    special_ids = special_token_ids(tokenizer)
    written = {
        "tokens": lambda ids: display_tokens(tokenizer, ids),
        "special": lambda ids: [at for at, token in enumerate(ids) if token in special_ids],
    }
    if loaded.hears is not None:
        for option, wish in (("--classes", classes), ("--needle", needle)):
            if wish is not None:
                raise HeadwiseError(option, "a model that reads a text", "one that hears a sound")
        rate = loaded.hears.sampling_rate
        heard = loaded.hears(read_wav(Path(words), rate), sampling_rate=rate, return_tensors="pt")
        return {"inputs": dict(heard), "generate": generate or WRITTEN["sound"], "notes": [], **written}
    limit = position_limit(loaded.model, tokenizer)
    encoded = encode(tokenizer, words, max_tokens=max_tokens, limit=limit)
    found: dict[str, Any] = {"inputs": encoded.inputs, "notes": encoded.notes}
    if needle is not None:
        found["needle"] = place_of(needle, tokenizer, words, len(encoded.tokens))
    if getattr(loaded.model.config, "is_encoder_decoder", False):
        source = {
            "source_tokens": encoded.tokens,
            "source_special": encoded.special,
            "source_classes": classes,
        }
        return {**found, **source, "generate": generate or WRITTEN["text"], **written}
    if generate is not None:
        return {**found, "generate": generate, "classes": classes, **written}
    return {**found, "tokens": encoded.tokens, "special": encoded.special, "classes": classes}


def read_wav(path: Path, rate: int) -> npt.NDArray[np.float32]:
    """The sound in a WAV file, one channel between −1 and 1; several channels are averaged.

    Raises:
        HeadwiseError: no such file, another format, or another rate: sound is not resampled in silence.
    """
    expected = f"a WAV file of {rate} samples a second"
    try:
        with wave.open(str(path), "rb") as file:
            channels, width, found = file.getnchannels(), file.getsampwidth(), file.getframerate()
            data = file.readframes(file.getnframes())
    except OSError as error:
        raise HeadwiseError("text", expected, f"{path} ({error.strerror})") from error
    except (wave.Error, EOFError) as error:
        raise HeadwiseError("text", expected, f"{path} ({error or 'empty'})") from error
    if found != rate or width not in BYTES or not data:
        received = f"{path}: {found} a second, {8 * width} bits, {len(data)} bytes"
        raise HeadwiseError("text", expected, received, f"ffmpeg -i {path} -ar {rate} -ac 1 sound.wav")
    samples = np.frombuffer(data, BYTES[width]).reshape(-1, channels).astype(np.float64).mean(axis=1)
    middle = 128.0 if width == 1 else 0.0
    return ((samples - middle) / 2.0 ** (8 * width - 1)).astype(np.float32)
