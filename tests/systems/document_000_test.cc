// Document 000, the AllGather dispatcher and scaling mode: rows 0.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::systems {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using tools::testing::Outcome;
using tools::testing::parsed;
using tools::testing::read_text;
using tools::testing::run_moesim;
using tools::testing::TempFolder;
using tools::testing::with;

const std::string kHost = std::string(MOESIM_SOURCE_DIR) + "/traces/samples/host/";
constexpr const char* kJob = "pp1_tp1_exp4_expn8_dp4_nl2_hs256_sl256";

std::string host(const std::string& dispatcher, const std::string& side) {
  return kHost + dispatcher + "-zipf1.2/" + kJob + "/" + side;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The AllGather recording that ships, its text changed; the folder's name tells the job's sizes.
std::string changed(const TempFolder& folder, const std::function<void(std::string&)>& change,
                    const std::string& side = "scaling") {
  const fs::path made = folder.path() / kJob / side;
  fs::create_directories(made);
  for (const auto& file : fs::directory_iterator(host("allgather", side))) {
    std::string text = read_text(file.path());
    change(text);
    folder.write(std::string(kJob) + "/" + side + "/" + file.path().filename().string(), text);
  }
  return made.string();
}

// As section 2 of the document decorates the calls.
void decorate(std::string& text) {
  replace_all(text, "_reduce_scatter_along_first_dim_moe",
              "reduce_scatter_to_sequence_parallel_region_from_moe");
  replace_all(text, "func_name=gather_rows", "func_name=gather_from_sequence_parallel_region_to_moe");
  replace_all(text, "=_gather_along_first_dim_moe", "=gather_from_sequence_parallel_region_to_moe");
}

std::vector<std::string> replay(const std::string& recording, const std::vector<std::string>& more = {}) {
  return with({"replay", recording, "--microbatches", "4", "--draws", "0"}, more);
}

double milliseconds(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.exit_code == 0 ? json::parse(outcome.out).at("iteration_us").at("value").get<double>() / 1e3
                                : 0;
}

double replayed_ms(const std::string& recording, const std::vector<std::string>& more = {}) {
  return milliseconds(run_moesim(with(replay(recording, more), {"--format", "json"})));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

TEST(Systems, R0_9_CallsAsTheDocumentDecoratesThemAreCallsOfTheDispatcher) {
  const TempFolder folder;
  const std::string decorated = changed(folder, decorate);
  EXPECT_NEAR(replayed_ms(decorated), 440, 1);
  EXPECT_EQ(replayed_ms(decorated), replayed_ms(host("allgather", "scaling")));
  EXPECT_THAT(run_moesim({"trace", "info", decorated}).out, HasSubstr("dispatcher    allgather, "));
  // Another dispatcher takes their place, which needs to know where every layer's calls are.
  const std::vector<std::string> other{
      "--dispatcher", "alltoall",
      "--routing",    kHost + "allgather-zipf1.2/" + kJob + "/dispatching.json",
      "--model",      kHost + "model.json"};
  EXPECT_EQ(replayed_ms(decorated, other), replayed_ms(host("allgather", "scaling"), other));
  // The function's own name is nothing to go by.
  const TempFolder elsewhere;
  const std::string renamed = changed(elsewhere, [](std::string& text) {
    replace_all(text, "_reduce_scatter_along_first_dim_moe", "combine");
    replace_all(text, "func_name=gather_rows", "func_name=tokens");
    replace_all(text, "=_gather_along_first_dim_moe", "=collect");
  });
  EXPECT_EQ(replayed_ms(renamed), replayed_ms(host("allgather", "scaling")));
}

TEST(Systems, R0_9_CallsWithoutARoleAreCountedInTheFirstLine) {
  const TempFolder folder;
  const std::string unknown = changed(folder, [](std::string& text) {
    replace_all(text, "_reduce_scatter_along_first_dim_moe", "combine");
    replace_all(text, ",group=exp,comm_func=reduce_scatter", ",group=pp,comm_func=reduce_scatter");
  });
  // 4 ranks x 2 layers x (1 forward); a scaling recording of this recorder has the backward ones too.
  const json info = json::parse(run_moesim({"trace", "info", unknown, "--format", "json"}).out);
  const int count = info.at("calls_without_role").get<int>();
  EXPECT_EQ(count, 4 * 2 * (1 + 2));
  const std::string said =
      "warning: " + std::to_string(count) + " communication calls cannot be given a role: ";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"trace", "info", unknown},
        std::vector<std::string>{"trace", "check", unknown}, replay(unknown)}) {
    const Outcome outcome = run_moesim(words);
    EXPECT_THAT(outcome.out, StartsWith(said)) << words[0] << ' ' << words[1] << outcome.err;
    EXPECT_THAT(first_line(outcome.out), HasSubstr("combine, reduce_scatter over pp"));
  }
  const json result = json::parse(run_moesim(with(replay(unknown), {"--format", "json"})).out);
  EXPECT_THAT(result.at("warnings").at(0).get<std::string>(), HasSubstr("cannot be given a role"));
}

