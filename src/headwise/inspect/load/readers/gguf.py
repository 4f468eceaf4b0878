"""GGUF files of Llama-like models: weights in float32, with the names and the row order of transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headwise.errors import CapabilityError, HeadwiseError

INSTALL = "pip install gguf"
OUTER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # token type of special tokens
PER_DIGIT = ("smollm",)  # pre-tokenizers that take numbers digit by digit
BYTES_ONLY = ("gpt-2", "gpt2", "default")


def read(source: Path, into: Path) -> None:
    """Write the model of a .gguf file as a transformers folder: config, weights in float32, tokenizer.

    Raises:
        CapabilityError: the ``gguf`` package is missing; an architecture or tokenizer other than Llama's with
            byte-level pieces.
    """
    try:
        from gguf import GGUFReader
    except ImportError:
        raise CapabilityError(
            "model", "the package gguf to read GGUF files", "no such package", INSTALL
        ) from None
    from safetensors.numpy import save_file

    try:
        file = GGUFReader(str(source))
    except (ValueError, IndexError, OSError) as error:
        raise HeadwiseError("model", "a GGUF file", f"{source} ({error})") from error
    data = {name: field.contents() for name, field in file.fields.items()}
    architecture = data.get("general.architecture")
    if architecture != "llama":
        hint = "load it with transformers, from_pretrained(folder, gguf_file=…), and pass the model"
        raise CapabilityError("model", "a GGUF file of a Llama model", f"{source.name}: {architecture}", hint)
    config = _config(data, "output.weight" not in {tensor.name for tensor in file.tensors})
    save_file(_weights(file, config), into / "model.safetensors", {"format": "pt"})
    (into / "config.json").write_text(json.dumps(config, indent=1))
    _write_tokenizer(data, source.name, into)


def _config(data: dict[str, Any], tied: bool) -> dict[str, Any]:
    heads, width = data["llama.attention.head_count"], data["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(data["tokenizer.ggml.tokens"]),
        "hidden_size": width,
        "intermediate_size": data["llama.feed_forward_length"],
        "num_hidden_layers": data["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": data.get("llama.attention.head_count_kv", heads),
        "head_dim": data.get("llama.attention.key_length", width // heads),
        "max_position_embeddings": data["llama.context_length"],
        "rms_norm_eps": data["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": data.get("llama.rope.freq_base", 10000.0),
        "rope_parameters": {"rope_type": "default", "rope_theta": data.get("llama.rope.freq_base", 10000.0)},
        "tie_word_embeddings": tied,
        "bos_token_id": data.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": data.get("tokenizer.ggml.eos_token_id"),
        "dtype": "float32",
    }


def _weights(file: Any, config: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
    from gguf import dequantize

    found = {}
    for tensor in file.tensors:
        name, kind = tensor.name.rsplit(".", 1)
        if name == "rope_freqs":
            continue
        array = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if name.startswith("blk."):
            _, layer, part = name.split(".", 2)
            if part in ("attn_q", "attn_k"):
                heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
                array = _halves(array, heads)
            found[f"model.layers.{layer}.{INNER[part]}.{kind}"] = array
        else:
            found[f"{OUTER[name]}.{kind}"] = array
    return found


def _halves(weight: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's row order: rotary pairs are neighbours there, half a head apart in transformers."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


def _write_tokenizer(data: dict[str, Any], name: str, into: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    model, split = data.get("tokenizer.ggml.model"), data.get("tokenizer.ggml.pre", "default")
    if model != "gpt2" or split not in (*PER_DIGIT, *BYTES_ONLY):
        hint = "load it with transformers, from_pretrained(folder, gguf_file=…), and pass the model"
        raise CapabilityError("model", "a byte-level tokenizer", f"{name}: {model}, {split}", hint)
    tokens = data["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ", 1)) for pair in data["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    bytes_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = [pre_tokenizers.Digits(individual_digits=True)] if split in PER_DIGIT else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, bytes_level])
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        token
        for token, kind in zip(tokens, data["tokenizer.ggml.token_type"], strict=True)
        if kind == CONTROL
    ]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    named = {
        f"{role}_token": tokens[data[key]]
        for role, key in (
            ("bos", "tokenizer.ggml.bos_token_id"),
            ("eos", "tokenizer.ggml.eos_token_id"),
            ("pad", "tokenizer.ggml.padding_token_id"),
        )
        if data.get(key) is not None
    }
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=data["llama.context_length"], **named
    ).save_pretrained(into)
