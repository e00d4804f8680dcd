// The built-in models: parameter counts against the totals that their authors publish (model cards, papers).
#include "models/workload/model_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace moesim::models {
namespace {

struct Published {
  const char* name;
  double total, active;      // 1e9; active 0: not published
  double tolerance = 0.012;  // totals are published with two or three digits
};

class PublishedTotals : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedTotals, Match) {
  const Published& p = GetParam();
  const Architecture a = Architecture::load(p.name);
  EXPECT_NEAR(static_cast<double>(a.parameters()) * 1e-9 / p.total, 1, p.tolerance);
  if (p.active > 0) {
    EXPECT_NEAR(static_cast<double>(a.active_parameters()) * 1e-9 / p.active, 1, 2.5 * p.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, PublishedTotals,
    ::testing::Values(Published{"mixtral-8x7b", 46.7, 12.9},   // Mixtral of Experts, arXiv 2401.04088
                      Published{"mixtral-8x22b", 141, 39},     // mistral.ai/news/mixtral-8x22b
                      Published{"deepseek-v2", 236, 21},       // arXiv 2405.04434
                      Published{"deepseek-v2-lite", 15.7, 0},  // arXiv 2405.04434
                      Published{"deepseek-v3", 671, 37},       // arXiv 2412.19437
                      // The headers of moonshotai/Kimi-K2-Instruct's 61 files sum up to 1,026,408,232,448
                      // parameters (its report, arXiv 2507.20534, rounds to 1.04T); 32.6B active: the report.
                      Published{"kimi-k2", 1026.408, 32.6},
                      Published{"qwen2-57b-a14b", 57.4, 14.2},         // model card: 57.41B, 14B
                      Published{"qwen3-30b-a3b", 30.5, 3.3},           // model card
                      Published{"qwen3-235b-a22b", 235, 22},           // model card
                      Published{"gpt-oss-120b", 116.83, 5.13, 0.001},  // arXiv 2508.10925, table 1
                      Published{"gpt-oss-20b", 20.91, 3.61, 0.001},    // the same
                      Published{"llama4-maverick", 400, 17, 0.02},     // model card, language model
                      Published{"llama4-scout", 109, 17, 0.02},        // model card, language model
                      Published{"dbrx", 132, 36},                      // model card
                      Published{"olmoe", 6.92, 1.28}),                 // arXiv 2409.02060: 6.9B, 1.3B
    [](const auto& info) {
      std::string name = info.param.name;
      for (char& c : name)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
      return name;
    });

TEST(BuiltInArchitectures, KimiK2IsItsCheckpoint) {
  EXPECT_NEAR(static_cast<double>(Architecture::load("kimi-k2").parameters()) / 1'026'408'232'448.0, 1, 1e-5);
}

// Requirements on every size for programs to be built from it.
TEST(BuiltInArchitectures, HaveNamesOfTheirOwnAndWholeSizes) {
  std::set<std::string> names;
  for (const Architecture& a : builtin_architectures()) {
    EXPECT_TRUE(names.insert(a.name).second) << a.name;
    EXPECT_GT(a.hidden * a.layers * a.vocabulary, 0) << a.name;
    EXPECT_GT(a.attention.heads, 0) << a.name;
    if (a.attention.kind == Attention::Kind::kGrouped) {
      EXPECT_EQ(a.attention.heads % a.attention.kv_heads, 0) << a.name;
    }
    if (a.experts > 0) {
      EXPECT_LE(a.topk, a.experts) << a.name;
      EXPECT_EQ(a.experts % a.routing_groups, 0) << a.name;
      EXPECT_GT(a.moe_layers(), 0) << a.name;
      EXPECT_LT(a.active_parameters(), a.parameters()) << a.name;
    }
    if (a.pattern.empty() && a.moe_layers() < a.layers) {
      EXPECT_GT(a.dense_ffn, 0) << a.name;
    }
    if (!a.pattern.empty()) {
      EXPECT_EQ(a.layers, static_cast<std::int64_t>(a.pattern.size())) << a.name;
    }
  }
}

}  // namespace
}  // namespace moesim::models
