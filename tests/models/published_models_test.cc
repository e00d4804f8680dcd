// The newest open models with experts: what their files say, against what is published of them, and the list
// in docs/models.md.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/step/step_memory.h"
#include "models/workload/architecture.h"
#include "models/workload/layer_stack.h"
#include "models/workload/model_summary.h"
#include "tests/cases.h"
#include "tests/message_of.h"

namespace moesim::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Architecture model(const json& config) {
  return Architecture::parse(JsonNode::from_json(config, "config.json"));
}
Architecture model(const std::string& text) { return model(json::parse(text)); }

// A row of published_models.json.
struct Published {
  std::string name;
  json config;
  double total, rounded, active;
  std::string needs;
};
const std::vector<Published>& newest() {
  static const std::vector<Published> all = [] {
    std::vector<Published> rows;
    for (const auto& row : moesim::testing::cases("models/published_models.json", "models"))
      rows.push_back({row["name"], row["config"], row["total"], row["rounded"], row["active"], row["needs"]});
    return rows;
  }();
  return all;
}
Architecture published(std::string_view name) {
  return model(std::ranges::find(newest(), name, &Published::name)->config);
}
// Models with a kind of layer that is unknown here, and the key that says so.
struct Unknown {
  const char *name, *key, *needs;
};
constexpr std::array<Unknown, 4> kUnknown{
    {{"DeepSeek-V4.1-Flash", "engram_layer_ids", "a memory of n-grams, keys shared by layers"},
     {"Qwen3.8-Flash-Next", "split_ngram_parts", "embeddings of n-grams"},
     {"LongCat-Flash-Lite", "ngram_vocab_size_ratio", "embeddings of n-grams"},
     {"Inkling", "d_rel", "attention with learned relative positions"}}};
// Others, by their files.
struct Other {
  const char *name, *file, *needs;
};
constexpr std::array<Other, 4> kOthers{
    {{"Nemotron-3-Ultra", "nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "Mamba-2, latent experts"},
     {"MiniMax-M2.5", "MiniMaxAI--MiniMax-M2.5", "nothing else"},
     {"Qwen3.5-122B-A10B", "Qwen--Qwen3.5-122B-A10B", "gated DeltaNet"},
     {"Step-3.7-Flash", "stepfun-ai--Step-3.7-Flash", "windows with heads of their own"}}};

TEST(PublishedModels, TheNewestAreCountedAsPublished) {
  for (const Published& p : newest()) {
    const Architecture a = model(p.config);
    EXPECT_NEAR(static_cast<double>(a.parameters()) * 1e-9, p.total, std::max(p.rounded, 0.01 * p.total))
        << p.name;
    // Either includes or excludes the table of input embeddings, of which a token reads one row.
    const double met = static_cast<double>(a.active_parameters()) * 1e-9,
                 table = static_cast<double>(a.vocabulary * a.hidden) * 1e-9;
    EXPECT_TRUE(std::abs(met / p.active - 1) < 0.03 || std::abs((met - table) / p.active - 1) < 0.03)
        << p.name << ": " << met << " or " << met - table;
  }
}

// The models behind their names equal their files.
TEST(PublishedModels, NamesMeanTheFiles) {
  for (const Published& p : newest()) {
    if (p.name == "LongCat-Flash" || p.name == "LFM2-8B-A1B") continue;
    const Architecture said = model(p.config), named = Architecture::load(p.name);
    EXPECT_EQ(said.parameters(), named.parameters()) << p.name;
    EXPECT_EQ(said.active_parameters(), named.active_parameters()) << p.name;
    EXPECT_EQ(layer_stack(said), layer_stack(named)) << p.name;
  }
}

// The checkpoint of GLM-5.2 holds 753,329,921,024 weights, its layer of prediction with an indexer included.
TEST(PublishedModels, GlmsCheckpointIsMetToAThousandth) {
  const Architecture a = published("GLM-5.2");
  Chunk all;
  all.layers = layer_stack(a);
  all.embedding = all.head = true;
  const StageParameters held = chunk_parameters(a, Parallel{}, all);
  EXPECT_NEAR((held.dense + held.experts) / 753329921024.0, 1, 1e-3);
  int indexers = 0;
  for (const LayerKind& kind : all.layers) indexers += kind.mixer == LayerKind::Mixer::kAttention;
  EXPECT_EQ(indexers, 22);
}

// The checkpoint of GLM-5.3-Flash holds 320,780,000,000 weights without its vision tower.
TEST(PublishedModels, GlmFlashsCheckpointIsMet) {
  const Architecture a = published("GLM-5.3-Flash");
  EXPECT_EQ(a.attention.scored_tokens(), 4);
  EXPECT_EQ(a.linear.gate_rank, 128);
  Chunk all;
  all.layers = layer_stack(a);
  all.embedding = all.head = true;
  const StageParameters held = chunk_parameters(a, Parallel{}, all);
  EXPECT_NEAR((held.dense + held.experts) * 1e-9 / 320.78, 1, 1e-3);
  EXPECT_NE(a.remarks.front().find("vision_config, 24 layers of 1024 columns"), std::string::npos);
}

// transformers' DeepseekV4Config: names of kinds and their ratios, or neither.
TEST(PublishedModels, DeepSeekV4IsReadAsTransformersWritesIt) {
  const std::string sizes = R"({"model_type": "deepseek_v4", "hidden_size": 4096, "head_dim": 512,
    "moe_intermediate_size": 2048, "num_hidden_layers": 6, "num_attention_heads": 64, "num_key_value_heads": 1,
    "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "n_routed_experts": 256, "num_experts_per_tok": 6,
    "vocab_size": 129280, "sliding_window": 128, "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512)";
  EXPECT_EQ(model(sizes + R"(, "compress_ratios": null})").mixers, "HHHSHS");
  const Architecture named = model(sizes + R"(, "compress_rates": {"compressed_sparse_attention": 8,
    "heavily_compressed_attention": 64}, "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe", "moe"],
    "layer_types": ["sliding_attention", "sliding_attention", "compressed_sparse_attention",
    "heavily_compressed_attention", "compressed_sparse_attention", "heavily_compressed_attention"]})");
  EXPECT_EQ(named.mixers, "WWSHSH");
  EXPECT_EQ(named.attention.compress, 8);
  EXPECT_EQ(named.attention.compress_all, 64);
  EXPECT_EQ(named.moe_layers(), 6);
}

