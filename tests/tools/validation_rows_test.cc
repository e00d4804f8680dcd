// Rows of published tables as scenarios (tools/moesim/validation/rows.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/json_reader.h"
#include "calibration/check/leave_out.h"
#include "models/answers/doubt.h"
#include "models/hardware/cluster.h"
#include "models/hardware/embedded_profiles.h"
#include "models/step/step_forecast.h"
#include "models/workload/fields.h"
#include "process.h"
#include "tests/cases.h"
#include "tools/moesim/validation/rows.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using moesim::testing::cases;
using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TempFolder;

using Cells = std::map<std::string, std::string>;

// A table of rows that differ from a good one in some cells.
std::string table_of(const std::vector<Cells>& rows) {
  const Cells good = cases("tools/validation_rows.json", "good");
  Cells every = good;
  for (const Cells& row : rows)
    for (const auto& [column, cell] : row) every.emplace(column, "");
  std::string text;
  for (const auto& [column, cell] : every) text += column + ",";
  text.back() = '\n';
  for (const Cells& row : rows) {
    for (const auto& [column, cell] : every)
      text += "\"" + (row.contains(column) ? row.at(column) : cell) + "\",";
    text.back() = '\n';
  }
  return text;
}

PublishedTable read(const std::string& text, RowsWith with = RowsWith::kTime) {
  const TempFolder folder;
  folder.write("rows.csv", text);
  return read_tables({folder / "rows.csv"}, with);
}

PublishedRow read_row(const Cells& cells, RowsWith with = RowsWith::kTime) {
  PublishedTable table = read(table_of({cells}), with);
  EXPECT_EQ(table.rows.size(), 1u) << (table.skipped.empty() ? "" : table.skipped.front().reason);
  return table.rows.empty() ? PublishedRow() : table.rows.front();
}

TEST(PublishedRow, IsAPlanOnItsCluster) {
  const PublishedRow row = read_row({});
  const models::Parallel& p = row.scenario.parallel;
  EXPECT_EQ(row.line, 2);
  EXPECT_EQ(p.dp, 64 / (2 * 2));
  EXPECT_EQ(p.microbatches, 128 / (p.dp * 2));
  EXPECT_EQ(row.scenario.cluster->nodes * row.scenario.cluster->gpus_per_node, 64);
  EXPECT_EQ(row.measured_s, 6.5);
  EXPECT_EQ(row.measured_from, "step time");
  EXPECT_EQ(plan_text(row.scenario), "TP2 CP1 PP2 EP8 DP16 mb4x2 seq2048 bf16");
  EXPECT_THAT(row.assumptions, Contains(HasSubstr("framework 'in-house' is not known")));
  // 128 sequences of 2,048 tokens on 64 GPUs are 4,096 tokens a GPU: at 1,024 a second, 4 s.
  const PublishedRow rate = read_row({{"step_time_s", ""}, {"tokens_per_s_per_gpu", "1024"}});
  EXPECT_DOUBLE_EQ(rate.measured_s, 4);
  EXPECT_EQ(rate.measured_from, "tokens/s");
}

// A table with a row that is wrong or incomplete says so and goes on with the others.
TEST(PublishedRow, ThatCannotBeForecastIsSkippedWithItsReason) {
  const std::vector<std::pair<Cells, std::string>> skipped = cases("tools/validation_rows.json", "skipped");
  std::vector<Cells> rows;
  rows.reserve(skipped.size() + 1);
  for (const auto& [cells, reason] : skipped) rows.push_back(cells);
  rows.push_back({});
  PublishedTable t = read(table_of(rows) + "H100-SXM5-80GB,64\n");
  ASSERT_EQ(t.skipped.size(), skipped.size() + 1);
  EXPECT_EQ(t.rows.size(), 1u);
  std::ranges::stable_sort(t.skipped, {}, &SkippedRow::line);
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    EXPECT_THAT(t.skipped[i].reason, HasSubstr(skipped[i].second));
    EXPECT_EQ(t.skipped[i].line, static_cast<long>(i) + 2);
  }
  EXPECT_THAT(t.skipped.back().reason, HasSubstr("rows.csv:18: found 2 fields, expected 16"));
  EXPECT_THROW(read("gpu,model\nH100,OLMoE\n"), InputError);
  const PublishedTable layer = read(
      "gpu,gpus,case,hidden,experts,topk,moe_inter,ep,tokens_per_rank,precision,forward_backward_ms\n"
      "H100-SXM5-80GB,8,x,16777216,16777216,16777216,16777216,8,16777216,BF16,3\n");
  ASSERT_EQ(layer.skipped.size(), 1u);
  EXPECT_THAT(layer.skipped[0].reason, Not(HasSubstr("not stated")));
}

