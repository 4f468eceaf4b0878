"""Small random models of several architectures, made from a config: nothing is downloaded."""

import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

N_TOKENS = 19
SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "intermediate_size": 40, "vocab_size": 29}


def config(kind, **changes):
    """A tiny config; weights are drawn wide enough that attention is far from uniform."""
    if kind == "bert":
        options = {**SMALL, "num_attention_heads": 6, "max_position_embeddings": 64, "initializer_range": 0.4}
        return transformers.BertConfig(**{**options, **changes})
    if kind == "llama":  # grouped heads
        options = {**SMALL, "num_attention_heads": 6, "num_key_value_heads": 2, "initializer_range": 0.4}
        return transformers.LlamaConfig(**{**options, "max_position_embeddings": 64, **changes})
    if kind == "gpt2":  # the scale is not 1/sqrt(d): each layer divides by its number too
        options = {"n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": 29, "n_positions": 64}
        wide = {"initializer_range": 0.4, "scale_attn_by_inverse_layer_idx": True}
        return transformers.GPT2Config(**{**options, **wide, "bos_token_id": 0, "eos_token_id": 0, **changes})
    raise KeyError(kind)


CLASSES = {"bert": "BertModel", "llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel"}


def build(kind, implementation="sdpa", class_name=None, **changes):
    torch.manual_seed(5)
    made = config(kind, attn_implementation=implementation, **changes)
    return getattr(transformers, class_name or CLASSES[kind])(made).eval()


@pytest.fixture
def ids():
    """(1, N_TOKENS) ids with repeats, so that duplicate and induction rows exist."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(1, 9, (1, N_TOKENS), generator=generator)


@pytest.fixture(params=["bert", "llama", "gpt2"])
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return build(kind)


@pytest.fixture
def bert():
    return build("bert")