std::string docs() {
  std::ifstream file(std::string(MOESIM_SOURCE_DIR) + "/docs/models.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}
// A row of the list in docs/models.md.
std::string row_of(std::string_view name, const Architecture& a, std::string_view needs) {
  return fmt::format("| {} | {:.4g} B, {:.3g} B | {} | yes |", name,
                     static_cast<double>(a.parameters()) * 1e-9,
                     static_cast<double>(a.active_parameters()) * 1e-9, needs);
}

// The list of docs/models.md is what moesim says.
TEST(PublishedModels, TheListInTheDocsIsTrue) {
  const std::string page = docs();
  for (const Published& p : newest()) {
    const std::string row = row_of(p.name, model(p.config), p.needs);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(PublishedModels, ModelsOfUnknownLayersAreRefusedByTheKey) {
  const std::string page = docs();
  for (const Unknown& u : kUnknown) {
    const std::string said = moesim::testing::message_of([&] {
      model(fmt::format(R"({{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "intermediate_size": 64, "{}": [1]}})",
                        u.key));
    });
    EXPECT_NE(said.find(u.key), std::string::npos) << said;
    EXPECT_NE(said.find("such layers are not modelled here"), std::string::npos) << said;
    const std::string row = fmt::format("| {} | | {} | no: `{}` |", u.name, u.needs, u.key);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(PublishedModels, TheListsOtherRowsAreTrue) {
  const std::string folder = std::string(MOESIM_DATA_DIR) + "/foreign/configs/";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no model files under " << folder;
  const std::string page = docs();
  for (const Other& other : kOthers) {
    const std::string row =
        row_of(other.name, Architecture::load(folder + other.file + "_config.json"), other.needs);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
  const Architecture file = Architecture::load(folder + kOthers[0].file + "_config.json"),
                     named = Architecture::load(kOthers[0].name);
  EXPECT_EQ(file.parameters(), named.parameters());
  EXPECT_EQ(file.active_parameters(), named.active_parameters());
  EXPECT_EQ(layer_stack(file), layer_stack(named));
}

// NVIDIA's Puzzle: a layer without attention, FFNs of 1, 2 and 2.625 times two thirds of the columns.
TEST(PublishedModels, BlocksOfDifferentSizesAreRead) {
  const std::string start = R"({"model_type": "nemotron-nas", "hidden_size": 1024, "num_hidden_layers": 3,
    "num_attention_heads": 16, "vocab_size": 1000, "hidden_act": "silu", "block_configs": [)";
  const std::string there = R"({"attention": {"n_heads_in_group": 8, "no_op": false}, "ffn": {"ffn_mult": )";
  const Architecture a =
      model(start + there + "2.0}}, " + R"({"attention": {"no_op": true}, "ffn": {"ffn_mult": 1.0}}, )" +
            there + "2.625}}]}");
  EXPECT_EQ(a.mixers, "*.*");
  EXPECT_EQ(a.dense_sizes, (std::vector<std::int64_t>{1536, 768, 1792}));
  EXPECT_EQ(a.attention.kv_heads, 2);
  EXPECT_TRUE(a.gated);
  const std::int64_t attention = 1024 * (1024 + 2 * 128) + 1024 * 1024;
  EXPECT_EQ(a.parameters(),
            2 * 1000 * 1024 + 1024 + 2 * (attention + 1024) + 3 * 1024 + 3 * 1024 * (1536 + 768 + 1792));
}

// Model files as people have them: the parameters that their authors publish, or one line that names the key
// which makes the model another one than we can describe.

// Half a unit of the last written digit: 0.05 for "3.3".
double half_unit(const std::string& text) {
  const std::size_t point = text.find('.');
  const auto digits = point == std::string::npos ? 0 : static_cast<int>(text.size() - point - 1);
  return 0.5 * std::pow(10, -digits);
}

TEST(ForeignModels, AreUnderstoodOrRefusedByName) {
  const fs::path folder = fs::path(MOESIM_DATA_DIR) / "foreign/configs";
  if (!fs::exists(folder)) GTEST_SKIP() << "no model files under " << folder;
  std::ifstream table(folder / "expected.csv");
  std::string line;
  std::getline(table, line);
  int understood = 0, refused = 0;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string file, total, active;
    std::getline(fields, file, ',');
    std::getline(fields, total, ',');
    std::getline(fields, active, ',');
    try {
      const Architecture a = Architecture::load((folder / file).string());
      ++understood;
      if (total.empty()) continue;
      const double all = static_cast<double>(a.parameters()) * 1e-9 / std::stod(total),
                   met = static_cast<double>(a.active_parameters()) * 1e-9 / std::stod(active),
                   table = static_cast<double>(a.vocabulary * a.hidden) * 1e-9 / std::stod(active);
      // Totals of multimodal models count the vision part, which is not taken, and the answer says so.
      const bool text_alone = !a.remarks.empty() && all < 0.97;
      // Trillions are published with two digits.
      const double off = std::stod(total) > 1500 ? 50 / std::stod(total) : 0.01;
      EXPECT_LT(all, 1 + off) << file;
      if (text_alone && a.remarks.front().find("alone is taken") != std::string::npos) continue;
      EXPECT_GT(all, 1 - off) << file;
      // Published with one to three digits, some without the tables of the input and the output.
      double nearest = 1e9;
      for (int left_out = 0; left_out < 3; ++left_out) {
        const double off = std::abs(met - left_out * table - 1);
        if (off * std::stod(active) <= half_unit(active)) nearest = 0;
        nearest = std::min(nearest, off);
      }
      EXPECT_LT(nearest, 0.03) << file;
    } catch (const InputError& error) {
      ++refused;
      std::cout << error.what() << '\n';
      EXPECT_GT(error.place().line, 0) << file;
    }
  }
  std::cout << understood << " understood, " << refused << " refused\n";
  EXPECT_GT(understood, refused);
}

// Whether a count is what was published: within so much, or within its last digit; without any is anything.
bool is_published(double billions, const std::string& text, double within) {
  double published = 0;
  std::istringstream(text) >> published;
  if (published <= 0) return true;
  const double off = std::abs(billions - published);
  return off <= half_unit(text) || off <= within * published;
}

// "total/active" in billions, "refuse" or "?" for one of them.
TEST(ForeignModels, OfTheThirdDeliveryNoneBecomesAnother) {
  const fs::path folder = fs::path(MOESIM_DATA_DIR) / "foreign/third";
  if (!fs::exists(folder)) GTEST_SKIP() << "no model files under " << folder;
  std::ifstream table(folder / "expected.tsv");
  std::string line;
  std::getline(table, line);
  int understood = 0;
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string file, outcome, ours, expected, cause;
    for (std::string* field : {&file, &outcome, &ours, &expected, &cause}) std::getline(fields, *field, '\t');
    if (!fs::exists(folder / "configs" / file)) continue;
    try {
      const Architecture a = Architecture::load((folder / "configs" / file).string());
      ++understood;
      // Class defaults that are no released model: the file's sizes count. Apertus' says more heads of keys,
      // and Kimi Linear's files hold 49.1 B.
      if (cause.starts_with("by the file") || file == "apertus-8b.json" || file == "kimi-linear-48b_hub.json")
        continue;
      const std::string total = expected.substr(0, expected.find('/')),
                        active = expected.substr(expected.find('/') + 1);
      const auto billions = [](std::int64_t count) { return static_cast<double>(count) * 1e-9; };
      const double table_of_inputs = billions(a.vocabulary * a.hidden), met = billions(a.active_parameters());
      EXPECT_TRUE(is_published(billions(a.parameters()), total, 0.01)) << line;
      EXPECT_TRUE(is_published(met, active, 0.03) || is_published(met - table_of_inputs, active, 0.03) ||
                  is_published(met - 2 * table_of_inputs, active, 0.03))
          << line << '\n'
          << met;
    } catch (const InputError& error) {
      std::cout << error.what() << '\n';
      EXPECT_GT(error.place().line, 0) << file;
      EXPECT_TRUE(outcome.starts_with("refused") || expected.starts_with("refuse") ||
                  expected.find("or refuse") != std::string::npos || expected.starts_with("?"))
          << error.what();
    }
  }
  EXPECT_GE(understood, 30);
}

}  // namespace
}  // namespace moesim::models
