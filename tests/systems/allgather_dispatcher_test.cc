// Document 000, the AllGather dispatcher and scaling mode: rows 0.x of docs/systems.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/report_template.h"

namespace moesim::systems {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
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

// Decorates the calls as section 2 of the document does.
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
  // For each of 4 microbatches and 2 layers a rank makes in forward the gathers of indices, probabilities and
  // rows and a reduce-scatter; in backward the gather of the reduce-scatter's gradient and the
  // reduce-scatters of those of rows and probabilities. The first gather sends 256 x 2 int64 to 3 others.
  const std::string timeline = folder / "timeline.json";
  ASSERT_EQ(run_moesim(replay(decorated, {"--timeline", timeline})).exit_code, 0);
  const json events = json::parse(read_text(timeline)).at("traceEvents");
  int gathers = 0, reductions = 0;
  double first_us = 0, first_rate = 0;
  for (const json& event : events) {
    if (event.at("pid") != 1) continue;  // rank 0
    const std::string name = event.value("name", "");
    if (event.at("ph") == "X" && name == "all_gather tp-ep" && gathers++ == 0) first_us = event.at("dur");
    reductions += event.at("ph") == "X" && name == "reduce_scatter tp-ep";
    if (event.at("ph") == "C" && name == "sending [GB/s]" && first_rate == 0)
      first_rate = event.at("args").at("value");
  }
  EXPECT_EQ(gathers, 4 * 2 * (3 + 1));
  EXPECT_EQ(reductions, 4 * 2 * (1 + 2));
  EXPECT_NEAR(first_rate * first_us * 1e3, 3 * 256 * 2 * 8, 1);
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
  // The choices are unknown.
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

// The sizes of docs/spec.md 6.3: T 8, H 16, F 32, E 8, K 2, EP 4.
class Small {
 public:
  Small() {
    folder_.write("model.json", R"({"hidden_size": 16, "moe_intermediate_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "vocab_size": 64})");
    folder_.write("routing.json", "{" + std::string(kRecorded) + "}");
  }
  json ask(const std::string& dispatcher, const std::vector<std::string>& more = {}) const {
    const Outcome outcome =
        run_moesim(with({"compare", "--model", folder_ / "model.json", "--cluster", "dgx-h100x1", "--seq",
                         "8", "--draws", "0", "--format", "json", "--quiet", "--dispatcher", dispatcher},
                        more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? json::parse(outcome.out) : json();
  }
  json one(const std::string& dispatcher, const std::vector<std::string>& more = {}) const {
    return ask(dispatcher, more).at("scenarios").at(0);
  }
  std::string routing() const { return folder_ / "routing.json"; }

 private:
  TempFolder folder_;
};

// "forward all_gather indices int64 128->512" of every message.
std::vector<std::string> messages_of(const json& answer) {
  std::vector<std::string> out;
  for (const json& m : answer.at("messages"))
    out.push_back(m.at("pass").get<std::string>() + " " + m.at("op").get<std::string>() + " " +
                  m.at("what").get<std::string>() + " " + m.at("dtype").get<std::string>() + " " +
                  m.at("in_bytes").at(0).dump() + "->" + m.at("out_bytes").at(0).dump());
  return out;
}

bool has_operation(const json& answer, const std::string& pass, const std::string& what) {
  for (const json& op : answer.at("operations"))
    if (op.at("pass") == pass && op.at("what") == what && op.at("time_us").get<double>() > 0) return true;
  return false;
}

TEST(Systems, R0_1_BothDispatchersUnderOneRouting) {
  const Small small;
  const json result = small.ask("allgather-legacy,alltoall", {"--ep", "4", "--routing", small.routing()});
  const json &gather = answer_of(result, "allgather-legacy"), &exchange = answer_of(result, "alltoall");
  EXPECT_EQ(gather.at("rows_per_rank"), exchange.at("rows_per_rank"));
  EXPECT_EQ(gather.at("rows_per_rank"), (json{30, 14, 11, 9}));
  EXPECT_NE(gather.at("tx_bytes_per_rank").at("max"), exchange.at("tx_bytes_per_rank").at("max"));
}

// The order is known without draws, its probability is not.
TEST(Systems, R0_1_WithoutDrawsACrossoverIsSureOfNothing) {
  const std::vector<std::string> ask{
      "whatif", "--model", "mixtral-8x7b", "--cluster",          "dgx-h100x1",  "--ep",
      "8",      "--quiet", "--between",    "allgather,alltoall", "--crossover", "topk=7..8"};
  const Outcome nominal = run_moesim(with(ask, {"--draws", "0"}));
  EXPECT_EQ(nominal.exit_code, 0) << nominal.err;
  EXPECT_THAT(nominal.out, Not(HasSubstr("robability")));
  const json result = parsed(with(ask, {"--draws", "0"}));
  for (const json& point : result.at("points")) EXPECT_TRUE(point.at("probability").is_null());
  for (const json& crossing : result.at("crossovers")) EXPECT_TRUE(crossing.at("sure").is_null());
  EXPECT_THAT(run_moesim(with(ask, {"--draws", "8"})).out, HasSubstr("probability"));
}

TEST(Systems, R0_2_HiddenIndicesProbabilitiesAndTheirReduceScatter) {
  const Small small;
  EXPECT_THAT(
      messages_of(small.one("allgather-legacy", {"--ep", "4", "--detail", "messages", "--inference"})),
      ElementsAre(
          "forward all_gather hidden states bf16 256->1024", "forward all_gather indices int64 128->512",
          "forward all_gather probabilities fp32 64->256", "forward reduce_scatter output bf16 1024->256"));
  EXPECT_THAT(messages_of(small.one("allgather-legacy",
                                    {"--ep", "4", "--detail", "messages", "--inference", "--topk", "1"})),
              ElementsAre("forward all_gather hidden states bf16 256->1024",
                          "forward all_gather indices int64 64->256",
                          "forward reduce_scatter output bf16 1024->256"));
}

TEST(Systems, R0_3_NoCommunicationWithoutTensorOrExpertParallelism) {
  const Small small;
  EXPECT_TRUE(messages_of(small.one("allgather-legacy", {"--ep", "1", "--detail", "messages"})).empty());
  EXPECT_FALSE(messages_of(small.one("allgather-legacy",
                                     {"--ep", "1", "--etp", "2", "--tp", "2", "--detail", "messages"}))
                   .empty());
  // Tensor parallelism is enough: 4 tokens on each of 2 ranks, 8 bytes for each of two indices. Experts are
  // split as the rest is, unless --etp says otherwise, which this dispatcher has no group for.
  EXPECT_THAT(
      messages_of(
          small.one("allgather-legacy", {"--ep", "1", "--tp", "2", "--inference", "--detail", "messages"})),
      ElementsAre("forward all_gather hidden states bf16 128->256",
                  "forward all_gather indices int64 64->128", "forward all_gather probabilities fp32 32->64",
                  "forward reduce_scatter output bf16 256->128"));
  const json both =
      small.one("allgather-legacy", {"--ep", "2", "--tp", "2", "--inference", "--detail", "messages"});
  EXPECT_EQ(messages_of(both).front(),
            "forward all_gather hidden states bf16 128->512");  // TP x EP = 4 ranks
  EXPECT_EQ(both.at("messages").at(0).at("in_bytes").size(), 4);
}

TEST(Systems, R0_4_ScalingModeSettings) {
  const Small small;
  const TempFolder folder;
  // A group of fake_tp x EP ranks: what experts received came from all of them.
  folder.write("tp2.json", R"({"config": {"is_scaling_mode": true, "fake_tp": 2, "exp_rank": 3}, )" +
                               std::string(kRecorded) + "}");
  const json one = small.one("allgather-legacy",
                             {"--ep", "4", "--tp", "2", "--etp", "2", "--routing", folder / "tp2.json"});
  EXPECT_EQ(one.at("rows_per_rank"), (json{30, 30, 14, 14, 11, 11, 9, 9}));
  EXPECT_EQ(one.at("tokens"), 32);  // 64 rows of top-2
  const std::vector<std::string> ask{"compare", "--model", "mixtral-8x7b", "--ep", "4", "--draws", "0"};
  const Outcome other = run_moesim(with(ask, {"--routing", folder / "tp2.json"}));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("fake_tp 2"));
  folder.write("rank.json", R"({"exp_rank": 4, )" + std::string(kRecorded) + "}");
  const Outcome rank = run_moesim(with(ask, {"--routing", folder / "rank.json"}));
  EXPECT_EQ(rank.exit_code, 2);
  EXPECT_THAT(rank.err, HasSubstr("found exp_rank 4, expected an EP rank below 4"));
}

TEST(Systems, R0_4_TensorParallelismInSynthesizedAndReplayedJobs) {
  const TempFolder folder;
  const Outcome made = run_moesim({"trace", "synthesize", "--out", folder / "made", "--tp", "2", "--ep", "4",
                                   "--dp", "4", "--pp", "2", "--seq", "512", "--layers", "4"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const std::string job = (folder / "made") + "/pp2_tp2_ep4_expn8_dp4_nl4_hs4096_sl512/";
  for (const std::string side : {"scaling", "realistic"}) {
    const std::string recording = job + side;
    EXPECT_EQ(run_moesim({"trace", "check", recording}).exit_code, 0) << side;
    std::vector<std::string> words{"replay", recording, "--draws", "0",           "--format",
                                   "json",   "--quiet", "--model", "mixtral-8x7b"};
    if (side == "scaling") words.insert(words.end(), {"--microbatches", "4"});
    const double recorded = milliseconds(run_moesim(words));
    EXPECT_NEAR(milliseconds(run_moesim(with(words, {"--dispatcher", "alltoall-legacy"}))) / recorded, 1,
                1e-6)
        << side;
    for (const char* dispatcher : {"allgather-legacy", "alltoall"}) {
      const double other = milliseconds(run_moesim(with(words, {"--dispatcher", dispatcher})));
      EXPECT_GT(other, 0.3 * recorded) << dispatcher << ' ' << side;
      EXPECT_LT(other, 3 * recorded) << dispatcher << ' ' << side;
      EXPECT_NE(other, recorded) << dispatcher << ' ' << side;
    }
    const Outcome sizes = run_moesim(with(words, {"--ep", "2"}));
    EXPECT_EQ(sizes.exit_code, 2) << side;
  }
}

// In every layer of every microbatch (2 x 4), attention makes a gather and a reduction over TP in forward and in
// backward. A recorded AlltoAll adds, in forward, the gathers of scores and choices, the gather and the reduction
// of columns, and an exchange of columns before and after; in backward the same without the router's gathers, and
// with a reduction of the scores' gradient. AllGather makes three gathers and a reduction over TP x EP in forward,
// one gather and two reductions in backward.
TEST(Systems, R0_4_AnotherDispatcherUnderTensorParallelAttention) {
  const TempFolder folder;
  const int passes = 4 * 2;
  const std::map<std::string, int> no_router{{"all_gather tp", passes * 4}, {"reduce_scatter tp", passes * 4},
                                             {"all_to_all tp", passes * 4}, {"all_gather tp-ep", 0},
                                             {"reduce_scatter tp-ep", 0},   {"all_to_all ep", passes * 4}};
  std::map<std::string, int> alltoall = no_router;
  alltoall["all_gather tp"] += passes * 2;
  alltoall["reduce_scatter tp"] += passes;
  const std::map<std::string, int> allgather{
      {"all_gather tp", passes * 2},    {"reduce_scatter tp", passes * 2},    {"all_to_all tp", 0},
      {"all_gather tp-ep", passes * 4}, {"reduce_scatter tp-ep", passes * 3}, {"all_to_all ep", 0}};
  struct Case {
    const char *recorded, *dispatcher;
    const std::map<std::string, int>& expected;
  };
  for (const Case& at :
       {Case{"alltoall", "alltoall-legacy", alltoall}, Case{"alltoall", "allgather-legacy", allgather},
        Case{"allgather", "allgather-legacy", allgather}, Case{"allgather", "alltoall-legacy", no_router}}) {
    const std::string job = kHost + at.recorded + "-tp2/pp1_tp2_exp2_expn8_dp2_nl2_hs256_sl256/",
                      file = folder / "timeline.json";
    const Outcome outcome =
        run_moesim({"replay", job + "scaling", "--cluster", "dgx-h100x1", "--model", kHost + "model.json",
                    "--microbatches", "4", "--draws", "0", "--dispatcher", at.dispatcher, "--timeline", file,
                    "--format", "json", "--quiet"});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    std::map<std::string, int> made;
    for (const auto& [name, count] : at.expected) made[name] = 0;
    const json events = json::parse(read_text(file)).at("traceEvents");
    for (const json& event : events)
      if (event.at("pid") == 1 && event.at("ph") == "X" && made.contains(event.value("name", "")))
        ++made[event.value("name", "")];
    EXPECT_EQ(made, at.expected) << at.dispatcher << " in place of " << at.recorded;
    // The planned routing sends 795 of 1,024 rows to the first of two expert ranks; all 4 ranks send alike.
    EXPECT_NEAR(json::parse(outcome.out).at("overload").at("max").get<double>(), 795.0 / (1024 / 4), 1e-6)
        << at.dispatcher << " in place of " << at.recorded;
  }
  const std::string recording = kHost + "alltoall-tp2/pp1_tp2_exp2_expn8_dp2_nl2_hs256_sl256/scaling";
  EXPECT_THAT(run_moesim({"trace", "info", recording}).out, HasSubstr("received by EP rank: 795, 229"));
}

TEST(Systems, R0_5_PerLayerAndMicrobatchInReplays) {
  // 512 rows a rank: the example's 30, 14, 11, 9 times 32, and an even routing.
  const std::string skewed = R"("per_rank_dispatching_results": {
    "0": {"tokens_per_local_expert": [480, 480]}, "1": {"tokens_per_local_expert": [224, 224]},
    "2": {"tokens_per_local_expert": [176, 176]}, "3": {"tokens_per_local_expert": [144, 144]}})";
  std::string even = skewed;
  for (const char* rows : {"480, 480", "224, 224", "176, 176", "144, 144"})
    replace_all(even, rows, "256, 256");
  const TempFolder folder;
  folder.write("skewed.json", "{" + skewed + "}");
  folder.write("even.json", "{" + even + "}");
  for (const std::string what : {"layer", "microbatch"})
    folder.write(what + ".json", R"({"ep": 4, "experts": 8, "tables": [{")" + what + R"(": 0, )" + skewed +
                                     R"(}, {")" + what + R"(": 1, )" + even + "}]}");
  for (const char* side : {"scaling", "realistic"}) {
    const auto told = [&](const std::string& file) {
      std::vector<std::string> words{
          "replay",    host("alltoall", side), "--draws",  "0",    "--model", kHost + "model.json",
          "--routing", folder / file,          "--format", "json", "--quiet"};
      if (std::string(side) == "scaling") words.insert(words.end(), {"--microbatches", "4"});
      const Outcome outcome = run_moesim(words);
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return outcome.exit_code == 0 ? json::parse(outcome.out) : json();
    };
    const auto us = [](const json& result) { return result.at("iteration_us").at("value").get<double>(); };
    // A host's measurements need not grow with the rows; a mixture lies between its parts.
    const double skewed_us = us(told("skewed.json")), even_us = us(told("even.json"));
    for (const char* file : {"layer.json", "microbatch.json"}) {
      const json mixed = told(file);
      EXPECT_LT(us(mixed), std::max(skewed_us, even_us)) << side << ' ' << file;
      EXPECT_GT(us(mixed), std::min(skewed_us, even_us)) << side << ' ' << file;
      EXPECT_NEAR(mixed.at("overload").at("avg").get<double>(), (1.875 + 1) / 2, 1e-6) << side << ' ' << file;
      EXPECT_NEAR(mixed.at("overload").at("max").get<double>(), 1.875, 1e-6) << side << ' ' << file;
    }
  }
}

TEST(Systems, R0_7_CountsGoToTheHost) {
  const Small small;
  const json answer = small.one("allgather-legacy", {"--ep", "4", "--detail", "operations"});
  EXPECT_EQ(answer.at("host_syncs").at("forward"), 4);
  bool counts = false;
  for (const json& op : answer.at("operations"))
    counts |= op.at("what") == "rows per expert" && op.at("category") == "host_sync";
  EXPECT_TRUE(counts);
}

TEST(Systems, R0_8_BiasTravelsThereAndBack) {
  const Small small;
  const json plain = small.one("allgather-legacy", {"--ep", "4", "--detail", "messages"});
  const json bias = small.one("allgather-legacy:expert_bias", {"--ep", "4", "--detail", "messages"});
  const std::vector<std::string> all = messages_of(bias);
  EXPECT_EQ(all.size(), messages_of(plain).size() + 2);
  EXPECT_THAT(all, Contains("forward reduce_scatter expert bias bf16 1024->256"));
  EXPECT_THAT(all, Contains("backward all_gather expert bias gradient bf16 256->1024"));
  const json ops = small.one("allgather-legacy:expert_bias", {"--ep", "4", "--detail", "operations"});
  for (const char* kernel : {"unsort bias", "multiply bias", "add bias into all rows", "divide bias by tp"})
    EXPECT_TRUE(has_operation(ops, "forward", kernel)) << kernel;
  EXPECT_TRUE(has_operation(ops, "backward", "sum bias gradient"));
  EXPECT_GT(bias.at("time_us").at("value").get<double>(), plain.at("time_us").at("value").get<double>());
}

TEST(Systems, R0_10_TheFuncParameterTellsWhatACallIs) {
  const TempFolder folder;
  const std::string bare = changed(folder, [](std::string& text) {
    replace_all(text, "input__dtype=torch.float32,group=exp,comm_func=reduce_scatter",
                "input__dtype=torch.float32,func_name=reduce_scatter_to_sequence_parallel_region_from_moe,"
                "group=None,comm_func=reduce_scatter");
    replace_all(text, "func_name=gather_rows,group=exp",
                "func_name=gather_from_sequence_parallel_region_to_moe,group=None");
    replace_all(text, "_reduce_scatter_along_first_dim_moe", "wrapped");
    replace_all(text, "=_gather_along_first_dim_moe", "=wrapped");
  });
  EXPECT_EQ(replayed_ms(bare), replayed_ms(host("allgather", "scaling")));
}

TEST(Systems, R0_11_GathersSaveIndicesAndTheirBackwardAddsIntoZeros) {
  const Small small;
  const json answer = small.one("allgather-legacy", {"--ep", "4", "--detail", "operations"});
  // Both gathers: into the rows sorted by expert and into the local ones.
  for (const char* kernel : {"rows by expert backward", "global to local rows backward"})
    EXPECT_TRUE(has_operation(answer, "backward", kernel)) << kernel;
  // Zeros are rows of their own beside the gradient that comes in: the layer's memory has both.
  const json memory = small.one("allgather-legacy", {"--ep", "4", "--detail", "memory"});
  bool zeros = false;
  for (const json& point : memory.at("memory").at("curve"))
    zeros |= point.at("pass") == "backward" && point.at("what") == "gradient of local rows";
  EXPECT_TRUE(zeros);
}

TEST(Systems, R0_12_OneBufferForAllLayers) {
  const Small small;
  const auto persistent = [&](const char* dispatcher) {
    return small.one(dispatcher, {"--ep", "4"}).at("memory").at("persistent_bytes").get<double>();
  };
  // R x T rows of 16 bf16 elements.
  EXPECT_EQ(persistent("allgather-legacy") - persistent("allgather-legacy:global_buffer=false"), 4 * 8 * 32);
  EXPECT_EQ(persistent("allgather-legacy"), persistent("allgather"));
}

TEST(Systems, R0_13_TheTargetConfiguration) {
  const Outcome outcome = run_moesim({"compare",
                                      "--model",
                                      "mixtral-8x7b",
                                      "--cluster",
                                      "dgx-h100x2",
                                      "--scope",
                                      "step",
                                      "--pp",
                                      "4",
                                      "--tp",
                                      "1",
                                      "--ep",
                                      "4",
                                      "--topk",
                                      "2",
                                      "--microbatches",
                                      "8",
                                      "--draws",
                                      "0",
                                      "--dispatcher",
                                      "allgather-legacy,alltoall",
                                      "--format",
                                      "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("scenarios").size(), 2);
  for (const json& one : result.at("scenarios")) {
    EXPECT_EQ(one.at("overload").at("stages").size(), 4);
    EXPECT_EQ(one.at("overload").at("entries"), 32 * 8);  // layers x microbatches
    // Stage s of four holds 4 - s microbatches before its first backward; each of 8 ranks a stage has 4096
    // tokens.
    const json& stages = one.at("memory").at("stages");
    for (std::size_t s = 0; s < 4; ++s)
      EXPECT_EQ(stages.at(s).at("in_flight"), 4 - s) << one.at("dispatcher");
    EXPECT_EQ(one.at("tokens"), 4096 * 4 * 8);
    // A layer: queries and output 4096 x 4096, keys and values 4096 x 1024, two norms, a router of 8 experts;
    // two experts of three 4096 x 14336 on each rank. The first stage has the embedding.
    const std::int64_t dense = 8 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 4096 + 8 * 4096) + 32000 * 4096;
    std::map<std::string, double> bytes;
    for (const json& cause : stages.at(0).at("causes")) bytes[cause.at("what")] = cause.at("bytes");
    EXPECT_EQ(bytes["dense part/bf16"], 2.0 * static_cast<double>(dense));
    EXPECT_EQ(bytes["experts/bf16"], 2.0 * 8 * 2 * 3 * 4096 * 14336);
    // Sent of a layer and microbatch. AllGather: rows both ways in both passes, indices in int64,
    // probabilities in fp32 and their gradients, to 3 others. AlltoAll: 3 quarters of two rows a token
    // likewise, their probabilities and gradients, and counts of 8 experts to 3 others.
    const bool gathers = one.at("dispatcher") == "allgather-legacy";
    const std::int64_t rows = 4096 * 4096 * 2;
    EXPECT_EQ(one.at("tx_bytes_per_rank").at("max"),
              gathers ? 4 * 3 * rows + 3 * 4096 * 2 * (8 + 4 + 4)
                      : (4 * 2 * rows + 2 * 4096 * 2 * 4) / 4 * 3 + 3 * 8 * 8);
  }
}

TEST(Systems, R0_14_MemoryOfBothDispatchers) {
  const Small small;
  const json result = small.ask("allgather-legacy,alltoall", {"--ep", "4", "--routing", small.routing()});
  // 8 tokens of 16 columns in bf16; a row keeps itself, and gate, up and their product of 32 columns. AllGather
  // also keeps what the experts return, and of each row its place in int64 and its fp32 probability; AlltoAll
  // the fp32 probability of each row, the map and probabilities of 8 tokens and experts, and 16 places.
  const double tokens = 8 * 16 * 2, row = 16 * 2 + 3 * 32 * 2;
  for (const json& one : result.at("scenarios")) {
    const bool gathers = one.at("dispatcher") == "allgather-legacy";
    const double each = gathers ? row + 16 * 2 + 8 + 4 : row + 4,
                 fixed = gathers ? 0 : 8 * 8 * (1 + 4) + 16 * 8;
    const std::vector<int> rows{30, 14, 11, 9};
    for (std::size_t r = 0; r < rows.size(); ++r)
      EXPECT_EQ(one.at("saved_bytes_per_rank").at(r), tokens + fixed + each * rows[r])
          << one.at("dispatcher") << r;
    EXPECT_GT(one.at("memory").at("transient_bytes").get<double>(), 0);
  }
}

TEST(Systems, R0_15_TheSameRoutingEveryTime) {
  const Small small;
  for (const char* routing : {"zipf:1.2", "round-robin", "strong-skew"}) {
    const std::vector<std::string> more{"--ep", "4", "--routing", routing};
    EXPECT_EQ(small.ask("alltoall", more), small.ask("alltoall", more)) << routing;
  }
}

TEST(Systems, R0_16_ShapesInAndOutOfPermutationAreKept) {
  const Small small;
  const json exchange =
      small.one("alltoall", {"--ep", "4", "--routing", small.routing(), "--detail", "messages"});
  // 16 rows of 32 bytes leave every rank and 30, 14, 11, 9 arrive; on the way back it is the opposite.
  const json sent(std::vector<int>(4, 16 * 32)), arrived{30 * 32, 14 * 32, 11 * 32, 9 * 32};
  std::vector<json> tokens;
  for (const json& m : exchange.at("messages"))
    if (m.at("what") == "tokens" && m.at("pass") == "forward") tokens.push_back(m);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].at("in_bytes"), sent);
  EXPECT_EQ(tokens[0].at("out_bytes"), arrived);
  EXPECT_EQ(tokens[1].at("in_bytes"), arrived);
  EXPECT_EQ(tokens[1].at("out_bytes"), sent);
  // A gather brings 8 tokens of each of four ranks, and the reduce-scatter leaves each its own 8.
  const json gather =
      small.one("allgather-legacy", {"--ep", "4", "--routing", small.routing(), "--detail", "messages"});
  const json own(std::vector<int>(4, 8 * 32)), all(std::vector<int>(4, 4 * 8 * 32));
  int shapes = 0;
  for (const json& m : gather.at("messages")) {
    if (m.at("pass") != "forward" || (m.at("what") != "hidden states" && m.at("op") != "reduce_scatter"))
      continue;
    const bool there = m.at("op") == "all_gather";
    EXPECT_EQ(m.at("in_bytes"), there ? own : all);
    EXPECT_EQ(m.at("out_bytes"), there ? all : own);
    ++shapes;
  }
  EXPECT_EQ(shapes, 2);
  for (const json& m : exchange.at("messages")) {
    std::int64_t in = 0, out = 0;
    for (int r = 0; r < 4; ++r) {
      in += m.at("in_bytes").at(r).get<std::int64_t>();
      out += m.at("out_bytes").at(r).get<std::int64_t>();
    }
    if (m.at("op") == "all_to_all_v") {
      EXPECT_EQ(in, out) << m;
    } else if (m.at("op") == "all_gather") {
      EXPECT_EQ(4 * in, out) << m;
    }
  }
}

