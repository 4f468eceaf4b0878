"""CTranslate2 folders of Whisper models (the format of faster-whisper), in float32 or float16."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.errors import CapabilityError, HeadwiseError

DTYPES: dict[int, np.dtype[Any]] = {
    i: np.dtype(f"<{kind}") for i, kind in enumerate(("f4", "i1", "i2", "i4", "f2"))
}
BINARY_VERSION = 6
START = "<|startoftranscript|>"


def read(source: Path, into: Path) -> None:
    """Write the model of a CTranslate2 Whisper folder as a transformers folder.

    Raises:
        HeadwiseError, CapabilityError: another format, another kind of model, or quantised weights.
    """
    from safetensors.numpy import save_file
    from transformers import WhisperFeatureExtractor

    spec, arrays = _arrays(source / "model.bin")
    if spec != "WhisperSpec":
        raise CapabilityError("model", "a CTranslate2 model of Whisper", f"{source}: {spec}")
    given = json.loads((source / "config.json").read_text())
    words = {piece: int(i) for piece, i in _added_tokens(source / "tokenizer.json").items()}
    config = _config(arrays, words)
    save_file(_weights(arrays), into / "model.safetensors", {"format": "pt"})
    (into / "config.json").write_text(json.dumps(config, indent=1))
    generation = {
        "alignment_heads": given.get("alignment_heads"),
        "decoder_start_token_id": config["decoder_start_token_id"],
        "eos_token_id": config["eos_token_id"],
        "pad_token_id": config["pad_token_id"],
        "bos_token_id": config["bos_token_id"],
        "suppress_tokens": given.get("suppress_ids"),
        "begin_suppress_tokens": given.get("suppress_ids_begin"),
        "no_timestamps_token_id": words["<|notimestamps|>"],
        "is_multilingual": config["vocab_size"] >= 51865,
        "max_length": config["max_target_positions"],
        "return_timestamps": False,
    }
    (into / "generation_config.json").write_text(json.dumps(generation, indent=1))
    shutil.copy(source / "tokenizer.json", into / "tokenizer.json")
    named = {f"{role}_token": "<|endoftext|>" for role in ("bos", "eos", "unk", "pad")}
    tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 448, **named}
    (into / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=1))
    WhisperFeatureExtractor(feature_size=config["num_mel_bins"]).save_pretrained(into)


def _arrays(path: Path) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """The name of the model's kind and its arrays by name; aliases share an array."""
    data, at = path.read_bytes(), 0

    def number(form: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(form)
        return int(found)

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return data[at - size : at].rstrip(b"\0").decode()

    try:
        version = number("I")
        if version != BINARY_VERSION:
            raise CapabilityError("model", f"CTranslate2's format {BINARY_VERSION}", f"{path}: {version}")
        spec, _ = text(), number("I")
        arrays: dict[str, npt.NDArray[Any]] = {}
        for _ in range(number("I")):
            name = text()
            shape = [number("I") for _ in range(number("B"))]
            kind, size = number("B"), number("I")
            if kind not in DTYPES:
                raise CapabilityError("model", "float32 or float16 weights", f"{name}: type {kind}")
            arrays[name] = np.frombuffer(data, DTYPES[kind], size // DTYPES[kind].itemsize, at).reshape(shape)
            at += size
        for _ in range(number("I")):
            alias, name = text(), text()
            arrays[alias] = arrays[name]
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, HeadwiseError):
            raise
        raise HeadwiseError("model", "a CTranslate2 model.bin", f"{path} ({error})") from error
    return spec, arrays


def _added_tokens(path: Path) -> dict[str, int]:
    return {token["content"]: token["id"] for token in json.loads(path.read_text())["added_tokens"]}


def _config(arrays: dict[str, npt.NDArray[Any]], words: dict[str, int]) -> dict[str, Any]:
    vocabulary, width = arrays["decoder/embeddings/weight"].shape
    sides = {
        f"{side}_{what}": number
        for side in ("encoder", "decoder")
        for what, number in (
            (
                "layers",
                sum(
                    name.startswith(f"{side}/layer_") and name.endswith("ffn/linear_0/bias")
                    for name in arrays
                ),
            ),
            ("attention_heads", int(arrays[f"{side}/num_heads"])),
            ("ffn_dim", len(arrays[f"{side}/layer_0/ffn/linear_0/bias"])),
        )
    }
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "vocab_size": vocabulary,
        "d_model": width,
        "num_mel_bins": arrays["encoder/conv1/weight"].shape[1],
        "max_source_positions": len(arrays["encoder/position_encodings/encodings"]),
        "max_target_positions": len(arrays["decoder/position_encodings/encodings"]),
        **sides,
        "decoder_start_token_id": words[START],
        "bos_token_id": words["<|endoftext|>"],
        "eos_token_id": words["<|endoftext|>"],
        "pad_token_id": words["<|endoftext|>"],
        "dtype": "float32",
    }


def _weights(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.float32]]:
    """The arrays under transformers' names; fused projections split, the zero biases of keys left out."""
    found: dict[str, npt.NDArray[Any]] = {}
    for name, array in arrays.items():
        side, _, rest = name.partition("/")
        if array.ndim == 0 or name.startswith("decoder/projection") or rest == "alignment_heads":
            continue
        start = f"model.{side}."
        if rest.startswith("layer_"):
            layer, rest = rest.removeprefix("layer_").split("/", 1)
            start += f"layers.{layer}." if layer.isdigit() else ""
            rest = rest if layer.isdigit() else f"layer_{layer}/{rest}"
        for target, part in _parts(rest, array):
            found[start + target] = np.ascontiguousarray(part, dtype=np.float32)
    return found


def _parts(name: str, array: npt.NDArray[Any]) -> list[tuple[str, npt.NDArray[Any]]]:
    if name == "embeddings/weight":
        return [("embed_tokens.weight", array)]
    if name == "position_encodings/encodings":
        return [("embed_positions.weight", array)]
    *where, last = name.split("/")
    kind = {"gamma": "weight", "beta": "bias"}.get(last, last)
    if where[0].startswith("conv"):
        return [(f"{where[0]}.{kind}", array)]
    if where[-1] == "layer_norm":
        norms = {
            "self_attention": "self_attn_layer_norm",
            "attention": "encoder_attn_layer_norm",
            "ffn": "final_layer_norm",
        }
        return [(f"{norms[where[0]] if len(where) > 1 else 'layer_norm'}.{kind}", array)]
    if where[0] == "ffn":
        return [(f"fc{int(where[1][-1]) + 1}.{kind}", array)]
    module = "self_attn" if where[0] == "self_attention" else "encoder_attn"
    fused = {"self_attn": {"linear_0": "qkv", "linear_1": "o"}}.get(
        module, {"linear_0": "q", "linear_1": "kv", "linear_2": "o"}
    )[where[1]]
    names = ["out"] if fused == "o" else list(fused)
    return [
        (f"{module}.{letter}_proj.{kind}", part)
        for letter, part in zip(names, np.split(array, len(names)), strict=True)
        if not (letter == "k" and kind == "bias")
    ]
