// The worked examples of docs/spec.md 6.3 through the command line, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Bytes = std::vector<std::int64_t>;

// Token -> two experts, by rank.
const std::vector<std::vector<std::vector<int>>> kExample1{
    {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {0, 5}, {2, 6}, {0, 7}, {1, 3}},
    {{0, 1}, {0, 2}, {4, 5}, {0, 1}, {2, 3}, {0, 6}, {0, 7}, {1, 2}},
    {{0, 4}, {0, 1}, {4, 6}, {5, 7}, {0, 2}, {3, 6}, {0, 1}, {2, 5}},
    {{0, 1}, {1, 2}, {2, 4}, {0, 6}, {0, 3}, {5, 7}, {0, 1}, {0, 4}}};
const std::vector<std::vector<std::vector<int>>> kExample2(4, std::vector<std::vector<int>>(8, {0, 1}));

json dispatching(const std::vector<std::vector<std::vector<int>>>& choices) {
  json file{{"ep", 4}, {"experts", 8}, {"per_rank_results", json::object()}};
  for (std::size_t rank = 0; rank < choices.size(); ++rank) {
    Bytes counts(8, 0);
    for (const auto& token : choices[rank])
      for (const int expert : token) ++counts[static_cast<std::size_t>(expert)];
    file["per_rank_results"][std::to_string(rank)] = {{"num_local_tokens_per_expert", counts},
                                                      {"topk_indices", choices[rank]}};
  }
  return file;
}

// One layer of H=16, F=32 gated, 8 experts, top-2, bf16 on four ranks of eight tokens.
class WorkedExample : public ::testing::Test {
 protected:
  static json scenario(const std::string& routing, const std::string& router_dtype, const json& parallel) {
    return {{"model",
             {{"name", "worked-example"},
              {"hidden", 16},
              {"expert_ffn", 32},
              {"experts", 8},
              {"topk", 2},
              {"attention", {{"heads", 1}}}}},
            {"parallel", parallel},
            {"routing", routing},
            {"router_dtype", router_dtype}};
  }

  json compare(const json& routing, const std::string& dispatcher, const std::string& router_dtype = "fp32",
               const json& parallel = {{"ep", 4}, {"seq", 8}}) {
    here_.write("routing.json", routing.dump());
    here_.write("scenario.json", scenario("routing.json", router_dtype, parallel).dump(1));
    const Outcome outcome = run_moesim({"compare", "scenario.json", "--dispatcher", dispatcher, "--detail",
                                        "messages", "--draws", "0", "--format", "json"},
                                       here_.path());
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out).at("scenarios").at(0);
  }

  static Bytes each(Bytes bytes) { return bytes.size() == 1 ? Bytes(4, bytes[0]) : bytes; }

  static void expect_message(const json& message, const std::string& pass, Bytes in, Bytes out, Bytes tx,
                             Bytes rx) {
    EXPECT_EQ(message.at("pass"), pass);
    EXPECT_EQ(message.at("in_bytes").get<Bytes>(), each(std::move(in))) << message.dump();
    EXPECT_EQ(message.at("out_bytes").get<Bytes>(), each(std::move(out))) << message.dump();
    EXPECT_EQ(message.at("tx_bytes").get<Bytes>(), each(std::move(tx))) << message.dump();
    EXPECT_EQ(message.at("rx_bytes").get<Bytes>(), each(std::move(rx))) << message.dump();
  }

  static Bytes total(const json& scenario, const std::string& pass, const char* what) {
    Bytes sum(4, 0);
    for (const json& message : scenario.at("messages"))
      if (message.at("pass") == pass)
        for (std::size_t r = 0; r < sum.size(); ++r) sum[r] += message.at(what).at(r).get<std::int64_t>();
    return sum;
  }

  TempFolder here_;
};

TEST_F(WorkedExample, OneAlltoAll) {
  const json result = compare(dispatching(kExample1), "alltoall");
  const json& messages = result.at("messages");
  ASSERT_GE(messages.size(), 4u);
  expect_message(messages[0], "forward", {64}, {256}, {192}, {192});
  expect_message(messages[1], "forward", {512}, {960, 448, 352, 288}, {256, 384, 384, 448},
                 {704, 320, 224, 224});
  expect_message(messages[2], "forward", {64}, {120, 56, 44, 36}, {32, 48, 48, 56}, {88, 40, 28, 28});
  expect_message(messages[3], "forward", {960, 448, 352, 288}, {512}, {704, 320, 224, 224},
                 {256, 384, 384, 448});
  EXPECT_EQ(total(result, "forward", "tx_bytes"), (Bytes{1184, 944, 848, 920}));
  EXPECT_EQ(total(result, "forward", "rx_bytes"), (Bytes{1240, 936, 828, 892}));
  EXPECT_EQ(total(result, "backward", "tx_bytes"), (Bytes{1048, 744, 636, 700}));
  EXPECT_EQ(total(result, "backward", "rx_bytes"), (Bytes{992, 752, 656, 728}));
  EXPECT_EQ(result.at("rows_per_rank").get<Bytes>(), (Bytes{30, 14, 11, 9}));
  EXPECT_EQ(result.at("saved_bytes_per_rank").get<Bytes>(), (Bytes{7544, 3896, 3212, 2756}));
}