// 2 sequences a rank of this model of 4,096 tokens do not fit beside its state without recomputation.
TEST(PublishedRow, ThatRanFittedWithTheCheapestRecomputation) {
  PublishedRow row = read_row({{"gpus", "16"},
                               {"model", "Qwen3 30B-A3B"},
                               {"gbs", "64"},
                               {"seq_len", "4096"},
                               {"tp", "1"},
                               {"pp", "1"}});
  PublishedRow again = row;
  const models::StepMemory memory = memory_of(row);
  const models::Answer forecast = forecast_of(again, 0);
  ASSERT_FALSE(row.assumptions.empty());
  EXPECT_THAT(row.assumptions.back(), HasSubstr("without which it would not fit"));
  EXPECT_EQ(row.assumptions, again.assumptions);
  EXPECT_TRUE(memory.fits);
  EXPECT_EQ(row.scenario.training.recompute.text(), again.scenario.training.recompute.text());
  EXPECT_EQ(memory.max_bytes, forecast.memory.max_bytes);
}

// The cut model of a row is the one that a config.json with its numbers, or a model card, gives: the same
// bytes (issue 37, point 1).
TEST(PublishedRow, WithACutModelIsThatOfItsCard) {
  PublishedRow cut = read_row({{"gpu", "B200-SXM6-180GB"},
                               {"gpus", "8"},
                               {"model", "DeepSeekV3"},
                               {"layers", "4"},
                               {"dense_layers", "1"},
                               {"framework", "Megatron-LM"},
                               {"dispatcher", "alltoall"},
                               {"gbs", "32"},
                               {"mbs", "1"},
                               {"seq_len", "4096"},
                               {"tp", "1"},
                               {"pp", "1"},
                               {"recompute", "none"},
                               {"optimizer", "distributed optimizer, fp32 gradients"},
                               {"peak_allocated_GiB", "100"},
                               {"status", "fits"}},
                              RowsWith::kPlan);
  const models::StepMemory row = memory_of(cut);
  for (
      const char* card :
      {R"({"base": "deepseek-v3", "layers": 4, "dense_layers": 1})",
       R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 4, "first_k_dense_replace": 1,
            "vocab_size": 129280, "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
            "n_shared_experts": 1, "n_group": 8, "topk_group": 4})"}) {
    models::Scenario s = models::Scenario::parse(JsonNode::parse(
        std::string(
            R"({"scope": "step", "cluster": "dgx-b200x1", "dispatcher": "alltoall", "parallel": {"tp": 1,
            "pp": 1, "ep": 8, "dp": 8, "global_batch": 32}, "router_dtype": "fp32", "model": )") +
            card + "}",
        "card.json"));
    s.resolve();
    const models::StepMemory memory = models::StepForecaster(s, s.dispatchers.front()).memory();
    EXPECT_EQ(memory.max_bytes, row.max_bytes) << card;
    EXPECT_EQ(memory.stages.front().bytes.total(), row.stages.front().bytes.total()) << card;
  }
}

