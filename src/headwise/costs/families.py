"""The families of Hugging Face configs whose attention can be counted, and how each is read.

A family that is not in ``FAMILIES`` is refused, and so is a field that its entry does not know: it might
change the attention.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headwise.costs.layer import Layer, make_layer, whole
from headwise.errors import CapabilityError, HeadwiseError
from headwise.options import shown

Kinds = list[tuple[str, int, Layer]]


def _words(text: str) -> set[str]:
    return set(text.split())


# Fields that say nothing about the sizes of attention, of any family.
ELSEWHERE = _words(
    """
    _name_or_path _commit_hash architectures attn_implementation _attn_implementation
    _attn_implementation_internal auto_map bad_words_ids begin_suppress_tokens bos_token_id
    chunk_size_feed_forward decoder_start_token_id diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label initializer_range is_composition
    label2id length_penalty max_length min_length model_type no_repeat_ngram_size num_beam_groups num_beams
    num_return_sequences output_attentions output_hidden_states output_past output_scores pad_token_id
    position_embedding_type prefix problem_type quantization_config remove_invalid_values repetition_penalty
    return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class top_k top_p torch_dtype
    torchscript transformers_version transformers.js_config typical_p use_bfloat16 use_cache vocab_size
    num_labels
    """
)
# Fields that have to have this value if they are there: anything else is another kind of attention.
FIXED: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None, []),
}
_ENCODER = _words(
    """
    attention_probs_dropout_prob classifier_dropout embedding_size hidden_act hidden_dropout_prob
    intermediate_size layer_norm_eps max_position_embeddings summary_activation summary_last_dropout
    summary_type summary_use_proj type_vocab_size
    """
)
_GPT2 = _words(
    """
    activation_function attn_pdrop embd_pdrop layer_norm_epsilon n_ctx n_inner n_positions
    reorder_and_upcast_attn resid_pdrop scale_attn_by_inverse_layer_idx scale_attn_weights
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    """
)
_DECODER = _words(
    """
    attention_dropout attn_logit_softcapping embd_pdrop final_logit_softcapping hidden_act hidden_activation
    intermediate_size max_position_embeddings mlp_bias num_experts_per_tok num_local_experts
    original_max_position_embeddings output_router_logits partial_rotary_factor pretraining_tp
    query_pre_attn_scalar resid_pdrop rms_norm_eps rope_interleave rope_parameters rope_scaling rope_theta
    router_aux_loss_coef router_jitter_noise
    """
)
_LATENT = _words(
    """
    attention_dropout aux_loss_alpha ep_size first_k_dense_replace hidden_act intermediate_size
    max_position_embeddings mlp_bias moe_intermediate_size moe_layer_freq n_group n_routed_experts
    n_shared_experts norm_topk_prob num_experts_per_tok num_mtp_layers num_nextn_predict_layers
    output_router_logits pretraining_tp rms_norm_eps rope_interleave rope_parameters rope_scaling rope_theta
    routed_scaling_factor scoring_func seq_aux topk_group topk_method head_dim
    qk_head_dim
    """
)


@dataclass(frozen=True)
class Family:
    """How one family of configs is read: fields that must be there, fields that say nothing, and the
    reader."""

    read: Callable[["Fields"], Kinds]
    required: tuple[str, ...]
    elsewhere: set[str]
    causal: bool = True


class Fields:
    """The fields of a config; every one that is read is remembered, so that what is left over can be
    refused."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data, self.read = data, {"model_type"}

    def number(self, name: str, default: int | None = None) -> int:
        self.read.add(name)
        value: Any = self.data.get(name)
        value = default if value is None else value
        whole(name, value)
        return int(value)

    def optional(self, name: str) -> int | None:
        self.read.add(name)
        return None if self.data.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool = False) -> bool:
        self.read.add(name)
        value = self.data.get(name)
        value = default if value is None else value
        if type(value) is not bool:
            raise HeadwiseError(name, "true or false", shown(value))
        return value

    def anything(self, name: str) -> Any:
        self.read.add(name)
        return self.data.get(name)


