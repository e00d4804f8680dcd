// The worked examples of docs/dispatchers.md 6.3 through the command line, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  json compare(const json& routing, const std::string& dispatcher, const std::string& router_dtype = "fp32") {
    here_.write("routing.json", routing.dump());
    const json scenario{{"model",
                         {{"name", "worked-example"},
                          {"hidden", 16},
                          {"expert_ffn", 32},
                          {"experts", 8},
                          {"topk", 2},
                          {"attention", {{"heads", 1}}}}},
                        {"parallel", {{"ep", 4}, {"seq", 8}}},
                        {"routing", "routing.json"},
                        {"router_dtype", router_dtype}};
    here_.write("scenario.json", scenario.dump(1));
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