TEST(PublishedRow, HasAnOriginForEverySetting) {
  const models::Scenario s = read_row({{"gpu", "GB200"},
                                       {"model", "DeepSeekV3"},
                                       {"framework", "Megatron-Bridge 26.04"},
                                       {"precision", "MXFP8"},
                                       {"gbs", "512"},
                                       {"mbs", "1"},
                                       {"seq_len", ""},
                                       {"tp", "1"},
                                       {"pp", "4"},
                                       {"ep", "16"},
                                       {"note", "recompute mlp"}})
                                 .scenario;
  for (const char* path : {"parallel.ep", "training.recompute", "model", "cluster"}) {
    EXPECT_EQ(s.origin_of(path).kind, models::Origin::Kind::kFile) << path;
    EXPECT_THAT(s.origin_of(path).where, HasSubstr(".csv:2")) << path;
  }
  EXPECT_EQ(s.training.recompute.text(), "mlp");
  EXPECT_EQ(s.origin_of("training.launch"),
            (models::Origin{models::Origin::Kind::kRecipe, "megatron-bridge@26.04"}));
  EXPECT_EQ(s.origin_of("parallel.seq").kind, models::Origin::Kind::kDefault);
  // A size that the framework's own benchmark says.
  const models::Scenario benchmark = read_row({{"model", "GPT-OSS 120B"},
                                               {"framework", "NeMo Automodel"},
                                               {"gbs", "512"},
                                               {"seq_len", "4096"},
                                               {"tp", "1"},
                                               {"pp", "1"},
                                               {"ep", ""}})
                                         .scenario;
  EXPECT_EQ(benchmark.parallel.ep, 64);
  EXPECT_EQ(benchmark.origin_of("parallel.ep"),
            (models::Origin{models::Origin::Kind::kRecipe, "nemo-automodel"}));
}

TEST(PublishedRow, NamesItsDispatcherAsTablesDo) {
  for (const auto& row : cases("tools/validation_rows.json", "dispatchers"))
    EXPECT_EQ(read_row({{"framework", row[0]}, {"dispatcher", row[1]}, {"backend", row[2]}})
                  .scenario.dispatchers.front()
                  .text(),
              row[3].get<std::string>());
}

TEST(RowNotes, SayHowTheRunWasLaunchedAndWhichSizesStandAlone) {
  for (const auto& row : cases("tools/validation_rows.json", "notes")) {
    json said = json::object();
    for (const RowSetting& s : settings_of_note(row[0].get<std::string>())) said[s.path] = s.value;
    EXPECT_EQ(said, json(row[1])) << row[0];
  }
}

std::vector<std::string> assumptions;

models::Architecture model(const std::string& name, const std::string& source = "") {
  assumptions.clear();
  const auto named = row_model(name, source, assumptions);
  return named ? models::Architecture::parse(JsonNode::from_json(*named, "")) : models::Architecture();
}

TEST(RowModel, IsCutAndChangedAsItsNameSays) {
  const auto whole = model("Mixtral-8x22B"), eighths = model("Mixtral-8x22B-G8T8 (64 experts top-8)");
  EXPECT_EQ(eighths.experts, 8 * whole.experts);
  EXPECT_EQ(eighths.topk, 8);
  EXPECT_EQ(eighths.experts * eighths.expert_ffn, whole.experts * whole.expert_ffn);
  EXPECT_EQ(model("DeepSeek-V3 style MoE cut to 12 layers").layers, 12);
  EXPECT_EQ(model("DeepSeek-V3 style MoE cut to 12 layers").experts, 256);
  EXPECT_EQ(model("DeepSeek-V3 cut to some layers").layers, 0);
  EXPECT_EQ(model("DeepSeekV3").mtp_layers, 1);
  EXPECT_EQ(model("DeepSeekV3 without MTP").mtp_layers, 0);
  // MegaScale's table has no shared experts and no dense layers.
  const auto here = model("DeepSeekMoE-16B"), there = model("DeepSeekMoE-16B", "arXiv 2505.11432 table 3");
  EXPECT_GT(here.shared_ffn, 0);
  EXPECT_GT(here.dense_layers, 0);
  EXPECT_EQ(there.shared_ffn, 0);
  EXPECT_EQ(there.dense_layers, 0);
  EXPECT_EQ(there.experts, here.experts);
  EXPECT_NEAR(static_cast<double>(model("Internal-352B (60 layers)", "arXiv 2505.11432").parameters()), 352e9,
              2e9);
}