TEST(Systems, R0_17_WhatOneGpuCannotShowIsReconstructed) {
  const Outcome outcome = run_moesim(with(replay(host("alltoall", "scaling")), {"--format", "json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  double transferring = 0, waiting = 0;
  for (const json& rank : result.at("ranks")) {
    transferring += rank.at("exposed_comm_us").get<double>();
    waiting += rank.at("straggler_wait_us").get<double>();
  }
  EXPECT_GT(transferring, 0);
  EXPECT_GT(waiting, 0);
  // Each rank computes, transfers, waits or is held by its host for all of the iteration.
  for (const json& rank : result.at("ranks")) {
    double sum = 0;
    for (const char* part : {"busy_us", "exposed_comm_us", "straggler_wait_us", "bubble_us", "host_us"})
      sum += rank.at(part).get<double>();
    EXPECT_NEAR(sum, result.at("iteration_us").at("value").get<double>(), 0.01);
  }
  // Every rank waits for the one whose experts get most rows, which waits least.
  const json rows = parsed({"trace", "info", host("alltoall", "scaling")}).at("rows");
  std::vector<double> received, waits;
  for (std::size_t r = 0; r < 4; ++r) {
    received.push_back(rows.at(r).at("received_rows"));
    waits.push_back(result.at("ranks").at(r).at("straggler_wait_us"));
  }
  // Columns of the dispatching file beside it, two experts a rank: 189 + 107 + 185 + 102 + 177 + 103 + 167 +
  // 99 for the first, of 4 x 256 tokens that choose two.
  EXPECT_THAT(received, ElementsAre(1129, 451, 276, 192));
  EXPECT_NEAR(result.at("overload").at("max").get<double>(), 1129.0 / (4 * 256 * 2 / 4), 1e-6);
  EXPECT_EQ(std::max_element(received.begin(), received.end()) - received.begin(),
            std::min_element(waits.begin(), waits.end()) - waits.begin());
}

// Memory of ranks is the memory model's: two layers of hidden 256 on four ranks with two experts each.
TEST(Systems, R0_18_MemoryOfAReplay) {
  const std::vector<std::string> more{"--model", kHost + "model.json", "--format", "json", "--quiet"};
  const Outcome outcome =
      run_moesim(with(replay(host("alltoall", "scaling")), with(more, {"--dispatcher", "allgather-legacy"})));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const json &gathered = result.at("memory").at("stages").at(0),
             &exchanged = result.at("memory_as_recorded").at("stages").at(0);
  EXPECT_EQ(result.at("memory").at("dispatcher"), "allgather-legacy");
  // Weights in bf16 on every replica, gradients in fp32, and of Adam a copy and two states of fp32.
  for (const json* stage : {&gathered, &exchanged}) {
    EXPECT_EQ(2 * stage->at("parameters_bytes").get<double>(), stage->at("gradients_bytes").get<double>());
    EXPECT_EQ(6 * stage->at("parameters_bytes").get<double>(), stage->at("optimizer_bytes").get<double>());
  }
  EXPECT_EQ(gathered.at("parameters_bytes"), exchanged.at("parameters_bytes"));
  // One gather buffer of 4 x 256 rows of 256 bf16 elements.
  EXPECT_EQ(gathered.at("persistent_bytes").get<double>() - exchanged.at("persistent_bytes").get<double>(),
            4 * 256 * 256 * 2);
  // The rank whose experts get most keeps most, and holds what the job says.
  double most = 0;
  for (const json& rank : result.at("ranks"))
    most = std::max(most, rank.at("peak_memory_bytes").get<double>());
  EXPECT_EQ(most, result.at("memory").at("total_bytes").get<double>());
  EXPECT_GT(result.at("ranks").at(0).at("memory").at("activations_bytes"),
            result.at("ranks").at(3).at("memory").at("activations_bytes"));
}

// On a single stage each microbatch's backward follows its forward: memory rises and falls once for each of
// four microbatches, and its maximum is the rank's peak.
TEST(Systems, R0_18_MemoryOfAReplayOverTime) {
  const TempFolder folder;
  std::vector<std::string> more{"--model", kHost + "model.json", "--format",  "json",
                                "--quiet", "--timeline",         folder / "t"};
  const bool page = tools::report_missing().empty();
  if (page) more.insert(more.end(), {"--report", folder / "page.html"});
  const Outcome outcome = run_moesim(replay(host("alltoall", "scaling"), more));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  const json events = json::parse(read_text(folder / "t")).at("traceEvents");
  for (int r = 0; r < 4; ++r) {
    std::vector<double> levels;
    for (const json& event : events)
      if (event.at("ph") == "C" && event.at("pid") == r + 1 && event.at("name") == "memory [GB]")
        levels.push_back(event.at("args").at("value"));
    ASSERT_FALSE(levels.empty()) << r;
    const json& memory = result.at("ranks").at(r).at("memory");
    double state = 0;
    for (const char* part : {"parameters_bytes", "gradients_bytes", "optimizer_bytes", "persistent_bytes"})
      state += memory.at(part).get<double>();
    EXPECT_NEAR(levels.front(), state * 1e-9, 1e-6) << r;
    EXPECT_NEAR(levels.back(), state * 1e-9, 1e-6) << r;
    EXPECT_NEAR(*std::max_element(levels.begin(), levels.end()),
                result.at("ranks").at(r).at("peak_memory_bytes").get<double>() * 1e-9, 1e-6)
        << r;
    const double kept = state * 1e-9 + memory.at("activations_bytes").get<double>() * 1e-9;
    EXPECT_EQ(
        std::count_if(levels.begin(), levels.end(), [&](double gb) { return std::abs(gb - kept) < 1e-6; }), 4)
        << r;
  }
  if (!page) GTEST_SKIP() << tools::report_missing();
  EXPECT_THAT(read_text(folder / "page.html"), HasSubstr("memory [GB]"));
}

// The dispatching file beside a recording is what all dispatchers route by; as-recorded leaves it out.
TEST(Systems, R0_19_IdenticalRoutingWithoutAsking) {
  const std::string file = kHost + "alltoall-zipf1.2/" + kJob + "/dispatching.json";
  const std::vector<std::string> other{"--model", kHost + "model.json", "--dispatcher", "allgather-legacy"};
  const Outcome found = run_moesim(replay(host("alltoall", "scaling"), other));
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("the routing of " + file + " beside the recording"));
  EXPECT_EQ(replayed_ms(host("alltoall", "scaling"), other),
            replayed_ms(host("alltoall", "scaling"), with(other, {"--routing", file})));
  const Outcome left_out =
      run_moesim(replay(host("alltoall", "scaling"), with(other, {"--routing", "as-recorded"})));
  EXPECT_THAT(left_out.out, Not(HasSubstr("beside the recording")));
}

// One recorded rank and what all ranks dispatched give the whole job.
TEST(Systems, R0_4_OneRecordedRankIsEnough) {
  const TempFolder folder;
  const std::string job = std::string(kJob) + "/";
  folder.write(job + "dispatching.json", read_text(kHost + "alltoall-zipf1.2/" + kJob + "/dispatching.json"));
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(host("alltoall", "scaling"))) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    const std::string name = file.filename().string();
    if (name.find("_rank0_") != std::string::npos) folder.write(job + "scaling/" + name, read_text(file));
  }
  const std::vector<std::string> more{"--model", kHost + "model.json", "--format", "json"};
  const Outcome outcome = run_moesim(replay(folder / (job + "scaling"), more));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json one = json::parse(outcome.out),
             all = json::parse(run_moesim(replay(host("alltoall", "scaling"), more)).out);
  EXPECT_THAT(one.at("warnings").dump(), HasSubstr("expert ranks 1, 2, 3 were not recorded"));
  EXPECT_EQ(one.at("ranks").size(), 4);
  EXPECT_NEAR(one.at("overload").at("max").get<double>(), all.at("overload").at("max").get<double>(), 1e-9);
  // Without a routing nothing says what the others got.
  const Outcome alone =
      run_moesim(replay(folder / (job + "scaling"), with(more, {"--routing", "as-recorded"})));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("symmetry cannot fill this one"));
}

