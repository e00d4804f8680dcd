// Two laws of files: what a file says is in the answer or named, and a key added to any file changes the answer, is
// named, or is on the list of keys that change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file_io.h"
#include "base/input_error.h"
#include "base/json_reader.h"
#include "models/workload/architecture.h"
#include "models/workload/model_json.h"
#include "tools/moesim/read/load_job.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

const fs::path kForeign = fs::path(MOESIM_DATA_DIR) / "foreign";

// Files of the repository and of ../shared/data/foreign with one of the endings.
std::vector<fs::path> files(std::initializer_list<std::string_view> endings) {
  std::vector<fs::path> all;
  for (const fs::path& folder : {fs::path(MOESIM_SOURCE_DIR) / "docs/examples",
                                 fs::path(MOESIM_SOURCE_DIR) / "tests/fuzz/corpus/training_job",
                                 kForeign / "configs", kForeign / "third", kForeign / "fourth"})
    if (fs::exists(folder))
      for (const auto& entry : fs::recursive_directory_iterator(folder))
        if (std::ranges::find(endings, entry.path().extension().string()) != endings.end())
          all.push_back(entry.path());
  std::ranges::sort(all);
  return all;
}

struct Read {
  ordered_json model;
  std::vector<std::string> ignored, unknown;
  std::string error;
};

Read read_model(const ordered_json& config) {
  try {
    const models::Architecture a =
        models::Architecture::parse(JsonNode::from_json(config, "config.json"), "m");
    return {models::model_object(a), a.ignored_keys, a.unknown_keys, ""};
  } catch (const InputError& error) {
    return {{}, {}, {}, error.what()};
  }
}

// Calls `check` with every JSON file that is a model, and what was read of it. Returns the number of them.
int each_model(const auto& check) {
  int models = 0;
  for (const fs::path& file : files({".json"})) {
    ordered_json config;
    try {
      config = ordered_json::parse(read_file(file.string(), 1 << 24));
    } catch (const std::exception&) {
      continue;
    }
    if (!config.is_object()) continue;
    const Read read = read_model(config);
    if (!read.error.empty()) continue;
    ++models;
    check(file, config, read);
  }
  return models;
}

bool ends_in(const std::vector<std::string>& keys, const std::string& key) {
  return std::ranges::any_of(keys,
                             [&](const std::string& one) { return one == key || one.ends_with("." + key); });
}

// Whether a language model stands in a part of an object: what is around it is left out, as a remark says.
bool is_whole(const ordered_json& part) {
  return std::ranges::any_of(
      std::initializer_list<const char*>{"text_config", "language_config", "llm_config", "thinker_config"},
      [&](const char* key) { return part.contains(key); });
}

// Calls `check` with every object of a model's file that is read, and how its place is reached.
void each_part(ordered_json& config, ordered_json& part, const auto& check) {
  check(part);
  for (auto& [key, value] : part.items())
    for (const char* known :
         {"text_config", "language_config", "llm_config", "thinker_config", "ffn_config", "attn_config",
          "moe", "linear_attn_config", "attention_other_setting", "sparse_attention_config"})
      if (key == known && value.is_object()) each_part(config, value, check);
}

TEST(FileLaws, AKeyAddedToAModelIsRefusedOrNamed) {
  if (!fs::exists(kForeign)) GTEST_SKIP() << "no files under " << kForeign;
  const int models = each_model([&](const fs::path& file, ordered_json& config, const Read&) {
    each_part(config, config, [&](ordered_json& part) {
      if (is_whole(part)) return;
      part["odd_number"] = 3;
      EXPECT_THAT(read_model(config).error, ::testing::HasSubstr("odd_number")) << file;
      part.erase("odd_number");
      part["odd_name"] = "fast";
      const Read read = read_model(config);
      EXPECT_TRUE(ends_in(read.unknown, "odd_name") || !read.error.empty()) << file;
      part.erase("odd_name");
    });
  });
  EXPECT_GT(models, 60);
}

// A number that is doubled, or a switch that is turned.
TEST(FileLaws, AChangedKeyOfAModelChangesItOrIsOnTheListOfThoseThatDoNot) {
  if (!fs::exists(kForeign)) GTEST_SKIP() << "no files under " << kForeign;
  // They say again what others say, or matter beside others alone.
  const std::vector<std::string> beside{"head_dim",
                                        "num_key_value_heads",
                                        "qk_head_dim",
                                        "max_window_layers",
                                        "use_sliding_window",
                                        "sliding_window",
                                        "topk_group",
                                        "decoder_sparse_step",
                                        "moe_layer_freq",
                                        "attention_chunk_size",
                                        "use_mtp",
                                        "mtp_transformer_layers",
                                        "full_attention_interval",
                                        "interleave_moe_layer_step",
                                        "multi_query_attention",
                                        "num_mtp_modules",
                                        "sliding_window_size",
                                        "qk_rope_head_dim",
                                        "num_hidden_layers",
                                        "n_group",
                                        "use_sparse_attention",
                                        "intermediate_size",
                                        "intermediate_size_mlp",
                                        "dense_intermediate_size",
                                        "sliding_window_pattern",
                                        "index_topk_freq",
                                        "layer_group_size",
                                        "experts_per_token",
                                        "n_shared_experts",
                                        "moe_layer_end_index"};
  each_model([&](const fs::path& file, ordered_json& config, const Read& before) {
    each_part(config, config, [&](ordered_json& part) {
      if (is_whole(part)) return;
      for (auto& [key, value] : part.items()) {
        const bool number = value.is_number_integer() && value != 0;
        if (!number && !(value.is_boolean() && value == true)) continue;
        if (key.starts_with("moe_") && before.model.value("experts", 0) == 0) continue;
        if (ends_in(before.ignored, key) || std::ranges::find(beside, key) != beside.end()) continue;
        const ordered_json was = value;
        value = number ? ordered_json(2 * value.get<std::int64_t>()) : ordered_json(false);
        const Read after = read_model(config);
        EXPECT_TRUE(!after.error.empty() || after.model != before.model) << file << ": " << key;
        value = was;
      }
    });
  });
}

TEST(FileLaws, WhatAJobSaysIsUsedOrNamedAlsoAKeyThatIsAdded) {
  if (!fs::exists(kForeign)) GTEST_SKIP() << "no files under " << kForeign;
  int jobs = 0;
  for (const fs::path& file : files({".sh", ".toml", ".yaml"})) {
    const auto framework = *framework_of_file(file);
    const bool script = file.extension() == ".sh";
    const std::string odd = script ? "--odd-one 3" : "odd_one=3";
    Job job;
    try {
      job = load_job(file, framework, {odd});
    } catch (const InputError&) {
      continue;
    }
    ++jobs;
    EXPECT_THAT(job.remarks(), ::testing::Contains(::testing::HasSubstr(script ? "--odd-one" : "odd_one")))
        << file;
    for (const UsedArgument& one : job.arguments) {
      const bool named = std::ranges::any_of(job.remarks(), [&](const std::string& r) {
        return r.find(one.setting.shown) != std::string::npos;
      });
      EXPECT_TRUE(one.use == ArgumentUse::kUsed ||
                  (one.use == ArgumentUse::kIrrelevant && !one.because.empty()) || named)
          << file << ": " << one.setting.shown;
    }
  }
  EXPECT_GT(jobs, 12);
}

}  // namespace
}  // namespace moesim::tools