TEST(RowModel, HasTheSizesOfItsName) {
  const auto a = model("GRUG MoE d5120 L48 e256 top8 i1280 + shared 2560 dense 8192");
  EXPECT_EQ((std::vector<std::int64_t>{a.hidden, a.layers, a.experts, a.topk, a.expert_ffn, a.shared_ffn,
                                       a.dense_ffn, a.dense_layers}),
            (std::vector<std::int64_t>{5120, 48, 256, 8, 1280, 2560, 8192, 1}));
  EXPECT_EQ(a.attention.heads * a.attention.head_dim, a.hidden);
  EXPECT_EQ(assumptions.size(), 1u);  // heads and vocabulary are not in the name
  // The width of an expert follows from both counts.
  const auto b = model("GRUG-like MoE d5120 L48 e128 top4 (about 250B total, 15.95B active) + shared 5120");
  EXPECT_NEAR(static_cast<double>(b.parameters()), 250e9, 5e9);
  EXPECT_NEAR(static_cast<double>(b.active_parameters()), 15.95e9, 0.32e9);
  EXPECT_EQ(assumptions.size(), 2u);
  // Nothing said of the width, counts that no width meets, and one count alone.
  for (const char* name : {"GRUG MoE d5120 L48 e256", "MoE d5120 L48 e128 top4 (250B total, 80B active)",
                           "MoE d5120 L48 e128 top4 (15.95B active)"})
    EXPECT_FALSE(row_model(name, "", assumptions)) << name;
}

// ---- constants without their publication ----

constexpr const char* kBridge = "NVIDIA-NeMo/Megatron-Bridge docs/performance.md";

double& power_of(PublishedRow& row) {
  auto cluster = std::make_shared<models::Cluster>(*row.scenario.cluster);
  row.scenario.cluster = cluster;
  return cluster->profile.device().power_slowdown;
}

// Rows of B200 that take what a forecast with this factor of the power takes: one of Megatron-Bridge,
// `others` of another publication.
std::vector<PublishedRow> rows_with(int others, double power) {
  std::vector<Cells> cells;
  for (int i = -1; i < others; ++i)
    cells.push_back({{"gpu", "B200-SXM6-180GB"},
                     {"gpus", "8"},
                     {"framework", "Megatron-Bridge 26.04"},
                     {"gbs", std::to_string(64 << std::max(i, 0))},
                     {"mbs", "4"},
                     {"seq_len", "4096"},
                     {"tp", "1"},
                     {"pp", "1"},
                     {"source", i < 0 ? kBridge : "somewhere else"}});
  std::vector<PublishedRow> all = read(table_of(cells)).rows;
  for (PublishedRow& one : all) {
    PublishedRow planted = one;
    power_of(planted) = power;
    one.measured_s = forecast_of(planted, 0).seconds();
  }
  return all;
}

TEST(Refits, AreOfTheRowsOfOthersAndNeutralWithFewOfThem) {
  for (const int others : {3, 2}) {
    std::vector<PublishedRow> all = rows_with(others, 1.6);
    const double shipped = power_of(all.back());
    const std::vector<Refit> refits = leave_out_sources(all, {});
    ASSERT_EQ(refits.size(), 1u);
    EXPECT_EQ(refits[0].publication, "NVIDIA-NeMo/Megatron-Bridge");
    EXPECT_EQ(refits[0].rows, others == 3 ? 3u : 0u);
    EXPECT_NEAR(refits[0].value, others == 3 ? 1.6 : 1, 0.05);
    EXPECT_NE(refits[0].value, refits[0].shipped);
    EXPECT_EQ(power_of(all.front()), refits[0].value);
    EXPECT_EQ(power_of(all.back()), shipped);  // its publication set nothing
  }
}

TEST(Publications, AreSourcesWithoutTableAndFile) {
  using calibration::publication_of;
  EXPECT_EQ(publication_of(kBridge), "NVIDIA-NeMo/Megatron-Bridge");
  EXPECT_EQ(publication_of("arXiv 2504.14960 (MoE Parallel Folding) Table 2"), "arXiv 2504.14960");
  EXPECT_EQ(publication_of("MLPerf Training v6.0 log"), "MLPerf");
  EXPECT_EQ(publication_of("me"), "me");
}

