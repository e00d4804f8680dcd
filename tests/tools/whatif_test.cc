// `moesim whatif` as a user runs it, and crossovers against a search that tries every value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "process.h"
#include "tools/moesim/crossover.h"
#include "tools/moesim/whatif_sensitivity.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

constexpr const char* kScenario = R"({"model": "mixtral-8x7b", "parallel": {"ep": 8},
 "dispatcher": "allgather,alltoall", "routing": "balanced", "cluster": "dgx-h100x2"})";

ScenarioDocument document() { return ScenarioDocument::from_json(json::parse(kScenario), "test.json"); }

class WhatIf : public ::testing::Test {
 protected:
  WhatIf() { folder_.write("s.json", kScenario); }
  Outcome run(Words more) const {
    more.insert(more.begin(), {"whatif", "s.json"});
    return run_moesim(more, folder_.path());
  }
  json result(Words more) const {
    more.insert(more.end(), {"--format", "json", "--quiet"});
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }
  TempFolder folder_;
};

TEST_F(WhatIf, NoChangeIsExactlyNoDifference) {
  const json r = result({"--set", "parallel.ep=8"});
  EXPECT_EQ(r["schema"], "moesim.whatif/1");
  EXPECT_EQ(r["difference"]["time_us"]["value"], 0.0);
  // The same draws for both: the interval of nothing is nothing.
  EXPECT_EQ(r["difference"]["time_us"]["low"], 0.0);
  EXPECT_EQ(r["difference"]["time_us"]["high"], 0.0);
}

TEST_F(WhatIf, TheDifferenceIsOfTheTimesAndItsPartsAddUp) {
  const json r = result({"--set", "topk=4"});
  const double before = r["baseline"]["dispatchers"][1]["time_us"]["value"],
               after = r["change"]["dispatchers"][1]["time_us"]["value"];
  EXPECT_GT(after, before);
  EXPECT_EQ(r["baseline"]["fastest"], "alltoall");
  EXPECT_NEAR(r["difference"]["time_us"]["value"].get<double>(), after - before, 1e-6 * before);
  double parts = 0;
  for (const json& part : r["parts"]) parts += part["difference_us"].get<double>();
  EXPECT_NEAR(parts, after - before, 1e-3);
  EXPECT_EQ(r["parts"][0]["category"], "expert");
  // Tighter than the intervals of the two: the draws are the same.
  const double width =
      r["difference"]["time_us"]["high"].get<double>() - r["difference"]["time_us"]["low"].get<double>();
  const json& b = r["baseline"]["dispatchers"][1]["time_us"];
  const json& a = r["change"]["dispatchers"][1]["time_us"];
  const double apart = std::hypot(b["high"].get<double>() - b["low"].get<double>(),
                                  a["high"].get<double>() - a["low"].get<double>());
  EXPECT_GT(width, 0);
  EXPECT_LT(width, apart);
}

TEST_F(WhatIf, ChangesOfAClusterByNameKeepTheRest) {
  const json r =
      result({"--set", "parallel.ep=16", "--set", "model.experts=16", "--set", "cluster.nic.bandwidth=x2"});
  ASSERT_EQ(r["changes"].size(), 3u);
  EXPECT_EQ(r["changes"][2]["from"], "50.0 GB/s");
  EXPECT_EQ(r["changes"][2]["to"], 100e9);
}

TEST_F(WhatIf, EachChangeByItselfTheMostHelpfulFirst) {
  const json r = result({"--each", "--set", "gpu.flops=x2", "--set", "nvlink.bandwidth=x2", "--set",
                         "routing=zipf:1.2", "--set", "parallel.ep=7"});
  const json& ranking = r["ranking"];
  ASSERT_EQ(ranking.size(), 4u);
  EXPECT_EQ(ranking[0]["path"], "cluster.gpu.flops");
  EXPECT_EQ(ranking[1]["path"], "cluster.nvlink.bandwidth");
  EXPECT_EQ(ranking[2]["path"], "routing");
  EXPECT_THAT(ranking[3]["error"].get<std::string>(), HasSubstr("ep"));
  EXPECT_LT(ranking[0]["ratio"]["value"].get<double>(), ranking[1]["ratio"]["value"].get<double>());
}

TEST_F(WhatIf, SensitivitiesAreElasticities) {
  const json r = result({"--sensitivity", "--draws", "0"});
  double flops = 0;
  for (const json& one : r["sensitivity"])
    for (const json& by : one["dispatchers"])
      if (one["path"] == "cluster.gpu.flops" && by["dispatcher"] == "alltoall")
        flops = by["elasticity"]["value"];
  // Computing takes most of this layer, and no more than all of it.
  EXPECT_LT(flops, -0.5);
  EXPECT_GT(flops, -1);
  // 20 % more FLOP/s does what the elasticity says, to second order.
  const json change = result({"--set", "gpu.flops=x1.2", "--draws", "0"});
  EXPECT_NEAR(std::log(change["difference"]["ratio"]["value"].get<double>()), flops * std::log(1.2), 0.02);
}

