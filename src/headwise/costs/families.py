"""The families of Hugging Face configs whose attention can be counted, and which fields they may have.

A family that is not in ``FAMILIES`` is refused, and so is a field that its entry does not know: it might
change the attention.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwise.costs.config_forms import (
    Fields,
    Kinds,
    bart,
    causal,
    decoder,
    distilbert,
    encoder,
    falcon,
    gpt2,
    latent,
    phi,
    t5,
    vit,
    whisper,
)


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
_TWO_SIDED = FIXED | {"is_encoder_decoder": (True,), "is_decoder": (False,)}
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
    """How one family of configs is read.

    Attributes:
        read: the reader.
        required: fields that have to be there.
        elsewhere: fields that say nothing about the sizes of attention.
        fixed: fields that may have these values only, if they are there.
    """

    read: Callable[[Fields], Kinds]
    required: tuple[str, ...]
    elsewhere: set[str]
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=lambda: FIXED)


_SIZED = ("hidden_size", "num_attention_heads", "num_hidden_layers")
_GROUPED = (*_SIZED, "num_key_value_heads")
_WIDE = (*_GROUPED, "head_dim")
_MLA = (*_SIZED, "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_BERT = Family(encoder, _SIZED, _ENCODER)
_DEEPSEEK = Family(latent, _MLA, _LATENT)
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
_FALCON = _words(
    """
    activation alibi apply_residual_connection_post_layernorm attention_dropout ffn_hidden_size
    hidden_dropout layer_norm_epsilon max_position_embeddings num_ln_in_parallel_attn parallel_attn
    rope_parameters rope_scaling rope_theta
    """
)
_T5 = _words(
    """
    classifier_dropout d_ff dense_act_fn dropout_rate feed_forward_proj initializer_factor is_gated_act
    layer_norm_epsilon n_positions relative_attention_max_distance scale_decoder_outputs
    """
)
_BART = _words(
    """
    activation_dropout activation_function add_bias_logits add_final_layer_norm attention_dropout
    classif_dropout classifier_dropout decoder_ffn_dim decoder_layerdrop dropout encoder_ffn_dim
    encoder_layerdrop extra_pos_embeddings force_bos_token_to_be_generated init_std max_position_embeddings
    normalize_before normalize_embedding num_hidden_layers scale_embedding static_position_embeddings
    """
)
_WHISPER = _BART | _words(
    """
    apply_spec_augment classifier_proj_size forced_decoder_ids mask_feature_length mask_feature_min_masks
    mask_feature_prob mask_time_length mask_time_min_masks mask_time_prob max_source_positions
    max_target_positions median_filter_width num_mel_bins use_weighted_layer_sum
    """
)
_BOTH_SIDES = (
    "d_model", "encoder_attention_heads", "decoder_attention_heads", "encoder_layers", "decoder_layers",
)  # fmt: skip
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra"), _BERT),
    "distilbert": Family(distilbert, ("dim", "n_heads", "n_layers"), _DISTIL),
    "gpt2": Family(gpt2, ("n_embd", "n_head", "n_layer"), _GPT2),
    "gpt_neox": Family(causal("attention_bias"), _SIZED, _NEOX),
    "llama": Family(decoder(None), _SIZED, _DECODER),
    "mistral": Family(decoder(False, windows="all"), (*_GROUPED, "sliding_window"), _DECODER),
    "mixtral": Family(decoder(False, windows="all"), _GROUPED, _DECODER),
    "qwen2": Family(decoder("qkv", windows="later"), _GROUPED, _DECODER),
    "granite": Family(decoder(None), _GROUPED, _GRANITE),
    "olmo": Family(decoder(None), _SIZED, _DECODER | {"clip_qkv"}),
    "opt": Family(causal("enable_bias"), _SIZED, _OPT),
    "qwen3_moe": Family(decoder(None, norms=True, windows="later"), _GROUPED, _EXPERTS),
    "vit": Family(vit, _SIZED, _VIT),
    "qwen3": Family(decoder(None, norms=True, windows="later"), _WIDE, _DECODER),
    "gemma": Family(decoder(None), _WIDE, _DECODER),
    "gemma2": Family(decoder(None, windows="alternate"), (*_WIDE, "sliding_window"), _DECODER),
    "phi3": Family(decoder(False, windows="all"), _GROUPED, _DECODER),
    "falcon": Family(falcon, (*_SIZED, "multi_query", "new_decoder_architecture", "bias"), _FALCON),
    "phi": Family(phi, _SIZED, _DECODER | {"layer_norm_eps"}),
    "t5": Family(
        t5, ("d_model", "num_heads", "num_layers", "d_kv", "relative_attention_num_buckets"), _T5, _TWO_SIDED
    ),
    "bart": Family(bart, _BOTH_SIDES, _BART, _TWO_SIDED),
    "whisper": Family(whisper, _BOTH_SIDES, _WHISPER, _TWO_SIDED),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}