def _encoder(fields: Fields) -> Kinds:
    causal = fields.flag("is_decoder")
    positions = fields.anything("position_embedding_type")
    if positions not in (None, "absolute"):
        raise CapabilityError(
            "config", "position_embedding_type 'absolute'", shown(positions), "give sizes instead"
        )
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias=True,
        causal=causal,
    )
    return [("attention", fields.number("num_hidden_layers"), layer)]


def _distilbert(fields: Fields) -> Kinds:
    layer = make_layer(d_model=fields.number("dim"), heads=fields.number("n_heads"), bias=True)
    return [("attention", fields.number("n_layers"), layer)]


def _gpt2(fields: Fields) -> Kinds:
    layer = make_layer(d_model=fields.number("n_embd"), heads=fields.number("n_head"), bias=True, causal=True)
    return [("attention", fields.number("n_layer"), layer)]


def _neox(fields: Fields) -> Kinds:
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias=fields.flag("attention_bias", True),
        causal=True,
    )
    return [("attention", fields.number("num_hidden_layers"), layer)]


def _opt(fields: Fields) -> Kinds:
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias=fields.flag("enable_bias", True),
        causal=True,
    )
    return [("attention", fields.number("num_hidden_layers"), layer)]


def _vit(fields: Fields) -> Kinds:
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=fields.number("num_attention_heads"),
        bias="qkvo" if fields.flag("qkv_bias", True) else "o",
    )
    return [("attention", fields.number("num_hidden_layers"), layer)]


def _decoder(
    bias: bool | str | None, norms: bool = False, windows: str = "none"
) -> Callable[[Fields], Kinds]:
    """Readers of the Llama-like families.

    Args:
        bias: what the code of the family fixes; None: the field ``attention_bias`` says it.
        norms: queries and keys have a norm over the width of a head.
        windows: which layers slide: "none", "all", "later" (from ``max_window_layers`` on) or "alternate".
    """

    def read(fields: Fields) -> Kinds:
        d_model, heads = fields.number("hidden_size"), fields.number("num_attention_heads")
        head_dim = fields.optional("head_dim")
        if fields.flag("use_bidirectional_attention"):
            raise CapabilityError(
                "config", "causal attention", "use_bidirectional_attention = true", "give sizes"
            )
        has = fields.flag("attention_bias") if bias is None else bias
        if head_dim is None and d_model % heads == 0:
            head_dim = d_model // heads

        def layer(window: tuple[int | None, int | None] | None) -> Layer:
            return make_layer(
                d_model=d_model,
                heads=heads,
                kv_heads=fields.number("num_key_value_heads", heads),
                head_dim=head_dim,
                bias=has,
                causal=True,
                window=window,
                norms=2 * (head_dim or 0) if norms else 0,
            )

        count = fields.number("num_hidden_layers")
        sliding, size = _sliding(fields, windows, count)
        kinds = [("full attention", count - sliding, layer(None))]
        if sliding:
            # A sliding window of w keys counts the query's own, so it reaches w - 1 back.
            kinds.append(("windowed attention", sliding, layer((size - 1, 0))))
        kinds = [kind for kind in kinds if kind[1]]
        return kinds if len(kinds) > 1 else [("attention", *kinds[0][1:])]

    return read


def _sliding(fields: Fields, windows: str, count: int) -> tuple[int, int]:
    """How many layers slide, and over how many keys."""
    if windows == "none":
        return 0, 0
    size = fields.optional("sliding_window")
    if windows == "later":
        used, start = fields.flag("use_sliding_window"), fields.anything("max_window_layers")
        if not used or size is None:
            fields.anything("layer_types")
            return 0, 0
    kinds = fields.anything("layer_types") if windows != "all" else None
    if size is None:
        return 0, 0
    if kinds is not None:
        listed = kinds if isinstance(kinds, list | tuple) else []
        unknown = [kind for kind in listed if kind not in ("full_attention", "sliding_attention")]
        if unknown or len(listed) != count:
            expected = f"{count} entries, full_attention or sliding_attention"
            raise CapabilityError(
                "config", f"layer_types of {expected}", shown(unknown or kinds), "give sizes instead"
            )
        return kinds.count("sliding_attention"), size
    if windows == "all":
        return count, size
    if windows == "alternate":
        return (count + 1) // 2, size
    whole("max_window_layers", start)
    return max(0, count - start), size


