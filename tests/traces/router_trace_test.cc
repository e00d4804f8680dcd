// Megatron-Core's router traces become dispatching files.
#include "traces/router_trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/input_error.h"
#include "tests/message_of.h"
#include "tests/traces/temporary_folder.h"

namespace moesim::traces {
namespace {

using moesim::testing::message_of;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string record(int step, int layer, int rank, const std::string& choices, int tokens, int topk = 2,
                   const std::string& block = "decoder") {
  return fmt::format(
             R"({{"step": {}, "stage": "pre_dispatch", "block": "{}", "layer": {}, "rank": {}, "num_tokens": {}, "topk": {}, "top_indices": {}}})",
             step, block, layer, rank, tokens, topk, choices) +
         "\n";
}

std::string refusal(const std::filesystem::path& path, const RouterTraceOptions& options = {}) {
  return message_of([&] { read_router_trace(path, options); });
}

TEST(RouterTrace, RanksLayersAndMicrobatchesBecomeTables) {
  const TemporaryFolder folder;
  for (const int rank : {0, 1}) {
    std::string text;
    for (const int step : {3, 4})
      for (const int microbatch : {0, 1})
        for (const int layer : {1, 2})
          text += record(step, layer, rank,
                         fmt::format("[[{}, 3], [0, {}], [2, 3]]", rank, 1 + microbatch + (step == 4)), 3);
    text += record(3, 0, rank, "[[0, 1]]", 1, 2, "mtp");
    folder.write(fmt::format("router_trace_rank{}.jsonl", rank), text);
  }
  const RouterTrace trace = read_router_trace(folder.path());
  const Dispatching& routing = trace.dispatching;
  EXPECT_EQ(routing.ep, 2);
  EXPECT_EQ(routing.experts, 4);
  EXPECT_EQ(routing.entries.size(), 4u);
  const DispatchingTable* table = routing.find(2, 1);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->sent, (std::vector<std::int64_t>{2, 0, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ(table->topk.at(1).experts, (std::vector<std::int32_t>{1, 3, 0, 2, 2, 3}));
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("2 steps")));
  EXPECT_THAT(trace.warnings, Contains(HasSubstr("2 records of other blocks")));
  EXPECT_EQ(parse_dispatching(write_dispatching(routing), "again.json"), routing);
  RouterTraceOptions eight;
  eight.experts = 8;
  eight.ep = 1;
  EXPECT_EQ(read_router_trace(folder.path(), eight).dispatching.experts, 8);
}

TEST(RouterTrace, WhatDoesNotFitIsNamedWithItsLine) {
  const TemporaryFolder folder;
  const auto said = [&](const std::string& text, const RouterTraceOptions& options = {}) {
    folder.write("router_trace_rank0.jsonl", text);
    return refusal(folder.path(), options);
  };
  const std::string good = record(0, 0, 0, "[[0, 1], [1, 2]]", 2);
  EXPECT_THAT(said("{\"layer\": 0}\n"), HasSubstr("rank0.jsonl:1: found no top_indices"));
  EXPECT_THAT(said(good + "{\n"), HasSubstr("rank0.jsonl:2"));
  EXPECT_THAT(said(good + record(0, 1, 0, "[[0, 1], [1]]", 2)), HasSubstr("rank0.jsonl:2: found 1 experts"));
  EXPECT_THAT(said(record(0, 0, 0, "[[0, 1]]", 2)), HasSubstr("num_tokens 2"));
  RouterTraceOptions two;
  two.ep = 2;
  EXPECT_THAT(said(good, two), HasSubstr("--ep"));
  RouterTraceOptions few;
  few.experts = 2;
  EXPECT_THAT(said(good, few), HasSubstr("one of the 2 of --experts"));
  EXPECT_THAT(said(good, {.step = 3, .ep = {}, .experts = {}}), HasSubstr("1 recorded steps"));
  EXPECT_THAT(refusal(folder.path() / "nowhere"), HasSubstr("cannot open"));
}

}  // namespace
}  // namespace moesim::traces