// Arguments of the job that one GPU imitates.
TEST(Systems, R0_4_ScalingModeInAScript) {
  const TempFolder folder;
  const std::string script =
      "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 "
      "--num-attention-heads 16 --seq-length 512 "
      "--micro-batch-size 1 --global-batch-size 16 --vocab-size 32000 --num-experts 8 --moe-router-topk 2 "
      "--moe-grouped-gemm --moe-token-dispatcher-type allgather --expert-model-parallel-size 4 --swiglu "
      "--disable-bias-linear --normalization RMSNorm --bf16 --log-overload-factor ";
  folder.write("job.sh", script + "--is-scaling-mode --fake-tp 2 --exp-rank 3\n");
  folder.write("bare.sh", script + "--fake-tp 2\n");
  const Outcome told = run_moesim({"scenario", "from", "megatron", folder / "job.sh"});
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const json scenario = json::parse(told.out);
  EXPECT_EQ(scenario.at("parallel").at("tp"), 2);
  EXPECT_EQ(scenario.at("parallel").at("etp"), 2);
  EXPECT_EQ(scenario.at("training").at("overload").at("report"), "sequential");
  const Outcome refused = run_moesim({"scenario", "from", "megatron", folder / "bare.sh"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("is-scaling-mode"));
}

}  // namespace
}  // namespace moesim::systems
