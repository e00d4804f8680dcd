// Architectures as people write them: Hugging Face configs of every family, our own objects, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/architecture.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;

TEST(ArchitectureJson, ReadsHuggingFace) {
  const Architecture a = Architecture::parse(JsonNode::parse(R"({
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_local_experts": 8,
    "num_experts_per_tok": 2, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "vocab_size": 32000, "something_new": "a name"})",
                                                             "config.json"));
  const Architecture b = Architecture::load("mixtral-8x7b");
  EXPECT_EQ(a.parameters(), b.parameters());
  EXPECT_EQ(a.active_parameters(), b.active_parameters());
}

TEST(ArchitectureJson, ReadsDeepSeekConfig) {
  const Architecture a = Architecture::parse(JsonNode::parse(R"({
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "n_group": 8,
    "topk_group": 4, "moe_layer_freq": 1})",
                                                             "config.json"));
  EXPECT_EQ(a.parameters(), Architecture::load("deepseek-v3").parameters());
  EXPECT_EQ(a.routing_topk_groups, 4);
}

// The keys that matter of the config.json of each family, against the built-in of the same model.
TEST(ArchitectureJson, ReadsHuggingFaceFamilies) {
  const auto same = [](const char* builtin, const char* text) {
    const Architecture a = Architecture::parse(JsonNode::parse(text, "config.json"));
    const Architecture b = Architecture::load(builtin);
    EXPECT_EQ(a.parameters(), b.parameters()) << builtin;
    EXPECT_EQ(a.active_parameters(), b.active_parameters()) << builtin;
    EXPECT_EQ(a.moe_layers(), b.moe_layers()) << builtin;
  };
  same("qwen3-30b-a3b", R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
    "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936,
    "mlp_only_layers": [], "decoder_sparse_step": 1, "tie_word_embeddings": false, "attention_bias": false,
    "sliding_window": null})");
  same("qwen2-57b-a14b", R"({"model_type": "qwen2_moe", "hidden_size": 3584, "intermediate_size": 18944,
    "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 151936, "decoder_sparse_step": 1, "use_sliding_window": false, "sliding_window": 65536,
    "tie_word_embeddings": false})");
  same("gpt-oss-20b", R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
    "num_local_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 201088, "attention_bias": true, "sliding_window": 128,
    "tie_word_embeddings": false})");
  same("dbrx", R"({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8}, "tie_word_embeddings": false,
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}})");
  same("olmoe", R"({"model_type": "olmoe", "hidden_size": 2048, "intermediate_size": 1024, "num_experts": 64,
    "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
    "vocab_size": 50304, "tie_word_embeddings": false})");
  same("kimi-k2", R"({"model_type": "kimi_k2", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "first_k_dense_replace": 1, "moe_layer_freq": 1, "num_attention_heads": 64,
    "num_key_value_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1, "topk_group": 1, "vocab_size": 163840,
    "num_nextn_predict_layers": 0, "tie_word_embeddings": false})");
  same("llama4-scout", R"({"text_config": {"model_type": "llama4_text", "hidden_size": 5120,
    "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1,
    "num_hidden_layers": 48, "interleave_moe_layer_step": 1, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "vocab_size": 202048, "tie_word_embeddings": false}})");
}

// Keys that make another model are refused by name, the same for unknown ones is said in one line.
TEST(ArchitectureJson, ForeignKeysAreUsedNamedOrRefused) {
  const std::string sizes =
      R"("hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048,
         "num_local_experts": 8, "num_experts_per_tok": 2)";
  const auto read = [&](const std::string& more) {
    return Architecture::parse(JsonNode::parse("{" + sizes + more + "}", "config.json"));
  };
  const auto refusal = [&](const std::string& more) -> std::string {
    return message_of([&] { read(more); });
  };
  EXPECT_THAT(refusal(R"(, "compress_ratios": [4, 128])"), HasSubstr("compress_ratios"));
  EXPECT_THAT(refusal(R"(, "compress_ratios": [4, 128, 64, 0])"), HasSubstr("one ratio beside 0 and 4"));
  EXPECT_THAT(refusal(R"(, "layer_types": ["full_attention", "conv", "conv", "conv"])"),
              HasSubstr("conv_L_cache"));
  EXPECT_THAT(refusal(R"(, "layer_types": ["full_attention", "odd", "odd", "odd"])"), HasSubstr("'odd'"));
  EXPECT_THAT(refusal(R"(, "index_topk": 64)"), HasSubstr("index_topk"));
  EXPECT_EQ(refusal(R"(, "full_attention_interval": null, "mlp_only_layers": [])"), "");
  EXPECT_THAT(refusal(R"(, "moe_layer_freq": [0, 1, 0])"), HasSubstr("moe_layer_freq"));
  EXPECT_EQ(read(R"(, "moe_layer_freq": [0, 1, 1, 0])").ffns, "-EE-");
  EXPECT_EQ(read(R"(, "moe_layer_freq": [0, 1, 1, 1])").dense_layers, 1);
  EXPECT_EQ(read(R"(, "moe_topk": [2, 2, 2, 2])").topk, 2);
  EXPECT_TRUE(read(R"(, "rope_theta": 10000, "eos_token_id": 2)").remarks.empty());
  const Architecture odd = read(R"(, "strange_way": "fast")");
  ASSERT_EQ(odd.remarks.size(), 1u);
  EXPECT_THAT(odd.remarks[0], HasSubstr("strange_way"));
  EXPECT_THAT(refusal(R"(, "strange_width": 7)"), HasSubstr("strange_width"));
  // A number of layers has no default.
  EXPECT_THAT(message_of([&] {
                Architecture::parse(
                    JsonNode::parse(R"({"hidden_size": 1024, "num_attention_heads": 8})", "config.json"));
              }),
              HasSubstr("num_hidden_layers"))
      << "it was taken";
}