// The routing of docs/spec.md 6.3, example 1, as the document's recorder holds it: what the experts of every
// EP rank receive.
constexpr const char* kRecorded = R"("per_rank_dispatching_results": {
  "0": {"tokens_per_local_expert": [19, 11]}, "1": {"tokens_per_local_expert": [9, 5]},
  "2": {"tokens_per_local_expert": [6, 5]}, "3": {"tokens_per_local_expert": [5, 4]}})";
const std::vector<std::string> kAsk{"compare",
                                    "--model",
                                    "mixtral-8x7b",
                                    "--cluster",
                                    "dgx-h100x1",
                                    "--ep",
                                    "4",
                                    "--draws",
                                    "0",
                                    "--dispatcher",
                                    "alltoall,allgather-legacy"};

const json& answer_of(const json& result, const std::string& dispatcher) {
  for (const json& one : result.at("scenarios"))
    if (one.at("dispatcher") == dispatcher) return one;
  ADD_FAILURE() << "no " << dispatcher;
  return result;
}

TEST(Systems, R0_5_PerRankDispatchingResultsAsTheDocumentHasThem) {
  const TempFolder folder;
  folder.write("config.json", std::string(R"({"is_scaling_mode": true, "fake_tp": 1, "exp_rank": 0,
    "pipeline_model_parallel_size": 1, "tensor_model_parallel_size": 1, "expert_model_parallel_size": 4,
    "num_moe_experts": 8, "moe_router_topk": 2, "moe_grouped_gemm": true,
    "moe_token_dispatcher_type": "allgather", )") +
                                  kRecorded + "}");
  folder.write("bare.json", "{" + std::string(kRecorded) + "}");
  for (const std::string scope : {"layer", "step"})
    for (const std::string file : {"config.json", "bare.json"}) {
      const Outcome outcome = run_moesim(
          with(kAsk, {"--scope", scope, "--routing", folder / file, "--format", "json", "--quiet"}));
      ASSERT_EQ(outcome.exit_code, 0) << scope << ' ' << file << outcome.err;
      const json result = json::parse(outcome.out);
      // Rows received 30, 14, 11, 9 of 64: the busiest has 1.875 times its share, under both dispatchers.
      for (const char* dispatcher : {"alltoall", "allgather-legacy"})
        EXPECT_NEAR(answer_of(result, dispatcher).at("overload").at("max").get<double>(), 1.875, 1e-6)
            << scope << ' ' << file;
    }
  // A result of another kind of run, and what is sent in the place of what is received.
  folder.write("off.json", R"({"is_scaling_mode": false, )" + std::string(kRecorded) + "}");
  const Outcome off = run_moesim(with(kAsk, {"--routing", folder / "off.json"}));
  EXPECT_EQ(off.exit_code, 2);
  EXPECT_THAT(off.err, HasSubstr("found is_scaling_mode false, expected true"));
}

