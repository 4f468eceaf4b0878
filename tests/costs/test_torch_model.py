"""The cost of live torch models and of Hugging Face configs, against the modules themselves and torch's own
counter."""

import random

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel, BartConfig, BartModel, T5Config, T5Model, WhisperConfig
from transformers.utils import logging

from headwise.compute.problem import divisors
from headwise.costs import cost
from headwise.errors import CapabilityError, HeadwiseError

CONFIGURATIONS = 200


@pytest.fixture(autouse=True)
def quiet():
    """transformers says only errors here, and what it said before afterwards."""
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    yield
    logging.set_verbosity(before)


def number_of(module):
    return sum(parameter.numel() for parameter in module.parameters())


class Grouped(nn.Module):
    """A grouped layer with widths of its own, projections named as Hugging Face names them."""

    def __init__(self, d_model, heads, kv_heads, head_dim, v_head_dim, d_out, bias):
        super().__init__()
        self.head_dim, self.is_causal = head_dim, True
        self.q_proj = nn.Linear(d_model, heads * head_dim, bias="q" in bias)
        self.k_proj = nn.Linear(d_model, kv_heads * head_dim, bias="k" in bias)
        self.v_proj = nn.Linear(d_model, kv_heads * v_head_dim, bias="v" in bias)
        self.o_proj = nn.Linear(heads * v_head_dim, d_out, bias="o" in bias)


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_parameters_of_torch_attention(seed):
    rng = random.Random(seed)
    heads = rng.randint(1, 8)
    options = {
        "embed_dim": heads * rng.randint(1, 6),
        "num_heads": heads,
        "bias": rng.random() < 0.6,
        "kdim": rng.choice([None, rng.randint(1, 20)]),
        "vdim": rng.choice([None, rng.randint(1, 20)]),
        "add_bias_kv": rng.random() < 0.3,
        "add_zero_attn": rng.random() < 0.3,
    }
    with torch.device("meta"):
        module = nn.MultiheadAttention(**options)
    found = cost(module, seq=5, kv_seq=7)
    assert found.parameters == number_of(module)
    assert found["parameters.without_biases"] == sum(
        p.numel() for name, p in module.named_parameters() if "bias" not in name
    )
    extra = options["add_bias_kv"] + options["add_zero_attn"]
    assert found.layers[0]["pairs.visible"] == 5 * (7 + extra)
    assert found["flops.w_k"] == 2 * 7 * (options["kdim"] or options["embed_dim"]) * options["embed_dim"]
    assert found["flops.w_v"] == 2 * 7 * (options["vdim"] or options["embed_dim"]) * options["embed_dim"]


@pytest.mark.parametrize("seed", range(CONFIGURATIONS))
def test_parameters_of_grouped_layers(seed):
    rng = random.Random(seed)
    heads = rng.choice([1, 2, 4, 6, 12])
    sizes = {
        "d_model": rng.randint(1, 30),
        "heads": heads,
        "kv_heads": rng.choice(divisors(heads)),
        "head_dim": rng.randint(1, 9),
        "v_head_dim": rng.randint(1, 9),
        "d_out": rng.randint(1, 30),
        "bias": rng.choice(["", "qkvo", "qkv", "o"]),
    }
    with torch.device("meta"):
        module = Grouped(**sizes)
    found = cost(module, seq=6, batch=2)
    assert found.parameters == number_of(module)
    by_sizes = cost(**sizes, seq=6, batch=2, causal=True, dtype_bytes=4)
    assert found.layers[0].quantities == by_sizes.layers[0].quantities


# ---- torch's own counter ----


def torch_counts(call, *modules):
    """FLOPs that torch counts, in all or inside the named modules."""
    with FlopCounterMode(display=False) as counter:
        call()
    if not modules:
        return counter.get_total_flops()
    counts = counter.get_flop_counts()
    return sum(sum(counts[name].values()) for name in modules)


def test_torch_attention_counts_what_torch_counts_where_it_counts():
    module, x = nn.MultiheadAttention(64, 4, batch_first=True), torch.randn(1, 32, 64)
    with sdpa_kernel(SDPBackend.MATH):
        seen = torch_counts(lambda: module.train()(x, x, x, need_weights=False))
    assert cost(module, seq=32).flops == seen == 1_310_720