TEST(ArchitectureJson, OwnObjectNeedsOnlyALayer) {
  const Architecture a = Architecture::parse(
      JsonNode::parse(R"({"hidden": 16, "expert_ffn": 32, "experts": 8, "topk": 2})", "model.json"));
  EXPECT_EQ(a.hidden, 16);
  EXPECT_EQ(a.expert_ffn, 32);
  EXPECT_TRUE(a.gated);
}

std::string architecture_error(const char* text) {
  return moesim::testing::message_of([&] { Architecture::parse(JsonNode::parse(text, "model.json")); });
}

TEST(ArchitectureJson, NamesWhatIsWrong) {
  EXPECT_THAT(architecture_error(R"({"hidden": 16, "expert_ffn": 32, "experts": 8, "topk": 9})"),
              HasSubstr("top-9 of 8 experts"));
  EXPECT_THAT(architecture_error("{\"hidden\": 16,\n\"expertffn\": 32, \"experts\": 8, \"topk\": 2}"),
              HasSubstr("expert_ffn"));
  EXPECT_THAT(
      architecture_error(
          R"({"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32, "num_local_experts": 8})"),
      HasSubstr("num_experts_per_tok"));
  EXPECT_THAT(architecture_error(R"({"hidden": 99999999999, "expert_ffn": 32, "experts": 8, "topk": 2})"),
              HasSubstr("model.json:1"));
  // Each size within bounds, their products beyond 64 bits.
  EXPECT_THAT(architecture_error(R"({"hidden": 2040000048, "expert_ffn": 4096, "experts": 8, "topk": 2})"),
              HasSubstr("found sizes of 3e+19 parameters, expected at most 4e18"));
  EXPECT_THAT(architecture_error(R"("mixtral-8x7")"), HasSubstr("did you mean 'mixtral-8x7b'"));
}

// A hybrid model's layers are letters; their number is theirs.
TEST(ArchitectureJson, PatternsAreLayers) {
  const Architecture a = Architecture::parse(JsonNode::parse(
      R"({"hidden": 16, "expert_ffn": 32, "experts": 8, "topk": 2, "layers": 7, "dense_ffn": 8,
          "mamba": {"heads": 2}, "pattern": "ME*-"})",
      "model.json"));
  EXPECT_EQ(a.layers, 4);
  EXPECT_EQ(a.moe_layers(), 1);
  EXPECT_EQ(
      architecture_error(R"({"hidden": 16, "expert_ffn": 32, "experts": 8, "topk": 2, "pattern": "EX"})"),
      "model.json:1: found layer pattern letter 'X', expected M (Mamba), L (linear attention), C (short "
      "convolution), * (attention), W (windowed), I (with shared choice), S and H (compressed), F (all "
      "tokens), E (experts) or - (dense FFN)");
  EXPECT_EQ(
      architecture_error(R"({"hidden": 16, "expert_ffn": 32, "experts": 8, "topk": 2, "pattern": "ME"})"),
      "model.json:1: found Mamba layers without sizes, expected \"mamba\" (or \"mamba_num_heads\") for them");
}

// The base of a model stays, except for given values.
TEST(ArchitectureJson, BasedOnABuiltInModel) {
  const Architecture a = Architecture::parse(
      JsonNode::parse(R"({"base": "mixtral-8x7b", "experts": 16, "attention": {"heads": 8}})", "model.json"));
  EXPECT_EQ(a.name, "mixtral-8x7b");
  EXPECT_EQ(a.experts, 16);
  EXPECT_EQ(a.expert_ffn, 14336);
  EXPECT_EQ(a.attention.kv_heads, 8);
  EXPECT_EQ(a.attention.head_dim, 4096 / 8);
  EXPECT_EQ(architecture_error(R"({"hidden": 16, "experts": 0, "topk": 2, "dense_ffn": 8})"),
            "model.json:1: found topk 2, expected 0 in a model without experts");
}

}  // namespace
}  // namespace moesim::models