TEST_F(WhatIf, WrongQuestionsAreRefusedInOneLine) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--set", "cluster.nic.bandwith=100GBps"}, "did you mean 'cluster.nic.bandwidth'?"},
      {{"--set", "cluster.nic.bandwidth=100us"}, "expected a bandwidth such as 100GBps"},
      {{"--set", "parallel.ep"}, "expected path=value"},
      {{"--set", "parallel.ep=7"}, "ep"},
      {{"--set", "topk=2", "--set", "topk=4"}, "twice"},
      {{"--set", "cluster=dgx-h1000x4"}, "dgx-h100xN"},
      {{"--set", "model.experts=0"}, "experts"},
      {{}, "no question"},
      {{"--crossover", "topk=8..1"}, "empty range"},
      {{"--crossover", "dispatcher=allgather,alltoall"}, "a path that is a number"},
      {{"--crossover", "topk=1..8", "--between", "allgather,altoall"}, "did you mean 'alltoall'?"},
      {{"--map", "topk=1..8"}, ""},
      {{"--sensitivity", "--each"}, "--each"}};
  for (const auto& [more, message] : cases) {
    const Outcome outcome = run(more);
    EXPECT_EQ(outcome.exit_code, 2) << message;
    EXPECT_EQ(outcome.out, "") << message;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

TEST_F(WhatIf, PathsAreListed) {
  const Outcome outcome = run_moesim({"whatif", "--paths"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("parallel.ep"), HasSubstr("cluster.gpu.hbm_bandwidth")));
}

TEST_F(WhatIf, AMapHasACellForEveryPair) {
  const json r = result({"--map", "topk=1..4", "ep=2..8:x2", "--draws", "8"});
  ASSERT_EQ(r["map"].size(), 12u);
  EXPECT_EQ(r["map"][5]["topk"], 2);
  EXPECT_EQ(r["map"][5]["parallel.ep"], 4);
  const Outcome table = run({"--map", "topk=1..4", "ep=2..8:x2", "--draws", "8"});
  EXPECT_THAT(table.out, HasSubstr("parallel.ep \\ topk"));
}

// Bisection finds the same changes as trying every value.
TEST(Crossover, AgreesWithTryingEveryValue) {
  for (const char* text : {"topk=1..8", "seq=16..4096:16", "ep=1..8", "hidden=256..8192:128"}) {
    const SweepRange range = SweepRange::parse_assignment(text, "--crossover");
    const CrossoverResult found = find_crossovers(document(), range, "allgather,alltoall", 0);
    std::vector<std::pair<double, std::string>> expected;
    std::string previous;
    for (const PathValue& value : range.values) {
      ScenarioDocument d = document();
      d.set(range.path, value.json);
      std::string fastest;
      try {
        fastest = evaluate(d.scenario(), {0, false}).fastest()->dispatcher;
      } catch (const InputError&) {
        continue;
      }
      if (!previous.empty() && fastest != previous) expected.emplace_back(value.number, fastest);
      previous = fastest;
    }
    // Bisection may miss pairs of changes between two probes; it may not invent any.
    std::set<std::pair<double, std::string>> all(expected.begin(), expected.end());
    for (const Crossover& c : found.crossings)
      EXPECT_TRUE(all.contains({c.above, c.to})) << text << " at " << c.above;
    EXPECT_EQ(found.crossings.size() % 2, expected.size() % 2) << text;
    if (expected.size() == 1) {
      EXPECT_EQ(found.crossings.size(), 1u) << text;
    }
  }
}

TEST(Crossover, TheIntervalHoldsTheCrossing) {
  const SweepRange range = SweepRange::parse_assignment("seq=16..8192", "--crossover");
  const CrossoverResult r = find_crossovers(document(), range, "allgather,alltoall", 24);
  for (const Crossover& c : r.crossings) {
    EXPECT_EQ(c.above, c.below + 1);
    EXPECT_LE(c.low, c.below);
    EXPECT_GE(c.high, c.above);
    EXPECT_GE(c.value, c.below);
    EXPECT_LE(c.value, c.above);
  }
}

// Every command of the documents, run: what they show is what it prints. `tools/refresh_examples.py` brings
// the documents up to date.
class Documents : public ::testing::TestWithParam<const char*> {};

TEST_P(Documents, ShowWhatTheCommandsPrint) {
  const fs::path root = MOESIM_SOURCE_DIR;
  std::ifstream in(root / GetParam());
  ASSERT_TRUE(in) << GetParam();
  std::string line, command, shown;
  bool inside = false;
  int run = 0;
  const auto check_one = [&] {
    if (command.empty()) return;
    std::istringstream text(command);
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    words.erase(words.begin());
    const Outcome outcome = run_moesim(words, root);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.err;
    EXPECT_EQ(outcome.out, shown) << command << "\n(tools/refresh_examples.py brings documents up to date)";
    ++run;
  };
  while (std::getline(in, line)) {
    if (line.starts_with("```")) {
      if (inside) check_one();
      inside = !inside;
      command.clear();
      shown.clear();
    } else if (inside && line.starts_with("$ build/moesim whatif ")) {
      check_one();
      shown.clear();
      command = line.substr(2);
    } else if (inside && !command.empty()) {
      shown += line + "\n";
    }
  }
  EXPECT_GT(run, 0) << "no command to run";
}

INSTANTIATE_TEST_SUITE_P(WhatIf, Documents, ::testing::Values("docs/whatif.md"));

}  // namespace
}  // namespace moesim::tools
