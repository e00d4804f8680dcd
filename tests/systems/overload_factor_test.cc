// Document 002, overload factor metrics: rows 2.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::systems {
namespace {

using nlohmann::json;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tools::testing::Outcome;
using tools::testing::parsed;
using tools::testing::realistic;
using tools::testing::run_moesim;
using tools::testing::scaling;
using tools::testing::TempFolder;
using tools::testing::with;

constexpr double kNear = 1e-6;

json first_answer(const std::vector<std::string>& words) { return parsed(words).at("scenarios").at(0); }

std::vector<double> metric(const json& overload, const char* name) {
  return overload.at("metrics").at(name).get<std::vector<double>>();
}

// Received rows of EP ranks, two experts each, as the table of one layer and microbatch.
std::string table(int layer, int microbatch, const std::vector<int>& rows) {
  std::string ranks;
  for (std::size_t r = 0; r < rows.size(); ++r)
    ranks += (r == 0 ? "" : ", ") + ("\"" + std::to_string(r)) + R"(": {"tokens_per_local_expert": [)" +
             std::to_string(rows[r] / 2) + ", " + std::to_string(rows[r] / 2) + "]}";
  return R"({"layer": )" + std::to_string(layer) + R"(, "microbatch": )" + std::to_string(microbatch) +
         R"(, "per_rank_dispatching_results": {)" + ranks + "}}";
}

// The worked example of docs/spec.md 4.2: 4 ranks, 2 replicas of the experts, 2 layers and 2 microbatches, 16
// rows each if balanced. The second replica's microbatches are 2 and 3 of the file; `more` layers are
// balanced.
class WorkedExample {
 public:
  explicit WorkedExample(int layers, int dense = 0) {
    const std::vector<int> even{16, 16, 16, 16};
    std::string tables = table(0, 0, {28, 14, 12, 10}) + ", " + table(1, 0, even) + ", " +
                         table(0, 1, {20, 20, 12, 12}) + ", " + table(1, 1, {40, 8, 8, 8}) + ", " +
                         table(0, 2, even) + ", " + table(1, 2, {24, 16, 12, 12}) + ", " +
                         table(0, 3, {32, 16, 8, 8}) + ", " + table(1, 3, {18, 18, 14, 14});
    for (int layer = 2; layer < layers - dense; ++layer)
      for (int m = 0; m < 4; ++m) tables += ", " + table(layer, m, even);
    folder_.write("routing.json", R"({"ep": 4, "experts": 8, "tables": [)" + tables + "]}");
    folder_.write(
        "model.json",
        R"({"hidden_size": 64, "moe_intermediate_size": 128, "intermediate_size": 128, "num_hidden_layers": )" +
            std::to_string(layers) + R"(, "first_k_dense_replace": )" + std::to_string(dense) +
            R"(, "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8,
                      "num_experts_per_tok": 2, "vocab_size": 128})");
  }

  std::vector<std::string> ask(const std::vector<std::string>& more,
                               const std::string& dispatcher = "alltoall") const {
    return with({"compare",
                 "--model",
                 folder_ / "model.json",
                 "--cluster",
                 "dgx-h100x2",
                 "--scope",
                 "step",
                 "--ep",
                 "4",
                 "--dp",
                 "8",
                 "--microbatches",
                 "2",
                 "--seq",
                 "8",
                 "--draws",
                 "0",
                 "--routing",
                 folder_ / "routing.json",
                 "--dispatcher",
                 dispatcher},
                more);
  }
  json overload(const std::vector<std::string>& more, const std::string& dispatcher = "alltoall") const {
    return first_answer(ask(more, dispatcher)).at("overload");
  }

 private:
  TempFolder folder_;
};

TEST(Systems, R2_1_TokensAfterDispatchPerLayerAndMicrobatchAndNoPaddedRows) {
  const json overload = WorkedExample(2).overload({});
  EXPECT_EQ(overload.at("entries"), 2 * 2);
  EXPECT_EQ(overload.at("replicas"), 2);
  // The dMoE of document 004: 12 rows a rank; slot f goes to expert f mod 8, so that the first rank's experts
  // get
  // 16. Blocks of 128 make 512 of them.
  const std::vector<std::string> smoke{
      "compare",     "--model",     "mixtral-8x7b",  "--cluster", "dgx-h100x1", "--ep", "2",
      "--seq",       "3",           "--micro-batch", "2",         "--draws",    "0",    "--routing",
      "round-robin", "--dispatcher"};
  for (const char* dispatcher : {"megablocks-dmoe-sparse", "megablocks-dmoe-grouped", "torchtitan-torchao"})
    EXPECT_NEAR(first_answer(with(smoke, {dispatcher})).at("overload").at("max").get<double>(), 16.0 / 12,
                kNear)
        << dispatcher;
}

TEST(Systems, R2_2_BalancedCountAndTheQuirkOfAllGatherOnRequest) {
  const WorkedExample example(2);
  const json plain = example.overload({}, "allgather");
  EXPECT_EQ(plain.at("max"), example.overload({}, "alltoall").at("max"));
  const json quirk = example.overload({"--overload-allgather-quirk"}, "allgather");
  EXPECT_EQ(quirk.at("max"), plain.at("max"));  // dispatchers stay comparable
  EXPECT_NEAR(quirk.at("metrics").at("moe/max_overload_factor").at(0).get<double>(), 4 * 2.5, 1e-5);
  EXPECT_NEAR(quirk.at("metrics").at("moe/avg_overload_factor").at(0).get<double>(), 4 * 1.515625, 1e-5);
  EXPECT_NEAR(quirk.at("metrics").at("moe/max_cum_overload_factor").at(0).get<double>(), 4 * 1.875, 1e-5);
  EXPECT_NEAR(plain.at("metrics").at("moe/max_overload_factor").at(0).get<double>(), 2.5, kNear);
  const Outcome refused = run_moesim(example.ask({"--overload-allgather-quirk"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("found no allgather dispatcher"));
  // At layer scope too.
  const json layer =
      first_answer({"compare", "--model", "mixtral-8x7b", "--ep", "4", "--draws", "0", "--routing",
                    "balanced", "--dispatcher", "allgather", "--overload-allgather-quirk"});
  EXPECT_NEAR(layer.at("overload").at("metrics").at("moe/avg_overload_factor").at(0).get<double>(), 4, 1e-5);
}

TEST(Systems, R2_3_AverageMaximumAndCumulativeMaximumOfTheDocument) {
  const json overload = WorkedExample(2).overload({});
  EXPECT_NEAR(overload.at("avg").get<double>(), 1.515625, kNear);
  EXPECT_NEAR(overload.at("max").get<double>(), 2.5, kNear);
  EXPECT_NEAR(overload.at("max_cum").get<double>(), 1.875, kNear);  // F(m0) B(m0) F(m1) B(m1)
  // The first of two stages runs F(m0) F(m1) B(m0) B(m1).
  const json two = WorkedExample(4).overload({"--pp", "2"});
  EXPECT_NEAR(two.at("stages").at(0).at("avg").get<double>(), 1.515625, kNear);
  EXPECT_NEAR(two.at("max").get<double>(), 2.5, kNear);
  EXPECT_NEAR(two.at("max_cum").get<double>(), 1.625, kNear);
  EXPECT_THAT(metric(two, "moe/max_cum_overload_factor"),
              ElementsAre(DoubleNear(1.625, kNear), DoubleNear(1.625, kNear)));
}

TEST(Systems, R2_3_OfARecording) {
  for (const std::string& recording : {scaling(), realistic()}) {
    std::vector<std::string> words{"replay", recording, "--draws", "0"};
    if (recording == scaling()) words.insert(words.end(), {"--microbatches", "8"});
    const json result = parsed(words);
    const json& overload = result.at("overload");
    // The rows that `trace info` shows: one routing for all layers and microbatches.
    std::vector<double> received;
    double sent = 0;
    const json info = parsed({"trace", "info", recording});
    for (const json& rank : info.at("rows"))
      if (received.size() < 4) received.push_back(rank.at("received_rows")), sent = rank.at("sent_rows");
    const double most = *std::max_element(received.begin(), received.end()) / sent;
    EXPECT_GT(most, 1.1);
    for (const char* metric : {"avg", "max", "max_cum"})
      EXPECT_NEAR(overload.at(metric).get<double>(), most, 1e-6) << metric << ' ' << recording;
    EXPECT_EQ(overload.at("entries"), 8 * result.at("microbatches").get<int>());
    EXPECT_EQ(overload.at("replicas"), 2);
    EXPECT_EQ(overload.at("metrics").at("moe/avg_overload_factor").size(), 2);
  }
}

TEST(Systems, R2_4_TheMeanIsNotReducedOverStagesAndThoseWithoutExpertsLogZero) {
  const json overload = WorkedExample(4, 2).overload({"--pp", "2"});
  EXPECT_THAT(metric(overload, "moe/avg_overload_factor"),
              ElementsAre(DoubleNear(0, kNear), DoubleNear(1.515625, kNear)));
  EXPECT_THAT(metric(overload, "moe/max_overload_factor"),
              ElementsAre(DoubleNear(2.5, kNear), DoubleNear(2.5, kNear)));
}

// The worked example: the largest factor is 2.5 of 16 rows, the largest cumulated one 1.875 of 2 layers
// of 16. A row is 64 columns of bf16; what is kept of it is the row, an fp32 probability, gate, up and their
// product of 128 columns.
TEST(Systems, R2_5_BuffersOfTheWorkedExample) {
  const json buffers = WorkedExample(2).overload({}).at("buffers");
  EXPECT_NEAR(buffers.at("forward_rows").get<double>(), 40, 1e-6);
  EXPECT_NEAR(buffers.at("forward_bytes").get<double>(), 40 * 64 * 2, 1e-3);
  EXPECT_NEAR(buffers.at("retained_rows").get<double>(), 60, 1e-6);
  EXPECT_NEAR(buffers.at("retained_bytes").get<double>(), 60 * (64 * 2 + 4 + 3 * 128 * 2), 1e-2);
}

TEST(Systems, R2_5_BuffersAndKeptActivationsFollowFromTheFactors) {
  const std::vector<std::string> layer{"compare", "--model", "mixtral-8x7b", "--ep",     "8",
                                       "--draws", "0",       "--routing",    "zipf:1.2", "--dispatcher",
                                       "alltoall"};
  const json one = first_answer(layer);
  const json& buffers = one.at("overload").at("buffers");
  const auto rows = one.at("rows_per_rank").get<std::vector<double>>();
  const auto saved = one.at("saved_bytes_per_rank").get<std::vector<double>>();
  const auto most = static_cast<std::size_t>(std::max_element(rows.begin(), rows.end()) - rows.begin());
  EXPECT_NEAR(buffers.at("forward_rows").get<double>(), rows[most], 1e-3);
  EXPECT_NEAR(buffers.at("forward_bytes").get<double>(), rows[most] * 4096 * 2, 10);
  EXPECT_NEAR(buffers.at("retained_rows").get<double>(), rows[most], 1e-3);
  // A row keeps itself, its fp32 probability, gate and up and their product, in bf16: 4096 and 3 x 14336
  // columns.
  EXPECT_NEAR(buffers.at("retained_bytes").get<double>() / rows[most], 4096 * 2 + 4 + 3 * 14336 * 2, 1e-3);
  // Kept bytes of every rank are its rows times what a row keeps, and what no row changes.
  const double each = buffers.at("retained_bytes").get<double>() / rows[most];
  for (std::size_t r = 0; r < rows.size(); ++r)
    EXPECT_NEAR(saved[r] - each * rows[r], saved[most] - each * rows[most], 1e-6 * saved[most]) << r;
  // The step's memory grows by what the cumulated overload says, where every layer routes alike.
  const auto step = [&](const char* routing) {
    return first_answer({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--pp", "2", "--microbatches",
                         "4", "--cluster", "dgx-h100x2", "--scope", "step", "--draws", "0", "--routing",
                         routing, "--dispatcher", "alltoall"});
  };
  const json skewed = step("zipf:1.2:shared"), even = step("balanced");
  const auto retained = [](const json& a) {
    return a.at("overload").at("buffers").at("retained_bytes").get<double>();
  };
  const double per_row =
      retained(skewed) / skewed.at("overload").at("buffers").at("retained_rows").get<double>();
  const double grown = per_row * (skewed.at("overload").at("buffers").at("retained_rows").get<double>() -
                                  even.at("overload").at("buffers").at("retained_rows").get<double>());
  const double activations = skewed.at("memory").at("activations_bytes").get<double>() -
                             even.at("memory").at("activations_bytes").get<double>();
  EXPECT_GT(grown, 0);
  EXPECT_NEAR(activations / grown, 1, 1e-3);
}

// Full recomputation runs the hook of forward twice for each of backward.
TEST(Systems, R2_5_TheCumulativeFactorIsNotValidUnderRecomputation) {
  const WorkedExample example(2);
  const json again = example.overload({"--recompute", "moe"});
  EXPECT_TRUE(again.at("metrics").at("moe/max_cum_overload_factor").at(0).is_null());
  EXPECT_EQ(again.at("invalid").at("moe/max_cum_overload_factor"),
            "the MoE layer is computed again in backward");
  EXPECT_NEAR(metric(again, "moe/max_overload_factor")[0], 2.5, kNear);
  EXPECT_FALSE(example.overload({"--recompute", "core_attn"}).contains("invalid"));
}

// A job of 2 tensor by 2 expert ranks: each expert rank's rows come from 4 ranks and are computed by both of
// its members, so that perfect balance is 2. All dispatchers in the place of the recorded one say the same.
TEST(Systems, R2_3_OfARecordingUnderTensorParallelism) {
  const TempFolder folder;
  ASSERT_EQ(run_moesim({"trace", "synthesize", "--out", folder / "made", "--tp", "2", "--ep", "2", "--dp",
                        "2", "--pp", "1", "--seq", "512", "--layers", "2", "--routing", "zipf:1.2"})
                .exit_code,
            0);
  const std::string recording = (folder / "made") + "/pp1_tp2_ep2_expn8_dp2_nl2_hs4096_sl512/scaling";
  const json info = parsed({"trace", "info", recording});
  std::vector<double> received;  // over the exchange, whose rows are those of both members
  for (const json& rank : info.at("rows")) received.push_back(rank.at("received_rows"));
  ASSERT_GE(received.size(), 2u);
  const auto [least, most] = std::minmax_element(received.begin(), received.end());
  const double expected = *most / ((*least + *most) / 4);
  EXPECT_GT(expected, 2.05);
  for (const char* dispatcher : {"as-recorded", "alltoall", "allgather-legacy", "alltoall-legacy"}) {
    const json overload =
        parsed({"replay", recording, "--draws", "0", "--microbatches", "2", "--model", "mixtral-8x7b",
                "--quiet", "--routing", "as-recorded", "--dispatcher", dispatcher})
            .at("overload");
    ASSERT_TRUE(overload.is_object()) << dispatcher;
    for (const char* name : {"avg", "max", "max_cum"})
      EXPECT_NEAR(overload.at(name).get<double>(), expected, 1e-3 * expected) << dispatcher << ' ' << name;
  }
}

TEST(Systems, R2_6_AllReducesOfAReportAndFusedOnes) {
  const auto told = [](const WorkedExample& example, std::vector<std::string> more, const char* report) {
    more.insert(more.end(), {"--overload-report", report});
    return first_answer(example.ask(more));
  };
  const WorkedExample one(2), two(4);
  const json none = first_answer(one.ask({}));
  const json six = told(one, {}, "sequential"), seven = told(two, {"--pp", "2"}, "sequential"),
             fused = told(two, {"--pp", "2"}, "fused");
  EXPECT_EQ(six.at("overload").at("report").at("all_reduces"), 6);
  EXPECT_EQ(seven.at("overload").at("report").at("all_reduces"), 7);
  EXPECT_EQ(fused.at("overload").at("report").at("all_reduces"), 3);
  const double us = six.at("overload").at("report").at("time_us");
  EXPECT_GT(us, 0);
  EXPECT_NEAR(six.at("time_us").at("value").get<double>() - none.at("time_us").at("value").get<double>(), us,
              1e-6);
  EXPECT_LT(fused.at("overload").at("report").at("time_us").get<double>(),
            seven.at("overload").at("report").at("time_us").get<double>());
}

TEST(Systems, R2_7_GraphReplaysSkipTheHooks) {
  const WorkedExample example(2);
  const auto told = [&](const std::vector<std::string>& more) {
    return example.overload(with({"--launch", "graphs"}, more));
  };
  const json deferred = told({});
  EXPECT_EQ(deferred.at("recorded_entries"), 4);
  EXPECT_NEAR(deferred.at("metrics").at("moe/max_overload_factor").at(0).get<double>(), 2.5, kNear);
  const json direct = told({"--overload-recorder", "direct-clear"});
  EXPECT_EQ(direct.at("recorded_entries"), 0);
  EXPECT_EQ(direct.at("metrics").at("moe/max_overload_factor").at(0), 0);
  EXPECT_NEAR(direct.at("max").get<double>(), 2.5, kNear);  // the imbalance is there all the same
  EXPECT_EQ(told({"--overload-recorder", "journal"}).at("recorded_entries"), 4);
  const Outcome refused = run_moesim(example.ask({"--overload-recorder", "journal"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("expected graphs"));
}

TEST(Systems, R2_7_TheJournalHolds65536Events) {
  // Two layers and 20,000 microbatches: a forward and a backward each of 40,000 entries.
  const TempFolder folder;
  folder.write("model.json", R"({"hidden_size": 64, "moe_intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 128})");
  const json overload = first_answer({"compare",
                                      "--model",
                                      folder / "model.json",
                                      "--cluster",
                                      "dgx-h100x1",
                                      "--ep",
                                      "8",
                                      "--scope",
                                      "step",
                                      "--microbatches",
                                      "20000",
                                      "--draws",
                                      "0",
                                      "--routing",
                                      "balanced",
                                      "--dispatcher",
                                      "alltoall",
                                      "--launch",
                                      "graphs",
                                      "--overload-recorder",
                                      "journal"})
                            .at("overload");
  EXPECT_EQ(overload.at("entries"), 40000);
  EXPECT_EQ(overload.at("recorded_entries"), 32768);
}

TEST(Systems, R2_8_TheTimelineIsThatOfTheSchedule) {
  // Interleaved: stage 0 holds layers 0 and 2 and runs all four forwards first, stage 1 holds 1 and 3 and two
  // microbatches of layer 1 beside one of layer 3: (16 + 40 + 16) / 48.
  const WorkedExample example(4);
  EXPECT_NEAR(example.overload({"--pp", "2", "--vpp", "2"}).at("max_cum").get<double>(), 1.5, kNear);
  EXPECT_NEAR(example.overload({"--pp", "2"}).at("max_cum").get<double>(), 1.625, kNear);
  // Groups of four microbatches go through four stages. Where forward and backward overlap, the last two of six
  // would wait for their own backward; else they do not.
  const std::vector<std::string> six{
      "compare", "--model",      "olmoe",    "--cluster", "dgx-h100x1", "--scope", "step", "--pp",
      "4",       "--vpp",        "2",        "--ep",      "2",          "--seq",   "512",  "--microbatches",
      "6",       "--dispatcher", "alltoall", "--draws",   "0"};
  EXPECT_EQ(run_moesim(six).exit_code, 0);
  const Outcome rest = run_moesim(with(six, {"--overlap", "expert-communication"}));
  EXPECT_EQ(rest.exit_code, 2);
  EXPECT_THAT(rest.err, HasSubstr("found 6 microbatches with pp 4 and vpp 2, expected a multiple of pp"));
}

}  // namespace
}  // namespace moesim::systems