def test_torch_counts_less_where_it_looks_away():
    """Evaluation: the fused call is counted without its products of queries, keys and values."""
    module, x = nn.MultiheadAttention(64, 4, batch_first=True).eval(), torch.randn(1, 32, 64)
    seen = torch_counts(lambda: module(x, x, x, need_weights=False))
    assert seen < cost(module, seq=32).flops == 1_310_720


@pytest.mark.parametrize("seed", range(20))
def test_cross_attention_against_torch(seed):
    rng = random.Random(seed)
    heads, kdim, vdim, n, m, b = (rng.randint(1, 5) for _ in range(6))
    width = heads * rng.randint(1, 4)
    module = nn.MultiheadAttention(
        width, heads, kdim=kdim, vdim=vdim, bias=rng.random() < 0.5, batch_first=True
    )
    query, key, value = torch.randn(b, n, width), torch.randn(b, m, kdim), torch.randn(b, m, vdim)
    with sdpa_kernel(SDPBackend.MATH):
        seen = torch_counts(lambda: module(query, key, value, need_weights=False))
    assert cost(module, seq=n, kv_seq=m, batch=b).flops == seen


TINY = {"intermediate_size": 8, "vocab_size": 7, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
BASE = {"hidden_size": 24, "num_attention_heads": 4, "num_hidden_layers": 3, **TINY}
OPT = {name: size for name, size in BASE.items() if name != "intermediate_size"}
OPT |= {"ffn_dim": 8, "word_embed_proj_dim": 24}
GROUPS = {**BASE, "num_key_value_heads": 2}
LATENT = {
    **BASE,
    "num_key_value_heads": 4,
    "kv_lora_rank": 6,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
}
SMALL = {name: size for name, size in BASE.items() if name != "intermediate_size"}
T5 = {"d_model": 24, "d_kv": 5, "num_heads": 4, "d_ff": 8, "vocab_size": 7}
SIDES = {"d_model": 24, "encoder_layers": 3, "decoder_layers": 2, "decoder_start_token_id": 1}
SIDES |= {"encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 8}
SIDES |= {"decoder_ffn_dim": 8, "vocab_size": 7, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
FAMILIES = {
    "bert": ("bert", BASE),
    "roberta": ("roberta", BASE),
    "xlm-roberta": ("xlm-roberta", BASE),
    "camembert": ("camembert", BASE),
    "electra": ("electra", {**BASE, "embedding_size": 10}),
    "distilbert": ("distilbert", {"dim": 24, "n_heads": 4, "n_layers": 3, "hidden_dim": 8, "vocab_size": 7}),
    "gpt2": (
        "gpt2",
        {"n_embd": 24, "n_head": 4, "n_layer": 3, "vocab_size": 7, "bos_token_id": 0, "eos_token_id": 1},
    ),
    "gpt_neox": ("gpt_neox", BASE),
    "gpt_neox without biases": ("gpt_neox", {**BASE, "attention_bias": False}),
    "llama": ("llama", GROUPS),
    "llama of old": ("llama", BASE),
    "llama, wide heads, biases": ("llama", {**GROUPS, "head_dim": 10, "attention_bias": True}),
    "mistral": ("mistral", {**GROUPS, "sliding_window": 5}),
    "mistral without a window": ("mistral", {**GROUPS, "head_dim": 10, "sliding_window": None}),
    "mixtral": ("mixtral", {**GROUPS, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "qwen2": ("qwen2", GROUPS),
    "qwen2, later layers slide": (
        "qwen2",
        {
            **GROUPS,
            "num_hidden_layers": 5,
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 2,
        },
    ),
    "qwen3": ("qwen3", {**GROUPS, "head_dim": 10}),
    "qwen3_moe": (
        "qwen3_moe",
        {**GROUPS, "head_dim": 10, "moe_intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1},
    ),
    "qwen3_moe without head_dim": (
        "qwen3_moe",
        {**GROUPS, "moe_intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1},
    ),
    "granite": ("granite", {**GROUPS, "attention_bias": True}),
    "olmo": ("olmo", GROUPS),
    "opt": ("opt", OPT),
    "opt without biases": ("opt", {**OPT, "enable_bias": False}),
    "vit": ("vit", BASE),
    "vit without biases": ("vit", {**BASE, "qkv_bias": False}),
    "gemma": ("gemma", {**GROUPS, "head_dim": 10}),
    "gemma2": ("gemma2", {**GROUPS, "num_hidden_layers": 5, "head_dim": 10, "sliding_window": 5}),
    "phi3": ("phi3", {**GROUPS, "sliding_window": 5}),
    "falcon": ("falcon", SMALL),
    "falcon of many queries": ("falcon", {**SMALL, "multi_query": False, "bias": True, "alibi": True}),
    "falcon of groups": ("falcon", {**SMALL, "num_kv_heads": 2, "new_decoder_architecture": True}),
    "falcon without groups": ("falcon", {**SMALL, "new_decoder_architecture": True, "bias": True}),
    "phi": ("phi", BASE),
    "phi of groups with norms": ("phi", {**GROUPS, "qk_layernorm": True}),
    "t5": ("t5", {**T5, "num_layers": 3, "num_decoder_layers": 2}),
    "t5 of one layer": ("t5", {**T5, "num_layers": 1}),
    "bart": ("bart", SIDES),
    "whisper": ("whisper", SIDES),
    "deepseek_v3": ("deepseek_v3", {**LATENT, "q_lora_rank": 5, "attention_bias": True}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "q_lora_rank": None}),
}
ATTENTION = (
    "attention.self.",
    "attention.output.dense.",
    ".attention.q_proj",
    ".attention.k_proj",
    ".attention.v_proj",
    ".attention.o_proj",
    ".attention.q_lin",
    ".attention.k_lin",
    ".attention.v_lin",
    ".attention.out_lin",
    ".attn.",
    ".self_attn.",
    ".attention.query_key_value",
    ".attention.dense",
    ".self_attention.",
    ".encoder_attn.",
    "Attention.",
)


def made(family, options):
    config = AutoConfig.for_model(family, **options)
    with torch.device("meta"):
        return config, AutoModel.from_config(config)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_config_its_model_and_its_parameters_agree(name):
    config, model = made(*FAMILIES[name])
    lengths = {"seq": 9, "kv_seq": 7 if config.is_encoder_decoder else None}
    from_config, from_model = cost(config.to_dict(), **lengths, dtype_bytes=4), cost(model, **lengths)
    held = {n: p.numel() for n, p in model.named_parameters() if any(part in n for part in ATTENTION)}
    assert from_model.parameters == from_config.parameters == sum(held.values()) > 0
    biases = [count for n, count in held.items() if n.endswith(".bias") and "norm" not in n]
    assert from_model["parameters.biases"] == sum(biases)
    assert [q.value for q in from_model.totals] == [q.value for q in from_config.totals]
    layers = config.to_dict().get("num_hidden_layers", 3)
    if config.is_encoder_decoder:
        encoders, decoders = (
            len(side.layers if name in ("bart", "whisper") else side.block)
            for side in (model.encoder, model.decoder)
        )
        layers = encoders + 2 * decoders
    assert (
        sum(kind.count for kind in from_model.layers)
        == sum(kind.count for kind in from_config.layers)
        == layers
    )


def test_every_family_that_is_read_is_tested_here():
    from headwise.costs.families import FAMILIES as known

    assert set(known) == {family for family, _ in FAMILIES.values()}


@pytest.mark.parametrize(
    "name", ["bert", "gpt2", "llama, wide heads, biases", "qwen3", "gemma2", "deepseek_v3"]
)
def test_operations_of_a_model_are_those_that_torch_counts(name):
    family, options = FAMILIES[name]
    config = AutoConfig.for_model(family, **options)
    config._attn_implementation = "eager"  # counted product by product, over the whole grid
    model = AutoModel.from_config(config).eval()
    ids = torch.randint(3, 7, (2, 9))
    found = cost(model, seq=9, batch=2, causal=False)
    if name == "gemma2":
        found = cost(model, seq=5, batch=2, causal=False)
        ids = ids[:, :5]  # inside the window, so that nothing is hidden
    owners = {"bert": "attention", "gpt2": "attn"}.get(family, "self_attn")
    places = [f"{type(model).__name__}.{n}" for n, _ in model.named_modules() if n.split(".")[-1] == owners]
    with torch.no_grad():
        seen = torch_counts(lambda: model(ids), *places)
    assert found.flops == seen


def test_known_totals():
    config, model = made("bert", {})
    assert cost(model).parameters == cost(config.to_dict()).parameters == 28_348_416
    config, model = made("gpt2", {})
    assert cost(model).parameters == cost(config.to_dict()).parameters == 28_348_416
    llama = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "torch_dtype": "bfloat16",
    }
    assert cost(llama).kv_bytes_per_token == 131_072


def test_windows_of_a_config():
    mistral = {
        "model_type": "mistral",
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 2,
        "sliding_window": 4,
    }
    found = cost(mistral, seq=10)
    assert found.layers[0]["pairs.visible"] == 1 + 2 + 3 + 4 * 7, "4 keys, the query's own among them"
    assert found.layers[0]["cache.tokens"] == 4
    gemma2 = {**mistral, "model_type": "gemma2", "head_dim": 4, "num_hidden_layers": 3}
    kinds = {kind.name: (kind.letter, kind.count) for kind in cost(gemma2, seq=10).layers}
    assert kinds == {"full attention": ("k1", 1), "windowed attention": ("k2", 2)}


def test_types_of_layers_win_over_the_family_rule():
    qwen = {
        "model_type": "qwen2",
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "num_hidden_layers": 3,
        "use_sliding_window": True,
        "sliding_window": 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }
    assert [kind.count for kind in cost(qwen).layers] == [1, 2]
    assert [kind.count for kind in cost({**qwen, "use_sliding_window": False}).layers] == [3]


def test_two_sequences_of_a_config():
    """Whisper tiny: 1500 frames once, and 448 tokens that read them."""
    config = WhisperConfig().to_dict()
    found = cost(config, seq=448, kv_seq=1500)
    parts = {kind.name: (kind.count, kind.work["n_q"], kind.work["n_k"]) for kind in found.layers}
    assert parts == {
        "encoder self-attention": (4, 1500, 1500),
        "decoder self-attention": (4, 448, 448),
        "cross-attention": (4, 448, 1500),
    }
    assert [kind["pairs.visible"] for kind in found.layers] == [1500**2, 448 * 449 // 2, 448 * 1500]
    assert found.parameters == 12 * (4 * 384**2 + 3 * 384), "no bias of W_K"
    assert found["cache.total"] == 4 * (448 + 1500) * 2 * 384 * 2, "the encoder keeps nothing"
    assert any("decoder alone has a cache" in note for note in found.notes)
    assert cost(config).parameters == found.parameters
    assert cost(config, seq=448, kv_seq=1500, causal=True) == found


def test_bytes_of_a_number_come_from_the_model():
    gpt2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1}
    assert cost(gpt2)["cache.token"] == 32
    assert cost({**gpt2, "torch_dtype": "float32"})["cache.token"] == 64
    assert cost({**gpt2, "dtype": "float32"}, dtype_bytes=1)["cache.token"] == 16
    assert cost(nn.MultiheadAttention(8, 2).half())["cache.token"] == 32
    assert cost(nn.MultiheadAttention(8, 2))["cache.token"] == 64


def test_a_quantized_config_says_so():
    config = {
        "model_type": "gpt2",
        "n_embd": 8,
        "n_head": 2,
        "n_layer": 1,
        "quantization_config": {"bits": 4},
    }
    assert any("quantizes" in note for note in cost(config).notes)


def test_fields_may_be_ignored_by_name():
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "novelty": 1}
    assert (
        cost(config, ignore=("novelty",)).parameters
        == cost({**config, "novelty": 1}, ignore=["novelty"]).parameters
    )


# ---- encoders with decoders ----


def test_a_transformer_of_torch():
    model = nn.Transformer(16, 2, 2, 3, dim_feedforward=8, batch_first=True)
    found = cost(model, seq=4, kv_seq=6)
    parts = {kind.name: (kind.count, kind.work["n_q"], kind.work["n_k"]) for kind in found.layers}
    assert parts == {
        "MultiheadAttention at encoder.layers.0.self_attn": (2, 6, 6),
        "MultiheadAttention at decoder.layers.0.self_attn": (3, 4, 4),
        "MultiheadAttention at decoder.layers.0.multihead_attn": (3, 4, 6),
    }
    held = sum(p.numel() for n, p in model.named_parameters() if "attn" in n)
    assert found.parameters == held == 8 * cost(d_model=16, heads=2, bias=True).parameters
    masked = cost(model, seq=4, kv_seq=6, causal=True)
    assert [kind["pairs.visible"] for kind in masked.layers] == [21, 10, 24]


def test_bart_and_t5():
    with torch.device("meta"):
        bart = BartModel(
            BartConfig(
                d_model=16,
                encoder_layers=2,
                decoder_layers=3,
                encoder_attention_heads=2,
                decoder_attention_heads=2,
                encoder_ffn_dim=8,
                decoder_ffn_dim=8,
                vocab_size=9,
                pad_token_id=0,
                bos_token_id=1,
                eos_token_id=2,
                decoder_start_token_id=2,
                forced_eos_token_id=2,
            )
        )
        t5 = T5Model(T5Config(d_model=16, d_kv=5, num_layers=2, num_heads=3, d_ff=8, vocab_size=9))
    found = cost(bart, seq=4, kv_seq=6)
    assert [(k.count, k.work["n_q"], k.work["n_k"], k["pairs.visible"]) for k in found.layers] == [
        (2, 6, 6, 36),
        (3, 4, 4, 10),
        (3, 4, 6, 24),
    ]
    assert found.parameters == sum(p.numel() for n, p in bart.named_parameters() if "attn." in n)
    found = cost(t5, seq=4, kv_seq=6)
    held = sum(p.numel() for n, p in t5.named_parameters() if "Attention." in n)
    assert found.parameters == held
    assert found["parameters.w_q"] == 6 * 16 * 15
    assert any("relative_attention_bias" in note for note in found.notes)


# ---- refusals ----


class OddAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2, 2))


class Headless(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = self.k_proj = self.v_proj = self.o_proj = nn.Linear(4, 4)


class Uneven(Headless):
    head_dim = 3


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: cost(nn.Linear(2, 2)),
            "model: expected a model with nn.MultiheadAttention or attention modules of Hugging Face "
            "transformers; "
            "received Linear. Hint: or give sizes: cost(d_model=768, heads=12)",
        ),
        (
            lambda: cost(nn.Sequential(nn.MultiheadAttention(4, 2), OddAttention())),
            "model: expected attention modules of a known form; received OddAttention at 1. "
            "Hint: give its sizes instead: cost(d_model=..., heads=...)",
        ),
        (
            lambda: cost(Headless()),
            "model: expected an attention module that says how wide its heads are; received Headless "
            "without head_dim and "
            "num_heads. Hint: give sizes instead",
        ),
        (
            lambda: cost(Uneven()),
            "model: expected widths that heads of 3 divide; received projections 4 and 4 wide at the top. "
            "Hint: give sizes instead",
        ),
        (
            lambda: cost(Grouped(4, 2, 1, 2, 2, 4, ""), seq=2, kv_seq=3),
            "kv_seq: expected None: the model has self-attention only; received 3.",
        ),
        (
            lambda: cost(nn.Transformer(4, 2, 1, 1, dim_feedforward=4, batch_first=True), seq=2),
            "kv_seq: expected the length of the sequence that cross-attention reads; received None. "
            "Hint: kv_seq=1500 beside seq=448: the encoder's length, the decoder's",
        ),
        (
            lambda: cost(nn.Transformer(4, 2, 1, 1, dim_feedforward=4, batch_first=True), seq=2, cached=1),
            "cached: expected 0 where a model has cross-attention; received 1. Hint: cached=0",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused(call, message):
    with pytest.raises(HeadwiseError) as error:
        call()
    assert str(error.value) == message


def test_an_attention_class_without_parameters_is_no_module_to_count():
    class AttentionPooling(nn.Module):
        pass

    assert cost(nn.Sequential(nn.MultiheadAttention(4, 2), AttentionPooling())).parameters == 80


def test_capability_errors_are_those():
    with pytest.raises(CapabilityError):
        cost(OddAttention())


def test_nothing_is_run_and_nothing_changes():
    module = nn.MultiheadAttention(8, 2)
    module.register_forward_pre_hook(lambda *_: pytest.fail("the model was run"))
    state = {name: value.clone() for name, value in module.state_dict().items()}
    cost(module, seq=10**9, batch=10**6)
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