TEST(Systems, R0_5_PerLayerAndMicrobatch) {
  const TempFolder folder;
  const std::string other = R"("per_rank_dispatching_results": {
    "0": {"tokens_per_local_expert": [8, 8]}, "1": {"tokens_per_local_expert": [8, 8]},
    "2": {"tokens_per_local_expert": [8, 8]}, "3": {"tokens_per_local_expert": [8, 8]}})";
  folder.write("layers.json", R"({"ep": 4, "experts": 8, "tables": [{"layer": 0, )" + std::string(kRecorded) +
                                  R"(}, {"layer": 1, )" + other + R"(}]})");
  folder.write("microbatches.json", R"({"ep": 4, "experts": 8, "tables": [{"microbatch": 0, )" +
                                        std::string(kRecorded) + R"(}, {"microbatch": 1, )" + other +
                                        R"(}]})");
  for (const char* file : {"layers.json", "microbatches.json"}) {
    const Outcome outcome = run_moesim(with(kAsk, {"--scope", "step", "--microbatches", "2", "--routing",
                                                   folder / file, "--format", "json", "--quiet"}));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const json overload = answer_of(json::parse(outcome.out), "alltoall").at("overload");
    EXPECT_NEAR(overload.at("max").get<double>(), 1.875, 1e-6) << file;
    EXPECT_NEAR(overload.at("avg").get<double>(), (1.875 + 1) / 2, 1e-6) << file;
  }
}

TEST(Systems, R0_6_ARankWithoutAnEntryGetsAHistogramThatIsNotRepresentative) {
  const TempFolder folder;
  // The imitated rank's own choices (rank 0 of the example), gathered from all ranks: 4 times [1 1] for
  // rank 3.
  folder.write("own.json", R"({"is_scaling_mode": true, "exp_rank": 0, "num_moe_experts": 8,
    "expert_model_parallel_size": 4, "per_rank_dispatching_results": {
    "0": {"num_local_tokens_per_expert": [5, 3, 2, 2, 1, 1, 1, 1], "tokens_per_local_expert": [19, 11]},
    "1": {"tokens_per_local_expert": [9, 5]}, "2": {"tokens_per_local_expert": [6, 5]}}})");
  const Outcome outcome = run_moesim(with(kAsk, {"--routing", folder / "own.json", "--format", "json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_THAT(result.at("warnings").dump(),
              HasSubstr("no dispatching results of EP rank 3: a histogram of one "
                        "rank's own choices is taken; routing not representative"));
  // 30 of 30 + 14 + 11 + 8 rows.
  EXPECT_NEAR(answer_of(result, "alltoall").at("overload").at("max").get<double>(), 30.0 / (64.0 / 4), 0.02);
  // Nobody's choices are known.
  folder.write("none.json", R"({"num_moe_experts": 8, "expert_model_parallel_size": 4,
    "per_rank_dispatching_results": {"0": {"tokens_per_local_expert": [16, 16]}, "1": {"tokens_per_local_expert": [16, 16]}}})");
  const Outcome mean = run_moesim(with(kAsk, {"--routing", folder / "none.json"}));
  EXPECT_EQ(mean.exit_code, 0) << mean.err;
  EXPECT_THAT(mean.out + mean.err, HasSubstr("EP ranks 2, 3: the mean of the other ranks' experts is taken"));
  // In a replay too.
  const Outcome replayed = run_moesim(replay(
      host("alltoall", "scaling"), {"--model", kHost + "model.json", "--routing", folder / "replay.json"}));
  EXPECT_EQ(replayed.exit_code, 2);
  folder.write("replay.json", R"({"is_scaling_mode": true, "exp_rank": 1, "num_moe_experts": 8,
    "expert_model_parallel_size": 4, "per_rank_dispatching_results": {
    "1": {"num_local_tokens_per_expert": [64, 64, 64, 64, 64, 64, 64, 64], "tokens_per_local_expert": [256, 256]}}})");
  const Outcome told = run_moesim(replay(
      host("alltoall", "scaling"), {"--model", kHost + "model.json", "--routing", folder / "replay.json"}));
  EXPECT_EQ(told.exit_code, 0) << told.err;
  EXPECT_THAT(told.out + told.err, HasSubstr("not representative"));
}

}  // namespace
}  // namespace moesim::systems
