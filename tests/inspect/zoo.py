"""Small random models of many architectures, made from a config: nothing is downloaded.

Weights are drawn wide enough that attention is far from uniform, so that a wrong scale, mask or grouping of
heads cannot hide.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

N_TOKENS, N_TARGET, WINDOW, VOCABULARY = 19, 11, 5, 29

SMALL = {"hidden_size": 48, "num_hidden_layers": 3, "intermediate_size": 40, "vocab_size": VOCABULARY}
WIDE = {"initializer_range": 0.4}
GROUPED = {"num_attention_heads": 4, "num_key_value_heads": 2}
LONG = {"max_position_embeddings": 64}
TWO_SIDES = {"d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
             "vocab_size": VOCABULARY, "init_std": 0.4}  # fmt: skip
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

MODELS = {
    "bert": ("BertModel", {**SMALL, **WIDE, **LONG, "num_attention_heads": 6}),
    "llama": ("LlamaForCausalLM", {**SMALL, **WIDE, **LONG, **GROUPED, "num_attention_heads": 6}),
    "gpt2": ("GPT2LMHeadModel", {  # the scale is not 1/sqrt(d): each layer divides by its number too
        "n_embd": 48, "n_layer": 3, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64, **WIDE,
        "scale_attn_by_inverse_layer_idx": True, "bos_token_id": 0, "eos_token_id": 0}),
    "albert": ("AlbertModel", {**SMALL, **WIDE, "embedding_size": 16, "num_attention_heads": 4}),
    "t5": ("T5ForConditionalGeneration", {
        "d_model": 48, "d_kv": 12, "num_layers": 2, "num_heads": 4, "d_ff": 40, "vocab_size": VOCABULARY,
        "initializer_factor": 1.5, "decoder_start_token_id": 0}),
    "bart": ("BartForConditionalGeneration", {**TWO_SIDES, **LONG, "decoder_start_token_id": 2}),
    "whisper": ("WhisperForConditionalGeneration", {
        **TWO_SIDES, **MARKS, "num_mel_bins": 8, "max_source_positions": 20, "max_target_positions": 64,
        "decoder_start_token_id": 1}),
    "vit": ("ViTModel", {
        "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
        "image_size": 16, "patch_size": 4, **WIDE}),
    "mistral": ("MistralForCausalLM", {**SMALL, **WIDE, **LONG, **GROUPED, "sliding_window": WINDOW}),
    "gemma2": ("Gemma2ForCausalLM", {  # soft cap; every other layer has a window
        **SMALL, **WIDE, **LONG, **GROUPED, "head_dim": 12, "sliding_window": WINDOW,
        "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 4}),
    "gpt_oss": ("GptOssForCausalLM", {  # learned sinks; every other layer has a window
        **SMALL, **WIDE, **LONG, **GROUPED, **MARKS, "head_dim": 12, "sliding_window": WINDOW,
        "num_local_experts": 2, "num_experts_per_tok": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
    "llama4": ("Llama4ForCausalLM", {  # chunks
        **SMALL, **WIDE, **LONG, **GROUPED, **MARKS, "num_hidden_layers": 4, "head_dim": 12,
        "intermediate_size_mlp": 40, "attention_chunk_size": 4, "num_local_experts": 2}),
    "diffllama": ("DiffLlamaForCausalLM", {**SMALL, **WIDE, **LONG, **GROUPED}),
    "falcon": ("FalconForCausalLM", {  # calls torch's own attention
        "vocab_size": VOCABULARY, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        **WIDE}),
    "bloom": ("BloomForCausalLM", {  # computes its own softmax, as do the next ones
        "vocab_size": VOCABULARY, "hidden_size": 48, "n_layer": 2, "n_head": 4, **WIDE}),
    "mpt": ("MptForCausalLM", {"vocab_size": VOCABULARY, "d_model": 48, "n_layers": 2, "n_heads": 4, **WIDE}),
    "deberta": ("DebertaV2Model", {
        **SMALL, **WIDE, **LONG, "num_attention_heads": 4, "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"]}),
}  # fmt: skip

FAMILIES = ["llama", "gpt2", "bert", "albert", "t5", "bart", "whisper", "vit", "mistral", "gemma2", "gpt_oss"]
WRITERS = ["llama", "gpt2", "t5", "bart", "whisper", "mistral", "gemma2", "gpt_oss"]
NO_SDPA = ("gemma2", "gpt_oss", "bloom", "mpt", "deberta")  # transformers has only eager attention for them
CONFIGS = {"T5": "T5Config", "Llama4": "Llama4TextConfig"}


def build(kind, implementation="sdpa", class_name=None, seed=5, **changes):
    """A model in evaluation mode; with "sdpa" attention where transformers has it."""
    torch.manual_seed(seed)
    if kind in NO_SDPA:
        implementation = "eager"
    named, options = MODELS[kind]
    stem = named
    for end in ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "Model"):
        stem = stem.removesuffix(end)
    make = getattr(transformers, CONFIGS.get(stem, f"{stem}Config"))
    config = make(**{**options, **changes}, attn_implementation=implementation)
    return getattr(transformers, class_name or named)(config).eval()


def random_ids(batch=1, n=N_TOKENS, seed=3):
    """Ids with repeats, so that duplicate and induction rows exist."""
    return torch.randint(3, 12, (batch, n), generator=torch.Generator().manual_seed(seed))


def inputs_of(kind, batch=1, target=True):
    """Keywords of one forward pass without a cache."""
    generator = torch.Generator().manual_seed(1)
    if kind == "vit":
        return {"pixel_values": torch.randn(batch, 3, 16, 16, generator=generator)}
    if kind == "whisper":
        given = {"input_features": torch.randn(batch, 8, 40, generator=generator)}
    else:
        given = {"input_ids": random_ids(batch)}
    if kind in ("t5", "bart", "whisper") and target:
        given["decoder_input_ids"] = random_ids(batch, N_TARGET, 4)
    return given


def eager_weights(kind, inputs, model=None):
    """The dense weights of the eager model in the order of its calls, and its output: encoder, then of each
    decoder layer itself and cross."""
    model = model or build(kind, "eager")
    cache = {} if kind in ("bert", "albert", "vit", "deberta") else {"use_cache": False}
    with torch.no_grad():
        output = model(**inputs, **cache, output_attentions=True)
    if output.get("encoder_attentions") is None:
        return list(output.attentions), output[0]
    found = list(output.encoder_attentions)
    for itself, cross in zip(output.decoder_attentions, output.cross_attentions, strict=True):
        found += [itself, cross]
    return found, output[0]


def weights_of_call(call):
    """(B, H, n_q, n_k) float64 weights from the query, key and options of a call; empty rows are 0."""
    options = call.options
    query, key = (np.asarray(array, dtype=np.float64) for array in (call.query, call.key))
    key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
    scores = options.get("scale", query.shape[-1] ** -0.5) * (query @ key.swapaxes(-1, -2))
    if "softcap" in options:
        scores = options["softcap"] * np.tanh(scores / options["softcap"])
    if "attn_bias" in options:
        scores = scores + np.asarray(options["attn_bias"], dtype=np.float64)
    seen = visible_of_call(call)
    largest = np.where(seen, scores, -1e300).max(axis=-1, keepdims=True)
    sinks = np.asarray(options["sinks"], dtype=np.float64)[:, None, None] if "sinks" in options else None
    if sinks is not None:
        largest = np.maximum(largest, sinks)
    weights = np.where(seen, np.exp(np.minimum(scores - largest, 0)), 0)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - largest)
    return weights / np.where(total > 0, total, 1)


def visible_of_call(call):
    """(B, H, n_q, n_k): who sees whom by the options of a call."""
    options = call.options
    batch, heads, n_q, _ = call.query.shape
    n_k = call.key.shape[2]
    at, keys = np.arange(n_q)[:, None] + options.get("query_offset", 0), np.arange(n_k)
    seen = np.ones((batch, heads, n_q, n_k), bool)
    left, right = options.get("window_size", (None, None))
    if options.get("is_causal"):
        seen &= keys <= at
    if left is not None:
        seen &= keys >= at - left
    if right is not None:
        seen &= keys <= at + right
    if "segment_ids" in options:
        of_queries, of_keys = options["segment_ids"]
        seen &= (of_queries[:, :, None] == of_keys[:, None, :])[:, None]
    if "attn_mask" in options:
        seen &= np.asarray(options["attn_mask"])
    if "attn_bias" in options:
        seen &= np.asarray(options["attn_bias"]) > -np.inf
    return seen
