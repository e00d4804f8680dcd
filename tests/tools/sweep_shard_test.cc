// Sweeps in parts, and one table out of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "tests/message_of.h"
#include "tests/tools/process.h"
#include "tools/moesim/study/sweep_file.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;
using Words = std::vector<std::string>;

TEST(SweepShard, ReadsPartAndCount) {
  const SweepShard shard = SweepShard::parse("2/16");
  EXPECT_EQ(shard.index, 2u);
  EXPECT_EQ(shard.count, 16u);
  for (const char* bad : {"", "2", "2/", "/2", "2/2", "-1/2", "1/0", "a/b", "1/2000000"})
    EXPECT_THAT(message_of([&] { SweepShard::parse(bad); }), HasSubstr("expected I/N")) << bad;
}

RC_GTEST_PROP(SweepShard, PartsCoverAllOnceAndAreAlikeToOne, ()) {
  const auto count = *rc::gen::inRange<std::uint64_t>(1, 200);
  const auto scenarios = *rc::gen::inRange<std::uint64_t>(0, 1'000'000);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto [begin, end] = SweepShard{i, count}.of(scenarios);
    RC_ASSERT(begin == at && end >= begin);
    RC_ASSERT(end - begin - scenarios / count <= 1);
    at = end;
  }
  RC_ASSERT(at == scenarios);
}

class Shards : public ::testing::Test {
 protected:
  Shards() {
    folder_.write("s.json", R"({"model": "mixtral-8x7b", "parallel": {"ep": 8, "seq": 1024},
 "dispatcher": "allgather,alltoall", "routing": "zipf:1.2", "cluster": "dgx-h100x4"})");
  }
  Outcome sweep(const std::string& out, Words more) const {
    Words words{"sweep", "s.json", "--grid", "topk=1..4", "--grid", "ep=4,8,7", "-q", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    return run_moesim(words, folder_.path());
  }
  Outcome merge(const Words& parts, const Words& more = {}) const {
    Words words{"sweep", "merge"};
    words.insert(words.end(), parts.begin(), parts.end());
    words.insert(words.end(), {"--out", "all.csv"});
    words.insert(words.end(), more.begin(), more.end());
    return run_moesim(words, folder_.path());
  }
  std::string text(const std::string& name) const { return read_text(folder_.path() / name); }
  TempFolder folder_;
};

TEST_F(Shards, MergedAreTheBytesOfOneSweep) {
  ASSERT_EQ(sweep("whole.csv", {}).exit_code, 0);
  for (const char* part : {"0/3", "1/3", "2/3"})
    ASSERT_EQ(sweep("p" + std::string(part, 1) + ".csv", {"--shard", part}).exit_code, 0);
  const Outcome done = merge({"p2.csv", "p0.csv", "p1.csv"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(text("all.csv"), text("whole.csv"));
  auto record = nlohmann::json::parse(text("all.csv.json")),
       whole = nlohmann::json::parse(text("whole.csv.json"));
  EXPECT_EQ(record["definition"], whole["definition"]);
  EXPECT_EQ(record["rows"]["sha256"], whole["rows"]["sha256"]);
  EXPECT_EQ(record["rows"]["scenarios"], 12);
  const Outcome again = run_moesim({"rerun", "all.csv.json"}, folder_.path());
  EXPECT_EQ(again.exit_code, 0) << again.err << again.out;
}

TEST_F(Shards, MoreJobsThanScenariosMergeToo) {
  ASSERT_EQ(sweep("whole.csv", {}).exit_code, 0);
  Words parts;
  for (int i = 0; i < 16; ++i) {
    parts.push_back("p" + std::to_string(i) + ".csv");
    ASSERT_EQ(sweep(parts.back(), {"--shard", std::to_string(i) + "/16"}).exit_code, 0);
  }
  ASSERT_EQ(merge(parts).exit_code, 0);
  EXPECT_EQ(text("all.csv"), text("whole.csv"));
}

TEST_F(Shards, WhatDoesNotBelongTogetherIsRefused) {
  for (const char* part : {"0/2", "1/2"})
    ASSERT_EQ(sweep("p" + std::string(part, 1) + ".csv", {"--shard", part}).exit_code, 0);
  ASSERT_EQ(sweep("other.csv", {"--shard", "1/2", "--breakdown"}).exit_code, 0);
  ASSERT_EQ(sweep("whole.csv", {}).exit_code, 0);
  EXPECT_THAT(merge({"p0.csv"}).err, HasSubstr("found 1 of 2 parts, expected all; part 1 is not there"));
  EXPECT_THAT(merge({"p0.csv", "p0.csv", "p1.csv"}).err, HasSubstr("part 0 again"));
  EXPECT_THAT(merge({"p0.csv", "other.csv"}).err, HasSubstr("other.csv: found a part of another sweep"));
  EXPECT_THAT(merge({"p0.csv", "whole.csv"}).err, HasSubstr("the record of a whole sweep"));
  EXPECT_THAT(merge({"p0.csv", "p1.csv", "all.csv"}).err, HasSubstr("all.csv"));
  folder_.write("p1.csv", text("p1.csv") + "x\n");
  EXPECT_THAT(merge({"p0.csv", "p1.csv"}).err, HasSubstr("a table that is not the one of its record"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "all.csv"));
}

// Also one whose record agrees with it.
TEST_F(Shards, APartThatLacksAScenarioIsRefused) {
  for (const char* part : {"0/2", "1/2"})
    ASSERT_EQ(sweep("p" + std::string(part, 1) + ".csv", {"--shard", part}).exit_code, 0);
  const std::string whole = text("p0.csv");
  const auto refused = [&](const std::string& table, const char* says) {
    folder_.write("p0.csv", table);
    nlohmann::ordered_json record = nlohmann::ordered_json::parse(text("p0.csv.json"));
    record["rows"]["sha256"] = sha256_hex(table);
    folder_.write("p0.csv.json", record.dump(2) + "\n");
    const Outcome outcome = merge({"p0.csv", "p1.csv"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(says));
    for (const char* ending : {".partial", ".partial.json", ".partial.sums"})
      std::filesystem::remove(folder_.path() / (std::string("all.csv") + ending));
  };
  const auto without = [&](const std::string& scenario) {
    std::string kept;
    std::istringstream lines(whole);
    for (std::string line; std::getline(lines, line);)
      if (!line.starts_with(scenario + ",")) kept += line + "\n";
    return kept;
  };
  refused(without("5"), "no rows behind scenario 4, expected all up to 5");
  refused(without("2"), "rows of scenario 3 behind those of 1");
  refused(without("0"), "rows of scenario 1 behind those of 0");
  folder_.write("p0.csv", whole);
}

TEST_F(Shards, APartIsNotGoneOnWithAsAnother) {
  ASSERT_EQ(sweep("p.csv", {"--shard", "0/2"}).exit_code, 0);
  const std::string rows = text("p.csv");
  ASSERT_EQ(sweep("p.csv", {"--shard", "1/2", "--resume"}).exit_code, 0);
  EXPECT_NE(text("p.csv"), rows);
}

}  // namespace
}  // namespace moesim::tools
