#include "models/workload/model_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "models/workload/model_config.h"

namespace moesim::models {

namespace {

struct Refused {
  std::string_view key, because;
};

// Keys of files on Hugging Face as of 2026-11, by the feature that they add to a model.
constexpr std::array kRefused{
    Refused{"lightning_attn", "linear attention of a kind of its own"},
    Refused{"altup_num_inputs", "several residual streams"},
    Refused{"time_mix_extra_dim", "RWKV layers"},
    Refused{"use_cla", "layers that share keys and values"},
    Refused{"num_kv_shared_layers", "layers that share keys and values"},
    Refused{"hidden_size_per_layer_input", "embeddings of its own for every layer"},
    Refused{"num_zero_experts", "experts that compute nothing"},
    Refused{"parallel_attn_mlp_res", "a dense FFN and experts beside each other"},
    Refused{"use_residual", "a dense FFN and experts beside each other"},
    Refused{"ngram_vocab_size_ratio", "embeddings of n-grams"},
    Refused{"split_ngram_parts", "embeddings of n-grams"},
    Refused{"engram_layer_ids", "a memory of n-grams"},
    Refused{"ple_layer_ids", "embeddings of its own for some layers"},
    Refused{"kv_source_layer_ids", "layers that share keys and values"},
    Refused{"kv_source_layers", "layers that share keys and values"},
    Refused{"hc_lowrank", "hyper-connections of low rank"},
    Refused{"d_rel", "attention with learned relative positions"},
};
// Families whose layers no key describes.
constexpr std::array kRefusedFamilies{
    Refused{"jetmoe", "experts in its attention"},
    Refused{"switch_transformers", "an encoder and a decoder"},
};

// Keys that are neutral in one family of models (prefix of "model_type"), whatever they mean elsewhere.
struct Neutral {
  std::string_view family, key;
};
constexpr std::array kNeutral{
    Neutral{"kimi_linear", "kda_mode"},  // order in which the kernel processes a sequence
    Neutral{"bailing", "use_rmsnorm"},
    Neutral{"bailing", "enable_routed_scaling"},
    Neutral{"gemma4", "vocab_size_per_layer_input"},  // without "hidden_size_per_layer_input"
    Neutral{"lfm2", "conv_dim"},
    Neutral{"lfm2", "conv_dim_out"},
    Neutral{"lfm2", "conv_use_xavier_init"},
    Neutral{"lfm2", "block_dim"},
    Neutral{"lfm2", "block_mlp_init_scale"},
    Neutral{"lfm2", "block_out_init_scale"},
    Neutral{"lfm2", "block_use_swiglu"},
    Neutral{"lfm2", "block_use_xavier_init"},
    Neutral{"lfm2", "block_norm_eps"},
    Neutral{"ernie4_5", "moe_capacity"},
    Neutral{"ernie4_5", "moe_norm_min"},
    Neutral{"ernie4_5", "moe_use_aux_free"},
    Neutral{"ernie4_5", "moe_norm_gate_logits"},
    Neutral{"ernie4_5", "use_correction_bias"},
    Neutral{"hy_", "moe_router_use_sigmoid"},
    Neutral{"hy_", "enable_lm_head_fp32"},
    Neutral{"afmoe", "mup_enabled"},
    Neutral{"afmoe", "use_grouped_mm"},
    Neutral{"minimax", "use_gemma_norm"},
    Neutral{"step3", "norm_expert_weight"},
    Neutral{"step3", "need_fp32_gate"},
    Neutral{"step3", "zero_centered"},
    Neutral{"step3", "use_rope_layers"},
    Neutral{"step3", "swiglu_limits"},
    Neutral{"step3", "swiglu_limits_shared"},
    Neutral{"smallthinker", "moe_enable_early_router"},
    Neutral{"smallthinker", "moe_primary_router_apply_softmax"},
    Neutral{"smallthinker", "rope_layout"},
    Neutral{"smollm3", "no_rope_layer_interval"},
    Neutral{"cohere", "use_parallel_block"},
    Neutral{"chatglm", "post_layer_norm"},
    Neutral{"chatglm", "rmsnorm"},
    Neutral{"chatglm", "original_rope"},
    Neutral{"chatglm", "bias_dropout_fusion"},
    Neutral{"chatglm", "interleaved_qkv"},
    Neutral{"chatglm", "apply_query_key_layer_scaling"},
};

// Keys that change neither a size nor a layer: training, decoding, storage. Numerics of the router (scores,
// scales) take no time of their own.
constexpr std::array<std::string_view, 187> kIrrelevant{"position_embedding_type",
                                                        "hc_sinkhorn_iters",
                                                        "index_share_for_mtp_iteration",
                                                        "shared_moe_mode",
                                                        "lm_head_bias",
                                                        "dense_list",
                                                        "use_mixed_mlp_moe",
                                                        "expand",
                                                        "mamba_expand",
                                                        "use_mla",
                                                        "cla_share_factor",
                                                        "linear_silu",
                                                        "group_norm_size",
                                                        "mla_use_nope",
                                                        "latent_moe_use_norm",
                                                        "indexer_rope_interleave",
                                                        "sliding_window_size",
                                                        "swa_rope_theta",
                                                        "mamba_chunk_size",
                                                        "attention_multiplier",
                                                        "embedding_multiplier",
                                                        "residual_multiplier",
                                                        "logits_scaling",
                                                        "sequence_length",
                                                        "num_hash_layers",
                                                        "architectures",
                                                        "auto_map",
                                                        "torch_dtype",
                                                        "dtype",
                                                        "transformers_version",
                                                        "use_cache",
                                                        "initializer_range",
                                                        "hidden_act",
                                                        "hidden_activation",
                                                        "mlp_hidden_act",
                                                        "mamba_hidden_act",
                                                        "max_position_embeddings",
                                                        "original_max_position_embeddings",
                                                        "initial_context_length",
                                                        "max_seq_len",
                                                        "max_window_layers",
                                                        "norm_topk_prob",
                                                        "output_router_logits",
                                                        "router_aux_loss_coef",
                                                        "routed_scaling_factor",
                                                        "route_scale",
                                                        "scoring_func",
                                                        "score_func",
                                                        "topk_method",
                                                        "seq_aux",
                                                        "aux_loss_alpha",
                                                        "norm_type",
                                                        "norm_head",
                                                        "norm_softmax",
                                                        "mlp_bias",
                                                        "use_bias",
                                                        "pretraining_tp",
                                                        "quantization_config",
                                                        "partial_rotary_factor",
                                                        "rotary_dim",
                                                        "position_embedding_xdrope",
                                                        "xdrope_section",
                                                        "use_rotary_pos_emb",
                                                        "ep_size",
                                                        "clip_qkv",
                                                        "query_pre_attn_scalar",
                                                        "final_logit_softcapping",
                                                        "attn_logit_softcapping",
                                                        "router_jitter_noise",
                                                        "input_jitter_noise",
                                                        "moe_jitter_eps",
                                                        "moe_loss_weight",
                                                        "swiglu_limit",
                                                        "residual_in_fp32",
                                                        "rescale_prenorm_residual",
                                                        "chunk_size",
                                                        "chunk_size_feed_forward",
                                                        "num_logits_to_keep",
                                                        "use_mamba_kernels",
                                                        "use_conv_bias",
                                                        "mamba_conv_bias",
                                                        "mamba_proj_bias",
                                                        "mamba_ssm_cache_dtype",
                                                        "mamba_ssm_dtype",
                                                        "time_step_limit",
                                                        "time_step_min",
                                                        "time_step_max",
                                                        "time_step_floor",
                                                        "time_step_rank",
                                                        "moe_shared_expert_overlap",
                                                        "attention_value_scale",
                                                        "add_classification_head",
                                                        "group_limited_greedy",
                                                        "moe_drop_tokens",
                                                        "moe_random_routing_dropped_token",
                                                        "moe_layer_num_skipped",
                                                        "no_rope_layers",
                                                        "cache_implementation",
                                                        "use_grouped_topk",
                                                        "moe_renormalize",
                                                        "moe_router_activation_func",
                                                        "moe_router_scaling_factor",
                                                        "use_moe_router_bias",
                                                        "use_routing_bias",
                                                        "qk_norm_type",
                                                        "expert_dtype",
                                                        "lm_head",
                                                        "rm_head",
                                                        "for_llm_compressor",
                                                        "id2label",
                                                        "label2id",
                                                        "torchscript",
                                                        "temperature",
                                                        "do_sample",
                                                        "num_beams",
                                                        "early_stopping",
                                                        "prefix",
                                                        "is_decoder",
                                                        "return_dict",
                                                        "postnorm",
                                                        "mtp_use_dedicated_embeddings",
                                                        "add_cross_attention",
                                                        "use_bfloat16",
                                                        "org_vocab_size",
                                                        "mask_init_id",
                                                        "pool_type",
                                                        "skip_cls_token",
                                                        "class_num",
                                                        "tile_tag",
                                                        "global_view_pos",
                                                        "projector_config",
                                                        "candidate_resolutions",
                                                        "name_or_path",
                                                        "top_k",
                                                        "top_p",
                                                        "typical_p",
                                                        "tokenizer_class",
                                                        "problem_type",
                                                        "task_specific_params",
                                                        "pruned_heads",
                                                        "cross_attention_hidden_size",
                                                        "is_encoder_decoder",
                                                        "tie_encoder_decoder",
                                                        "tf_legacy_loss",
                                                        "model_type",
                                                        "model_name",
                                                        "model_max_length",
                                                        "seq_length",
                                                        "n_positions",
                                                        "n_ctx",
                                                        "context_length",
                                                        "num_labels",
                                                        "bf16",
                                                        "fp16",
                                                        "fp32",
                                                        "attn_implementation",
                                                        "attention_method",
                                                        "use_flash_attn",
                                                        "gradient_checkpointing",
                                                        "llama_4_scaling",
                                                        "apply_yarn_scaling",
                                                        "route_norm",
                                                        "norm_topk",
                                                        "moe_norm_topk",
                                                        "load_balance_coeff",
                                                        "use_expert_bias",
                                                        "mla_scale_q_lora",
                                                        "mla_scale_kv_lora",
                                                        "finetuning_task",
                                                        "sep_token",
                                                        "bad_words_ids",
                                                        "attention_softmax_in_fp32",
                                                        "fp32_residual_connection",
                                                        "scale_emb",
                                                        "scale_depth",
                                                        "dim_model_base",
                                                        "use_bidirectional_attention",
                                                        "rotary_percent",
                                                        "rotary_pct",
                                                        "expert_capacity",
                                                        "auto_mapping",
                                                        "zero_expert_type",
                                                        "moe_impl",
                                                        "moe_implementation",
                                                        "mtp_hidden_states_first",
                                                        "moe_gate",
                                                        "compression_ratio"};
constexpr std::array<std::string_view, 29> kIrrelevantStarts{
    "layernorm_", "activation_", "mlp_hidden_", "begin_suppress_", "rope_",    "vision_",
    "vit_",       "_",           "output_",     "use_return_",     "anyres_",  "im_",
    "text_start", "text_end",    "num_media",   "forced_",         "unsloth_", "router_aux_",
    "router_z_",  "moe_aux_",    "moe_z_",      "tokenizer_",      "torch_",   "initializer_",
    "min_",       "max_",        "image_",      "video_",          "audio_"};
constexpr std::array<std::string_view, 37> kIrrelevantEnds{
    "_beta",           "_alpha",       "_token_id",    "_token_index",
    "_dropout",        "_pdrop",       "_eps",         "_epsilon",
    "_theta",          "_id",          "_penalty",     "_ids",
    "_tokens",         "_placeholder", "_token",       "_return_sequences",
    "_ngram_size",     "_beam_groups", "_loss",        "_params",
    "_coef",           "_coeff",       "_std",         "_scaling",
    "_scaling_factor", "_multiplier",  "_dtype",       "_implementation",
    "_prob",           "_interleave",  "_interleaved", "_fp32",
    "_loss_weight",    "_version",     "_expert_bias", "_initializer_range",
    "_softcapping"};

// Returns whether an unknown value may be a size, a list of layers or a switch that adds weights: anything
// but a name and a fraction.
bool may_carry_weights(const JsonNode& value) {
  return !value.is_string() && (!value.is_number() || value.is_integer());
}

}  // namespace

void refuse_other_models(const JsonNode& config, std::string_view family) {
  for (const Refused& r : kRefused)
    if (const auto value = config.find(r.key); value && !says_nothing(*value))
      value->fail(fmt::format("({})", r.because), "a model without it: such layers are not modelled here");
  for (const Refused& r : kRefusedFamilies)
    if (family == r.key)
      config.find("model_type")
          .value_or(config)
          .fail(fmt::format("'{}' ({})", family, r.because),
                "a model without it: such layers are not modelled here");
}

KeyUse key_use(const JsonNode& config, std::string_view family,
               const std::set<std::string, std::less<>>& asked) {
  KeyUse use;
  for (const std::string& key : config.keys()) {
    const JsonNode value = *config.find(key);
    if (asked.contains(key) || says_nothing(value)) continue;
    const auto starts = [&](auto start) { return key.starts_with(start); };
    const bool irrelevant =
        std::ranges::find(kIrrelevant, key) != kIrrelevant.end() ||
        std::ranges::any_of(kNeutral,
                            [&](const Neutral& n) { return key == n.key && family.starts_with(n.family); }) ||
        std::ranges::any_of(kIrrelevantStarts, starts) ||
        std::ranges::any_of(kIrrelevantEnds, [&](auto end) { return key.ends_with(end); });
    if (!irrelevant && may_carry_weights(value))
      value.fail(fmt::format("({})", value.describe()),
                 "a key that is known here: it may bring weights. Take it out if it brings none");
    (irrelevant ? use.irrelevant : use.unknown).push_back(key);
  }
  return use;
}

}  // namespace moesim::models
