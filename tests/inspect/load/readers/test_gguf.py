"""A small GGUF file made here: weights, row order and tokenizer come back as transformers has them."""

import gguf
import numpy as np
import pytest
import torch
import transformers

from headwise.errors import CapabilityError, HeadwiseError
from headwise.inspect.load.models import load_model

WORDS = ["<s>", *(chr(33 + i) for i in range(26)), "Ġ", "1", "2", "a", "b", "ab", "Ġab"]
ROPE = {"rope_type": "default", "rope_theta": 500.0}


def permuted(weight, heads):
    """llama.cpp's order of the rows of query and key: rotary pairs side by side."""
    return weight.reshape(heads, 2, len(weight) // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture
def file(tmp_path, request):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, num_hidden_layers=2, intermediate_size=64, vocab_size=len(WORDS),
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rope_parameters=ROPE,
        initializer_range=0.4, tie_word_embeddings=request.param,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    writer = gguf.GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_block_count(2)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(500.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([3] + [1] * (len(WORDS) - 1))
    writer.add_token_merges(["a b", "Ġ ab"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output",
             "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}  # fmt: skip
    for name, weight in model.state_dict().items():
        array, parts = weight.numpy(), name.split(".")
        if parts[1] == "layers":
            heads = {"q_proj": 4, "k_proj": 2}.get(parts[-2])
            array = permuted(array, heads) if heads else array
            writer.add_tensor(f"blk.{parts[2]}.{names[parts[-2]]}.weight", np.ascontiguousarray(array))
        elif name == "model.embed_tokens.weight":
            writer.add_tensor("token_embd.weight", array)
        elif name == "model.norm.weight":
            writer.add_tensor("output_norm.weight", array)
        elif not request.param:
            writer.add_tensor("output.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tmp_path / "small.gguf", model


@pytest.mark.parametrize("file", [True, False], indirect=True)
def test_a_file_is_read_once(file, tmp_path, monkeypatch):
    path, model = file
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    loaded = load_model(str(path))
    assert (loaded.name, loaded.source) == ("small", str(path))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        assert (loaded.model(input_ids=ids).logits - expected).abs().max() < 1e-5
    assert loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("ab12 ab").input_ids) == [
        "ab",
        "1",
        "2",
        "Ġab",
    ]
    assert loaded.tokenizer.all_special_tokens == ["<s>"] and loaded.tokenizer.decode([32, 33]) == "ab ab"
    (folder,) = (tmp_path / "cache").iterdir()
    (folder / "config.json").touch()
    marked = folder.stat().st_mtime_ns
    load_model(str(path))
    assert folder.stat().st_mtime_ns == marked and len(list((tmp_path / "cache").iterdir())) == 1
    path.touch()
    load_model(str(path))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_other_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    for architecture, tokenizer, message in [
        ("mamba", "gpt2", r"a GGUF file of a Llama model; received other\.gguf: mamba\. Hint: load it with"),
    ]:
        writer = gguf.GGUFWriter(tmp_path / "other.gguf", architecture)
        writer.add_tokenizer_model(tokenizer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(CapabilityError, match=message):
            load_model(str(tmp_path / "other.gguf"))
    assert list((tmp_path / "cache").iterdir()) == []  # nothing half made stays
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    with pytest.raises(HeadwiseError, match=r"a GGUF file; received .*broken\.gguf"):
        load_model(str(tmp_path / "broken.gguf"))


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "taken"))
    with pytest.raises(HeadwiseError, match="HEADWISE_CACHE: expected a folder that can be written"):
        load_model(str(tmp_path / "x.gguf"))