TEST_F(WorkedExample, OneAllGather) {
  const json result = compare(dispatching(kExample1), "allgather");
  const json& messages = result.at("messages");
  ASSERT_GE(messages.size(), 4u);
  expect_message(messages[0], "forward", {64}, {256}, {192}, {192});
  expect_message(messages[1], "forward", {256}, {1024}, {768}, {768});
  expect_message(messages[2], "forward", {256}, {1024}, {768}, {768});
  expect_message(messages[3], "forward", {2048}, {512}, {1536}, {1536});
  EXPECT_EQ(total(result, "forward", "tx_bytes"), Bytes(4, 3264));
  EXPECT_EQ(total(result, "backward", "tx_bytes"), Bytes(4, 3072));
  EXPECT_EQ(result.at("saved_bytes_per_rank").get<Bytes>(), (Bytes{7656, 3880, 3172, 2700}));
  const json half = compare(dispatching(kExample1), "allgather", "bf16");
  EXPECT_EQ(total(half, "forward", "tx_bytes"), Bytes(4, 2112));
  EXPECT_EQ(total(half, "backward", "tx_bytes"), Bytes(4, 1920));
}

TEST_F(WorkedExample, TwoEverythingToRankZero) {
  const json exchanged = compare(dispatching(kExample2), "alltoall");
  EXPECT_EQ(exchanged.at("messages")[1].at("tx_bytes").get<Bytes>(), (Bytes{0, 512, 512, 512}));
  EXPECT_EQ(exchanged.at("messages")[1].at("rx_bytes").get<Bytes>(), (Bytes{1536, 0, 0, 0}));
  EXPECT_EQ(exchanged.at("messages")[3].at("tx_bytes").get<Bytes>(), (Bytes{1536, 0, 0, 0}));
  EXPECT_EQ(exchanged.at("messages")[3].at("rx_bytes").get<Bytes>(), (Bytes{0, 512, 512, 512}));
  EXPECT_EQ(exchanged.at("rows_per_rank").get<Bytes>(), (Bytes{64, 0, 0, 0}));
  const json gathered = compare(dispatching(kExample2), "allgather", "bf16");
  EXPECT_EQ(gathered.at("messages")[2].at("tx_bytes").get<Bytes>(), Bytes(4, 768));
  EXPECT_EQ(gathered.at("messages")[3].at("tx_bytes").get<Bytes>(), Bytes(4, 768));
}

TEST_F(WorkedExample, ThreeRoundRobin) {
  std::vector<std::vector<std::vector<int>>> round_robin(4, std::vector<std::vector<int>>(8));
  for (auto& rank : round_robin)
    for (int t = 0; t < 8; ++t) rank[static_cast<std::size_t>(t)] = {2 * t % 8, (2 * t + 1) % 8};
  const json result = compare(dispatching(round_robin), "alltoall");
  for (const std::size_t tokens : {1u, 3u}) {
    EXPECT_EQ(result.at("messages")[tokens].at("tx_bytes").get<Bytes>(), Bytes(4, 384));
    EXPECT_EQ(result.at("messages")[tokens].at("rx_bytes").get<Bytes>(), Bytes(4, 384));
  }
  EXPECT_EQ(result.at("messages")[2].at("tx_bytes").get<Bytes>(), Bytes(4, 48));
  EXPECT_EQ(result.at("rows_per_rank").get<Bytes>(), Bytes(4, 16));
}

// The messages of the tokens themselves, in order: dispatch first.
std::vector<json> tokens_of(const json& scenario, const std::string& pass) {
  std::vector<json> found;
  for (const json& message : scenario.at("messages"))
    if (message.at("pass") == pass && message.at("what") == "tokens") found.push_back(message);
  return found;
}