// ---- the tables of ../shared/data ----

class PublishedTables : public ::testing::Test {
 protected:
  static std::vector<PublishedRow> rows(const std::vector<std::string>& names) {
    std::vector<std::string> paths;
    paths.reserve(names.size());
    for (const std::string& name : names) paths.push_back(std::string(MOESIM_DATA_DIR) + "/" + name);
    return read_tables(paths).rows;
  }
  void SetUp() override {
    if (!fs::exists(fs::path(MOESIM_DATA_DIR) / "decisions"))
      GTEST_SKIP() << "no tables at " << MOESIM_DATA_DIR;
  }
};

double seconds(PublishedRow row) { return forecast_of(row, 0).time_us.value * 1e-6; }

// One run in two tables, with its settings once in a note and once in columns (issue 37, point 2).
TEST_F(PublishedTables, ForecastARunAlikeInBoth) {
  const std::vector<PublishedRow> columns = rows({"decisions/mlperf_moe.csv"});
  int pairs = 0;
  for (const PublishedRow& row : rows({"published/moe_training_e2e_2.csv"})) {
    if (row.source.find("MLPerf") == std::string::npos) continue;
    // The path of the log is the run.
    const std::string log = row.source.substr(row.source.find("eabf23a0"), 60);
    const auto twin = std::ranges::find_if(
        columns, [&](const PublishedRow& other) { return other.source.find(log) != std::string::npos; });
    if (twin == columns.end()) continue;
    ++pairs;
    EXPECT_EQ(plan_text(row.scenario), plan_text(twin->scenario)) << log;
    EXPECT_EQ(seconds(row), seconds(*twin)) << log;
  }
  EXPECT_GE(pairs, 4);
}

TEST_F(PublishedTables, ThatNoFitHasSeenAreWithinFifteenPercentInTheMedian) {
  std::vector<double> errors;
  for (const PublishedRow& row : rows({"published/moe_training_e2e_2.csv"}))
    errors.push_back(std::abs(seconds(row) / row.measured_s - 1));
  ASSERT_GE(errors.size(), 9u);
  std::ranges::sort(errors);
  EXPECT_LE(errors[errors.size() / 2], 0.15);
}

// No size that decides is taken for 1 in silence, and the list of models and frameworks whose steps were
// published is that of the tables.
TEST_F(PublishedTables, SayTheirSizesAndAreListed) {
  std::map<json, std::set<std::string>> models;
  std::map<std::string, std::set<std::string>> recipes;
  for (const PublishedRow& row :
       rows({"published/moe_training_e2e.csv", "published/moe_training_e2e_2.csv",
             "decisions/aws_training_decisions.csv", "decisions/mlperf_moe.csv",
             "decisions/training_decisions.csv", "decisions/training_decisions_3.csv"})) {
    for (const char* path : {"parallel.tp", "parallel.pp", "parallel.ep"})
      EXPECT_NE(row.scenario.origin_of(path).kind, models::Origin::Kind::kDefault)
          << row.table << ':' << row.line << ' ' << path;
    if (!row.scenario.is_step()) continue;
    const std::string publication = calibration::publication_of(row.source), &recipe = row.scenario.recipe;
    models[*row_model(row.model, row.source, assumptions)].insert(publication);
    if (!recipe.empty()) recipes[recipe.substr(0, recipe.find('@'))].insert(publication);
  }
  json expected = {{"models", json::array()}, {"recipes", json::array()}};
  for (const auto& [model, publications] : models)
    expected["models"].push_back({{"model", model}, {"publications", publications}});
  for (const auto& [recipe, publications] : recipes)
    expected["recipes"].push_back({{"recipe", recipe}, {"publications", publications}});
  json shipped = json::parse(models::embedded_table("published_steps"));
  for (const char* other : {"about", "runs"}) shipped.erase(other);
  EXPECT_EQ(shipped, expected) << "expected:\n" << expected.dump(1);
}

}  // namespace
}  // namespace moesim::tools
