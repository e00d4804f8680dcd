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

// Keys of files on Hugging Face as of 2026-11, by what they bring into a model.
constexpr std::array kRefused{
    Refused{"lightning_attn", "linear attention of a kind of its own"},
    Refused{"compress_ratios", "compressed attention"},
    Refused{"o_lora_rank", "a low-rank output projection"},
    Refused{"hc_mult", "several residual streams"},
    Refused{"altup_num_inputs", "several residual streams"},
    Refused{"attn_res_block_size", "attention over the residuals of earlier blocks"},
    Refused{"time_mix_extra_dim", "RWKV layers"},
    Refused{"conv_L_cache", "layers of short convolutions"},
    Refused{"use_cla", "layers that share keys and values"},
    Refused{"num_kv_shared_layers", "layers that share keys and values"},
    Refused{"hidden_size_per_layer_input", "embeddings of its own for every layer"},
    Refused{"block_configs", "layers of different sizes"},
    Refused{"zero_expert_num", "experts that compute nothing"},
    Refused{"num_zero_experts", "experts that compute nothing"},
    Refused{"parallel_attn_mlp_res", "a dense FFN and experts beside each other"},
    Refused{"use_residual", "a dense FFN and experts beside each other"},
};
// Unknown keys with these beginnings say something of a mixer that is described otherwise.
constexpr std::array<std::string_view, 6> kRefusedStarts{"index_",   "linear_attn", "linear_num_",
                                                         "swa_num_", "kda_",        "gdn_"};

// Keys that change neither a size nor a layer: how the model was trained, decodes or is stored. Numerics of
// the router (scores, scales) take no time of their own.
constexpr std::array<std::string_view, 131> kIrrelevant{"position_embedding_type",
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
                                                        "name_or_path"};
constexpr std::array<std::string_view, 21> kIrrelevantStarts{
    "layernorm_",  "activation_", "mlp_hidden_", "begin_suppress_", "rope_",    "vision_",
    "vit_",        "audio_",      "image_",      "video_",          "_",        "output_",
    "use_return_", "anyres_",     "im_",         "text_start",      "text_end", "num_media",
    "min_",        "max_",        "forced_"};
constexpr std::array<std::string_view, 20> kIrrelevantEnds{
    "_beta",       "_alpha",       "_token_id", "_token_index",
    "_dropout",    "_pdrop",       "_eps",      "_epsilon",
    "_theta",      "_id",          "_penalty",  "_ids",
    "_tokens",     "_placeholder", "_token",    "_return_sequences",
    "_ngram_size", "_beam_groups", "_loss",     "_params"};

}  // namespace

void refuse_other_models(const JsonNode& config) {
  for (const Refused& r : kRefused)
    if (const auto value = config.find(r.key); value && !says_nothing(*value))
      value->fail(fmt::format("({})", r.because), "a model without it: such layers are not modelled here");
}

KeyUse key_use(const JsonNode& config, const std::set<std::string, std::less<>>& asked) {
  KeyUse use;
  for (const std::string& key : config.keys()) {
    const JsonNode value = *config.find(key);
    if (asked.contains(key) || says_nothing(value)) continue;
    const auto starts = [&](auto start) { return key.starts_with(start); };
    if (std::ranges::any_of(kRefusedStarts, starts))
      value.fail(fmt::format("({})", value.describe()),
                 "a model without it: such layers are not modelled here");
    const bool irrelevant =
        std::ranges::find(kIrrelevant, key) != kIrrelevant.end() ||
        std::ranges::any_of(kIrrelevantStarts, starts) ||
        std::ranges::any_of(kIrrelevantEnds, [&](auto end) { return key.ends_with(end); });
    (irrelevant ? use.irrelevant : use.unknown).push_back(key);
  }
  return use;
}

}  // namespace moesim::models