TEST_F(WorkedExample, OneAllGatherLegacy) {
  const json result = compare(dispatching(kExample1), "allgather-legacy");
  const json& messages = result.at("messages");
  expect_message(messages[0], "forward", {256}, {1024}, {768}, {768});
  expect_message(messages[1], "forward", {128}, {512}, {384}, {384});
  expect_message(messages[2], "forward", {64}, {256}, {192}, {192});
  expect_message(messages[3], "forward", {1024}, {256}, {768}, {768});
  EXPECT_EQ(total(result, "forward", "tx_bytes"), Bytes(4, 2112));
}

TEST_F(WorkedExample, OneTorchtitanAndEqualSplit) {
  const json plain = compare(dispatching(kExample1), "torchtitan-alltoall");
  expect_message(plain.at("messages")[0], "forward", {64}, {64}, {48}, {48});
  EXPECT_EQ(total(plain, "forward", "tx_bytes"), (Bytes{1008, 752, 656, 720}));

  const json equal = compare(dispatching(kExample1), "torchtitan-equal-split");
  const std::vector<json> tokens = tokens_of(equal, "forward");
  ASSERT_EQ(tokens.size(), 2u);
  for (const json& message : tokens) {
    EXPECT_EQ(message.at("op"), "all_to_all");
    expect_message(message, "forward", {1024}, {1024}, {768}, {768});
  }
  // Counts and the two exchanges; the reduction of the pad width comes on top (docs/dispatchers.md).
  Bytes sum(4, 0);
  for (const json& message : equal.at("messages"))
    if (message.at("pass") == "forward" && message.at("op") == "all_to_all")
      for (std::size_t r = 0; r < 4; ++r) sum[r] += message.at("tx_bytes").at(r).get<std::int64_t>();
  EXPECT_EQ(sum, Bytes(4, 1584));
  EXPECT_EQ(total(equal, "forward", "tx_bytes"), Bytes(4, 1584 + 12));
}

TEST_F(WorkedExample, OneKempnerForge) {
  const json result = compare(dispatching(kExample1), "kempnerforge");
  const json& messages = result.at("messages");
  ASSERT_EQ(messages.size(), 6u);
  expect_message(messages[0], "forward", {32}, {32}, {24}, {24});
  EXPECT_EQ(messages[2].at("dtype"), "fp32");
  expect_message(messages[2], "forward", {64}, {120, 56, 44, 36}, {32, 48, 48, 56}, {88, 40, 28, 28});
  EXPECT_EQ(total(result, "forward", "tx_bytes"), (Bytes{1016, 776, 680, 752}));
  EXPECT_EQ(total(result, "forward", "rx_bytes"), (Bytes{1072, 768, 660, 724}));
  EXPECT_EQ(total(result, "backward", "tx_bytes"), (Bytes{960, 704, 608, 672}));
  EXPECT_EQ(total(result, "backward", "rx_bytes"), (Bytes{960, 704, 608, 672}));
}

TEST_F(WorkedExample, OneCapacities) {
  const json padded = compare(dispatching(kExample1), "alltoall:capacity_factor=1:pad");
  expect_message(padded.at("messages")[0], "forward", {512}, {512}, {384}, {384});
  EXPECT_EQ(padded.at("dropped_rows"), 64 - 12 - 11 - 14 - 12);
  EXPECT_EQ(compare(dispatching(kExample1), "megablocks-moe").at("dropped_rows"), 64 - 61);
  EXPECT_EQ(compare(dispatching(kExample1), "megablocks-moe:nominal_capacity").at("dropped_rows"), 64 - 49);
  EXPECT_EQ(compare(dispatching(kExample1), "torchtitan-torchao").at("rows_per_rank").get<Bytes>(),
            (Bytes{48, 32, 32, 32}));
  const json adaptive = compare(dispatching(kExample1), "torchtitan-equal-split:policy=adaptive");
  EXPECT_EQ(tokens_of(adaptive, "forward").at(0).at("op"), "all_to_all_v");
  // DeepSpeed's and Tutel's fixed capacity moves the same: C = ceil(8 * 2 / 8) = 2 rows of every expert.
  for (const char* name : {"deepspeed:min_capacity=1", "tutel"}) {
    const json fixed = compare(dispatching(kExample1), name);
    for (const json& message : tokens_of(fixed, "forward"))
      expect_message(message, "forward", {512}, {512}, {384}, {384});
    EXPECT_EQ(fixed.at("dropped_rows"), 64 - 12 - 11 - 14 - 12);
  }
}