def _latent(fields: Fields) -> Kinds:
    rank = fields.optional("q_lora_rank")
    heads, kv_rank = fields.number("num_attention_heads"), fields.number("kv_lora_rank")
    fields.anything("num_key_value_heads")
    bias = ("qko" if rank else "ko") if fields.flag("attention_bias") else False
    layer = make_layer(
        d_model=fields.number("hidden_size"),
        heads=heads,
        head_dim=fields.number("qk_nope_head_dim"),
        v_head_dim=fields.number("v_head_dim"),
        kv_rank=kv_rank,
        rope_dim=fields.number("qk_rope_head_dim"),
        q_rank=rank,
        bias=bias,
        causal=True,
        norms=kv_rank + (rank or 0),
    )
    return [("latent attention", fields.number("num_hidden_layers"), layer)]


_SIZED = ("hidden_size", "num_attention_heads", "num_hidden_layers")
_GROUPED = (*_SIZED, "num_key_value_heads")
_WIDE = (*_GROUPED, "head_dim")
_MLA = (*_SIZED, "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_BERT = Family(_encoder, _SIZED, _ENCODER)
_DEEPSEEK = Family(_latent, _MLA, _LATENT)
_DISTIL = _words(
    """
    activation attention_dropout dropout hidden_dim max_position_embeddings qa_dropout seq_classif_dropout
    sinusoidal_pos_embds
    """
)
_NEOX = _DECODER | _words(
    """
    classifier_dropout hidden_dropout is_decoder layer_norm_eps rotary_emb_base rotary_pct
    use_parallel_residual
    """
)
_EXPERTS = _DECODER | _words(
    """
    decoder_sparse_step mlp_only_layers moe_intermediate_size norm_topk_prob num_experts
    shared_expert_intermediate_size
    """
)
_OPT = _words(
    """
    _remove_final_layer_norm activation_function attention_dropout do_layer_norm_before dropout ffn_dim
    init_std layer_norm_elementwise_affine layerdrop max_position_embeddings word_embed_proj_dim
    """
)
_VIT = _words(
    """
    attention_probs_dropout_prob encoder_stride hidden_act hidden_dropout_prob image_size intermediate_size
    layer_norm_eps num_channels patch_size pooler_act pooler_output_size
    """
)
_GRANITE = _DECODER | _words("attention_multiplier embedding_multiplier logits_scaling residual_multiplier")
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "distilbert": Family(_distilbert, ("dim", "n_heads", "n_layers"), _DISTIL),
    "gpt2": Family(_gpt2, ("n_embd", "n_head", "n_layer"), _GPT2),
    "gpt_neox": Family(_neox, _SIZED, _NEOX),
    "llama": Family(_decoder(None), _SIZED, _DECODER),
    "mistral": Family(_decoder(False, windows="all"), (*_GROUPED, "sliding_window"), _DECODER),
    "mixtral": Family(_decoder(False, windows="all"), _GROUPED, _DECODER),
    "qwen2": Family(_decoder("qkv", windows="later"), _GROUPED, _DECODER),
    "granite": Family(_decoder(None), _GROUPED, _GRANITE),
    "olmo": Family(_decoder(None), _SIZED, _DECODER | {"clip_qkv"}),
    "opt": Family(_opt, _SIZED, _OPT),
    "qwen3_moe": Family(_decoder(None, norms=True, windows="later"), _GROUPED, _EXPERTS),
    "vit": Family(_vit, _SIZED, _VIT),
    "qwen3": Family(_decoder(None, norms=True, windows="later"), _WIDE, _DECODER),
    "gemma": Family(_decoder(None), _WIDE, _DECODER),
    "gemma2": Family(_decoder(None, windows="alternate"), (*_WIDE, "sliding_window"), _DECODER),
    "phi3": Family(_decoder(False, windows="all"), _GROUPED, _DECODER),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}
