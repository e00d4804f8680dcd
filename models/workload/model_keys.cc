#include "models/workload/model_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/json_reader.h"

namespace moesim::models {

namespace {

struct Refused {
  std::string_view key, because;
};

constexpr std::string_view kKinds = "layers of several kinds in an order of its own",
                           kLinear = "linear attention", kSparse = "sparse attention with an indexer",
                           kMamba1 = "Mamba layers of the first kind",
                           kWidths = "windowed layers with heads of their own";
// Keys of files on Hugging Face as of 2026-11, by what they bring into a model.
constexpr std::array kRefused{
    Refused{"attn_layer_period", kKinds},
    Refused{"expert_layer_period", kKinds},
    Refused{"attn_type_list", kLinear},
    Refused{"linear_attn_config", kLinear},
    Refused{"full_attention_interval", kLinear},
    Refused{"linear_num_value_heads", kLinear},
    Refused{"linear_num_key_heads", kLinear},
    Refused{"lightning_attn", kLinear},
    Refused{"index_topk", kSparse},
    Refused{"index_n_heads", kSparse},
    Refused{"compress_ratios", "compressed attention"},
    Refused{"o_lora_rank", "a low-rank output projection"},
    Refused{"hc_mult", "several residual streams"},
    Refused{"routed_expert_hidden_size", "experts of another width than the model's"},
    Refused{"hybrid_layer_pattern", kWidths},
    Refused{"swa_num_attention_heads", kWidths},
    Refused{"swa_num_key_value_heads", kWidths},
    Refused{"mamba_d_state", kMamba1},
    Refused{"mamba_dt_rank", kMamba1},
    Refused{"time_mix_extra_dim", "RWKV layers"},
    Refused{"use_cla", "layers that share keys and values"},
    Refused{"num_kv_shared_layers", "layers that share keys and values"},
    Refused{"mlp_only_layers", "single layers without experts"},
    Refused{"moe_layers_enum", "experts in some layers of a list"},
    Refused{"moe_layers", "experts in some layers of a list"},
    Refused{"block_configs", "layers of different sizes"},
    Refused{"attn_output_gate", "a gate on the output of attention"},
    Refused{"zero_expert_num", "experts that compute nothing"},
    Refused{"num_zero_experts", "experts that compute nothing"},
    Refused{"altup_num_inputs", "several residual streams"},
    Refused{"attn_res_block_size", "attention over the residuals of earlier blocks"},
};

bool says_nothing(const JsonNode& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.boolean();
  if (value.is_number()) return value.number() == 0;
  return (value.is_array() || value.is_object()) ? value.size() == 0
                                                 : value.is_string() && value.string().empty();
}

// Keys that Architecture::parse() reads.
constexpr std::array<std::string_view, 84> kUsed{"model_type",
                                                 "hidden_size",
                                                 "d_model",
                                                 "dim",
                                                 "num_hidden_layers",
                                                 "n_layers",
                                                 "num_layers",
                                                 "vocab_size",
                                                 "tie_word_embeddings",
                                                 "num_attention_heads",
                                                 "n_heads",
                                                 "num_key_value_heads",
                                                 "kv_n_heads",
                                                 "head_dim",
                                                 "attention_head_dim",
                                                 "attention_bias",
                                                 "kv_lora_rank",
                                                 "q_lora_rank",
                                                 "qk_nope_head_dim",
                                                 "qk_rope_head_dim",
                                                 "v_head_dim",
                                                 "sliding_window",
                                                 "use_sliding_window",
                                                 "num_local_experts",
                                                 "n_routed_experts",
                                                 "num_experts",
                                                 "moe_num_experts",
                                                 "num_experts_per_tok",
                                                 "moe_topk",
                                                 "moe_k",
                                                 "num_experts_per_token",
                                                 "moe_top_k",
                                                 "top_k_experts",
                                                 "n_activated_experts",
                                                 "experts_per_token",
                                                 "intermediate_size",
                                                 "ffn_hidden_size",
                                                 "inter_dim",
                                                 "moe_intermediate_size",
                                                 "moe_inter_dim",
                                                 "expert_ffn_hidden_size",
                                                 "intermediate_size_mlp",
                                                 "first_k_dense_replace",
                                                 "n_dense_layers",
                                                 "interleave_moe_layer_step",
                                                 "decoder_sparse_step",
                                                 "moe_layer_freq",
                                                 "n_shared_experts",
                                                 "num_shared_experts",
                                                 "num_shared_expert",
                                                 "shared_expert_intermediate_size",
                                                 "share_expert_dim",
                                                 "shared_intermediate_size",
                                                 "moe_shared_expert_intermediate_size",
                                                 "n_group",
                                                 "n_expert_groups",
                                                 "num_expert_group",
                                                 "topk_group",
                                                 "n_limited_groups",
                                                 "num_nextn_predict_layers",
                                                 "hybrid_override_pattern",
                                                 "layers_block_type",
                                                 "moe_latent_size",
                                                 "mamba_num_heads",
                                                 "mamba_head_dim",
                                                 "ssm_state_size",
                                                 "mamba_state_dim",
                                                 "n_groups",
                                                 "mamba_num_groups",
                                                 "conv_kernel",
                                                 "layer_types",
                                                 "use_qk_norm",
                                                 "text_config",
                                                 "language_config",
                                                 "llm_config",
                                                 "ffn_config",
                                                 "attn_config",
                                                 "qkv_bias",
                                                 "use_qkv_bias",
                                                 "lm_head_bias",
                                                 "dense_list",
                                                 "use_mixed_mlp_moe",
                                                 "expand",
                                                 "use_mla"};

// Keys that change neither a size nor a layer: how the model was trained, decodes or is stored. Numerics of
// the router (scores, scales) take no time of their own.
constexpr std::array<std::string_view, 108> kIrrelevant{"architectures",
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
                                                        "name_or_path"};
constexpr std::array<std::string_view, 17> kIrrelevantStarts{
    "rope_",   "vision_", "vit_",       "audio_",   "image_",    "video_", "_",    "output_", "use_return_",
    "anyres_", "im_",     "text_start", "text_end", "num_media", "min_",   "max_", "forced_"};
constexpr std::array<std::string_view, 18> kIrrelevantEnds{
    "_token_id",   "_token_index", "_dropout", "_pdrop",  "_eps",         "_epsilon", "_theta",
    "_id",         "_penalty",     "_ids",     "_tokens", "_placeholder", "_token",   "_return_sequences",
    "_ngram_size", "_beam_groups", "_loss",    "_params"};

}  // namespace

void refuse_other_models(const JsonNode& config) {
  for (const Refused& r : kRefused)
    if (const auto value = config.find(r.key); value && !says_nothing(*value))
      value->fail(fmt::format("({})", r.because), "a model without it: such layers are not modelled here");
}

KeyUse key_use(const JsonNode& config) {
  const auto one_of = [](const auto& list, std::string_view key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  KeyUse use;
  for (const std::string& key : config.keys()) {
    if (one_of(kUsed, key) || says_nothing(*config.find(key))) continue;
    const bool irrelevant =
        one_of(kIrrelevant, key) ||
        std::ranges::any_of(kIrrelevantStarts, [&](auto start) { return key.starts_with(start); }) ||
        std::ranges::any_of(kIrrelevantEnds, [&](auto end) { return key.ends_with(end); });
    (irrelevant ? use.irrelevant : use.unknown).push_back(key);
  }
  return use;
}

}  // namespace moesim::models