TEST_F(WorkedExample, OneDeduplicated) {
  for (const char* name : {"flex-deepep", "flex-hybridep"}) {
    const std::vector<json> tokens = tokens_of(compare(dispatching(kExample1), name), "forward");
    ASSERT_EQ(tokens.size(), 2u);
    EXPECT_EQ(tokens[0].at("tx_bytes").get<Bytes>(), (Bytes{256, 288, 320, 384}));
    EXPECT_EQ(tokens[0].at("rx_bytes").get<Bytes>(), (Bytes{512, 320, 192, 224}));
    EXPECT_EQ(tokens[1].at("tx_bytes"), tokens[0].at("rx_bytes"));
    EXPECT_EQ(tokens[1].at("rx_bytes"), tokens[0].at("tx_bytes"));
  }
}

TEST_F(WorkedExample, TwoOtherDispatchers) {
  for (const json& message : tokens_of(compare(dispatching(kExample2), "torchtitan-equal-split"), "forward"))
    EXPECT_EQ(message.at("tx_bytes").get<Bytes>(), Bytes(4, 1536));
  const json deduplicated = tokens_of(compare(dispatching(kExample2), "flex-deepep"), "forward").at(0);
  EXPECT_EQ(deduplicated.at("tx_bytes").get<Bytes>(), (Bytes{0, 256, 256, 256}));
  EXPECT_EQ(deduplicated.at("rx_bytes").get<Bytes>(), (Bytes{768, 0, 0, 0}));
  const json kempner = compare(dispatching(kExample2), "kempnerforge");
  EXPECT_EQ(kempner.at("messages")[2].at("tx_bytes").get<Bytes>(), (Bytes{0, 64, 64, 64}));
  EXPECT_EQ(kempner.at("messages")[2].at("rx_bytes").get<Bytes>(), (Bytes{192, 0, 0, 0}));
  EXPECT_EQ(compare(dispatching(kExample2), "alltoall:capacity_factor=1:pad").at("dropped_rows"),
            4 * (16 - 4));
}

// ETP 2 x EP 2 on the routing of example 1: rank = etp + 2 ep.
TEST_F(WorkedExample, FourExpertTensorParallel) {
  const json result =
      compare(dispatching(kExample1), "alltoall", "fp32", {{"ep", 2}, {"etp", 2}, {"seq", 8}});
  const json& messages = result.at("messages");
  ASSERT_GE(messages.size(), 7u);
  expect_message(messages[1], "forward", {512}, {21 * 32, 23 * 32, 11 * 32, 9 * 32}, {128, 128, 288, 352},
                 {288, 352, 128, 128});
  EXPECT_EQ(messages[3].at("op"), "all_gather_v");
  EXPECT_EQ(messages[3].at("group"), "tp");
  EXPECT_EQ(messages[3].at("rx_bytes").get<Bytes>(), (Bytes{736, 672, 288, 352}));
  EXPECT_EQ(messages[5].at("op"), "reduce_scatter_v");
  EXPECT_EQ(messages[5].at("in_bytes").get<Bytes>(), (Bytes{2816, 2816, 1280, 1280}));
  EXPECT_EQ(messages[5].at("tx_bytes").get<Bytes>(), (Bytes{1472, 1344, 576, 704}));
  EXPECT_EQ(result.at("rows_per_rank").get<Bytes>(), (Bytes{44, 44, 20, 20}));
  const json half = compare(dispatching(kExample1), "alltoall", "bf16", {{"ep", 2}, {"etp", 2}, {"seq", 8}});
  EXPECT_EQ(half.at("messages")[5].at("tx_bytes").get<Bytes>(), (Bytes{736, 672, 288, 352}));

  const json flex =
      compare(dispatching(kExample1), "flex-deepep", "fp32", {{"ep", 2}, {"etp", 2}, {"seq", 8}});
  const json tokens = tokens_of(flex, "forward").at(0);
  EXPECT_EQ(tokens.at("tx_bytes").get<Bytes>(), (Bytes{512, 416, 544, 576}));
  EXPECT_EQ(tokens.at("rx_bytes").get<Bytes>(), (Bytes{640, 672, 352, 384}));
  EXPECT_EQ(tokens.at("out_bytes").get<Bytes>(), (Bytes{28 * 32, 28 * 32, 16 * 32, 16 * 32}));
}

// Without the graph edge of rule P the ranks that got no rows skip a backward exchange: refused, with the
// position.
TEST_F(WorkedExample, FivePositionMatching) {
  here_.write("routing.json", dispatching(kExample2).dump());
  here_.write("scenario.json", scenario("routing.json", "fp32", {{"ep", 4}, {"seq", 8}}).dump());
  const Outcome refused =
      run_moesim({"compare", "scenario.json", "--dispatcher", "kempnerforge:graph_edge=false"}, here_.path());
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("mismatch at position 2, ranks 1-3"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("hang"), std::string::npos) << refused.err;
  const json kept = compare(dispatching(kExample2), "kempnerforge");
  int backward = 0;
  for (const json& message : kept.at("messages")) backward += message.at("pass") == "backward";
  EXPECT_EQ(backward, 2);
  // Where every rank has rows, nothing is skipped.
  EXPECT_EQ(compare(dispatching(kExample1), "kempnerforge:graph_edge=false").at("messages").size(), 6u);
}

TEST_F(WorkedExample, MemoryAddsUp) {
  const json memory = compare(dispatching(kExample1), "alltoall").at("memory");
  double sum = 0;
  for (const char* part : {"parameters_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes",
                           "transient_bytes", "persistent_bytes"})
    sum += memory.at(part).get<double>();
  EXPECT_DOUBLE_EQ(sum, memory.at("total_bytes").get<double>());
  const json& curve = memory.at("curve");
  ASSERT_GT(curve.size(), 20u);
  double most = 0, time = 0;
  for (const json& point : curve) {
    most = std::max(most, point.at("bytes").get<double>());
    EXPECT_GE(point.at("time_us").get<double>(), time);
    time = point.at("time_us");
  }
  EXPECT_NEAR(most, sum, 0.01 * sum);
  EXPECT_DOUBLE_EQ(curve.front().at("bytes").get<double>(), curve.back().at("bytes").get<double>());
}

TEST_F(WorkedExample, TimelinesAndDetails) {
  here_.write("routing.json", dispatching(kExample1).dump());
  here_.write("scenario.json", scenario("routing.json", "fp32", {{"ep", 4}, {"seq", 8}}).dump());
  const Outcome outcome =
      run_moesim({"compare", "scenario.json", "--dispatcher", "alltoall,alltoall:batch_overlap", "--draws",
                  "0", "--timeline", "t.json", "--detail", "operations", "--format", "json", "--sharding",
                  "hsdp:shard=2:shampoo", "--placement", "balanced:slots=12"},
                 here_.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_FALSE(result.at("step_collectives").empty());
  const json file = json::parse(testing::read_text(here_.path() / "t.json"));
  for (std::size_t d = 0; d < 2; ++d) {
    const json& forecast = result.at("scenarios").at(d);
    const double time = forecast.at("time_us").at("value");
    double last = 0, last_event = 0;
    for (const json& op : forecast.at("operations"))
      last = std::max(last, op.at("start_us").get<double>() + op.at("wait_us").get<double>() +
                                op.at("time_us").get<double>());
    EXPECT_NEAR(last, time, 1e-6 * time);
    for (const json& event : file.at("traceEvents"))
      if (event.at("ph") == "X" && (event.at("pid").get<int>() - 1) % 2 == static_cast<int>(d))
        last_event = std::max(last_event, event.at("ts").get<double>() + event.at("dur").get<double>());
    EXPECT_NEAR(last_event, time, 1e-3);
  }
  EXPECT_LT(result["scenarios"][1]["time_us"]["value"].get<double>(),
            result["scenarios"][0]["time_us"]["value"].get<double>());
}

TEST_F(WorkedExample, CompareAnswersWhichAndWhy) {
  here_.write("routing.json", dispatching(kExample1).dump());
  const Outcome outcome =
      run_moesim({"compare", "--model", "mixtral-8x7b", "--ep", "8", "--routing", "zipf:1.2", "--dispatcher",
                  "allgather,alltoall", "--draws", "16", "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  ASSERT_EQ(result.at("scenarios").size(), 2u);
  double best = 1e300;
  std::string fastest;
  for (const json& scenario : result["scenarios"]) {
    const json& time = scenario.at("time_us");
    EXPECT_LE(time.at("low"), time.at("value"));
    EXPECT_LE(time.at("value"), time.at("high"));
    double sum = 0;
    for (const auto& [part, us] : scenario.at("breakdown_us").items()) sum += us.get<double>();
    EXPECT_NEAR(sum, time.at("value").get<double>(), 1e-6 * sum);
    if (time.at("value") < best) {
      best = time.at("value");
      fastest = scenario.at("dispatcher");
    }
  }
  EXPECT_EQ(result.at("winner").at("dispatcher"), fastest);
  EXPECT_GE(result["winner"].at("speedup").at("value"), 1.0);
  EXPECT_GE(result["winner"].at("probability"), 0.0);
  EXPECT_LE(result["winner"].at("probability"), 1.0);
  EXPECT_NE(result.at("because"), "");
}

}  // namespace
}  // namespace moesim::tools
