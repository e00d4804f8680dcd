// Dispatching files and router traces: what is read, and what every mistake is called.
#include "traces/dispatching.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <string>

#include "base/file_io.h"
#include "base/input_error.h"
#include "tests/cases.h"
#include "tests/message_of.h"
#include "tests/traces/temporary_folder.h"
#include "traces/router_trace.h"

namespace moesim::traces {
namespace {

using moesim::testing::message_of;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string dispatching_error(const std::string& text) {
  return message_of([&] { parse_dispatching(text, "routing.json"); });
}

// Two ranks, four experts, two choices for each of four tokens.
constexpr const char* kSmall = R"({
  "ep": 2, "experts": 4,
  "per_rank_results": {
    "0": {"num_local_tokens_per_expert": [3, 1, 2, 2], "tokens_per_local_expert": [7, 2]},
    "1": {"num_local_tokens_per_expert": [4, 1, 3, 0]}
  },
  "num_global_tokens_per_expert": [[3, 1, 2, 2], [4, 1, 3, 0]]
})";

TEST(Dispatching, SentAndReceivedAreKeptApart) {
  const Dispatching dispatching = parse_dispatching(kSmall, "routing.json");
  EXPECT_EQ(dispatching.ep, 2);
  EXPECT_EQ(dispatching.experts, 4);
  const DispatchingTable* table = dispatching.find(17, 3);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->sent, (std::vector<std::int64_t>{3, 1, 2, 2, 4, 1, 3, 0}));
  EXPECT_EQ(table->received, (std::vector<std::int64_t>{7, 2, 5, 2}));
  EXPECT_TRUE(table->topk.empty());
}

TEST(Dispatching, TheFormOfARecorderInScalingModeReadsBack) {
  const Dispatching whole =
      parse_dispatching(R"({"config": {"is_scaling_mode": true, "fake_tp": 2, "exp_rank": 1,
    "moe_router_topk": 2}, "per_rank_dispatching_results": {
    "0": {"tokens_per_local_expert": [7, 2]}, "1": {"tokens_per_local_expert": [5, 2]}}})",
                        "config.json");
  EXPECT_EQ(whole.ep, 2);
  EXPECT_EQ(whole.experts, 4);
  ASSERT_TRUE(whole.scaling.has_value());
  EXPECT_EQ(*whole.scaling, (ScalingMode{2, 1, 2}));
  EXPECT_EQ(whole.find(0, 0)->received, (std::vector<std::int64_t>{7, 2, 5, 2}));
  EXPECT_EQ(whole.find(0, 0)->not_representative, "");
  // Rank 1 routes as the imitated one does, of which there are two.
  const Dispatching fallen =
      parse_dispatching(R"({"is_scaling_mode": true, "exp_rank": 0, "num_moe_experts": 4,
    "expert_model_parallel_size": 2, "per_rank_dispatching_results": {
    "0": {"num_local_tokens_per_expert": [3, 1, 2, 2], "tokens_per_local_expert": [7, 2]}}})",
                        "config.json");
  EXPECT_EQ(fallen.find(0, 0)->received, (std::vector<std::int64_t>{7, 2, 4, 4}));
  EXPECT_THAT(fallen.find(0, 0)->not_representative, HasSubstr("not representative"));
  for (const Dispatching& one : {whole, fallen})
    EXPECT_EQ(parse_dispatching(write_dispatching(one), "written.json"), one);
}

TEST(Dispatching, TheDocumentedExampleIsRead) {
  const std::string page = read_file(std::filesystem::path(MOESIM_SOURCE_DIR) / "docs" / "formats.md");
  const std::size_t start = page.find("```json\n", page.find("## Dispatching files"));
  ASSERT_NE(start, std::string::npos);
  const Dispatching dispatching =
      parse_dispatching(page.substr(start + 8, page.find("```", start + 8) - start - 8), "docs/formats.md");
  EXPECT_EQ(dispatching.find(0, 0)->received, (std::vector<std::int64_t>{7, 2, 5, 2}));
  EXPECT_EQ(dispatching.find(0, 0)->topk[0].tokens, 4);
  EXPECT_EQ(dispatching.find(3, 0)->received, (std::vector<std::int64_t>{4, 4, 4, 4}));
}

TEST(Dispatching, TopkIndicesMakeTheHistogramsInBothPlaces) {
  const char* inside = R"({"ep": 2, "experts": 4, "per_rank_results": {
    "0": {"topk_indices": [[0, 1], [0, 3]]}, "1": {"topk_indices": [[2, 3], [1, 0]]}}})";
  const char* outside =
      R"({"ep": 2, "experts": 4, "topk_indices": {"0": [[0, 1], [0, 3]], "1": [[2, 3], [1, 0]]}})";
  const Dispatching a = parse_dispatching(inside, "a");
  EXPECT_EQ(a, parse_dispatching(outside, "b"));
  EXPECT_EQ(a.entries[0].table.sent, (std::vector<std::int64_t>{2, 1, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(a.entries[0].table.topk[1], (TopkIndices{2, 2, {2, 3, 1, 0}}));
}

TEST(Dispatching, TheMostParticularTableWins) {
  const Dispatching dispatching = parse_dispatching(R"({"ep": 1, "experts": 1,
    "per_rank_results": {"0": {"num_local_tokens_per_expert": [1]}},
    "tables": [{"layer": 2, "microbatch": 1, "per_rank_results": {"0": {"num_local_tokens_per_expert": [4]}}},
               {"layer": 2, "num_global_tokens_per_expert": [[2]]},
               {"microbatch": 1, "num_global_tokens_per_expert": [[3]]}]})",
                                                    "r");
  const auto rows = [&](int layer, int microbatch) { return dispatching.find(layer, microbatch)->sent[0]; };
  EXPECT_EQ(rows(0, 0), 1);
  EXPECT_EQ(rows(2, 0), 2);
  EXPECT_EQ(rows(0, 1), 3);
  EXPECT_EQ(rows(2, 1), 4);
  const Dispatching partial = parse_dispatching(
      R"({"ep": 1, "experts": 1, "tables": [{"layer": 2, "num_global_tokens_per_expert": [[2]]}]})", "p");
  EXPECT_EQ(partial.find(1, 0), nullptr);
  EXPECT_EQ(partial.find(2, 9)->sent[0], 2);
}

TEST(Dispatching, ReceivedCountsAloneAreAccepted) {
  const Dispatching dispatching = parse_dispatching(R"({"ep": 2, "experts": 4, "per_rank_results": {
    "0": {"tokens_per_local_expert": [7, 2]}, "1": {"tokens_per_local_expert": [5, 2]}}})",
                                                    "r");
  EXPECT_TRUE(dispatching.entries[0].table.sent.empty());
  EXPECT_EQ(dispatching.entries[0].table.received, (std::vector<std::int64_t>{7, 2, 5, 2}));
}

// Loads of experts as load balancers write them: a table per layer, of any number of ranks.
TEST(Dispatching, PlainLoadsAreTablesPerLayer) {
  const Dispatching two = parse_dispatching("[[90, 132, 40], [20, 107, 104]]", "loads.json");
  EXPECT_TRUE(two.loads);
  EXPECT_EQ(two.experts, 3);
  ASSERT_EQ(two.entries.size(), 2u);
  EXPECT_EQ(two.find(1, 7)->received, (std::vector<std::int64_t>{20, 107, 104}));
  const Dispatching one = parse_dispatching("[0.25, 0.5, 0.25]", "loads.json");
  EXPECT_EQ(one.find(4, 0)->received[1], 2 * one.find(4, 0)->received[0]);
  for (const char* bad : {"[]", "[[1, 2], [3]]", "[[0, 0]]", "[[1, -1]]", "[[1, \"a\"]]", "[[1], 2]"})
    EXPECT_THROW(parse_dispatching(bad, "loads.json"), InputError) << bad;
}

// SGLang and vLLM dump counts of all layers, those without experts as zeros, and SGLang a table a step.
TEST(Dispatching, ReadsLogicalCounts) {
  const Dispatching counts = parse_dispatching(
      R"({"rank": 0, "logical_count": [[0, 0, 0], [90, 132, 40], [20, 107, 104]],
          "average_utilization_rate_over_window": {"10": 0.7}})",
      "counts.json");
  EXPECT_EQ(counts, parse_dispatching("[[90, 132, 40], [20, 107, 104]]", "loads.json"));
  EXPECT_EQ(parse_dispatching(R"({"logical_count": [[[1, 2], [0, 0]], [[3, 4], [0, 5]]]})", "counts.json"),
            parse_dispatching("[[4, 6], [0, 5]]", "loads.json"));
  for (const char* bad :
       {R"({"logical_count": []})", R"({"logical_count": [[0, 0]]})", R"({"logical_count": [[1, 2], [1]]})",
        R"({"logical_count": [1, 2]})", R"({"logical_count": [[1, 2]], "other": 1})",
        R"({"logical_count": [[[1, 2]], [[1, 2], [3, 4]]]})"})
    EXPECT_THROW(parse_dispatching(bad, "counts.json"), InputError) << bad;
}

TEST(Dispatching, ReadsLoadsByLayerInAnyOrderAndUnderOneKey) {
  const Dispatching plain = parse_dispatching("[[1, 1], [9, 1]]", "counts.json");
  EXPECT_EQ(parse_dispatching(R"({"layer_1": [9, 1], "layer_0": [1, 1]})", "counts.json"), plain);
  EXPECT_EQ(parse_dispatching(R"({"layers": {"4": [9, 1], "3": [1, 1]}})", "counts.json"), plain);
  EXPECT_EQ(parse_dispatching(R"({"tokens_per_expert": [[1, 1], [9, 1]]})", "counts.json"), plain);
  EXPECT_THROW(parse_dispatching(R"({"num_global_tokens_per_expert": [[1, 1], [9, 1]]})", "counts.json"),
               InputError);
}

TEST(Dispatching, AFileOfPyTorchSaysHowToConvertIt) {
  EXPECT_THAT(moesim::testing::message_of([] { read_dispatching("counts.pt"); }),
              HasSubstr("counts.pt: found a file of PyTorch, expected JSON: python3 -c"));
}

// Loads alone must not be read back as the rows of one rank.
TEST(Dispatching, LoadsAreWrittenAsLoads) {
  for (const char* text :
       {"[5]", "[[5]]", "[0.25, 0.5, 0.25]", "[[90, 132, 40], [20, 107, 104]]", "[9e15, 0]"}) {
    const Dispatching loads = parse_dispatching(text, "loads.json");
    EXPECT_EQ(parse_dispatching(write_dispatching(loads), "written.json"), loads) << text;
  }
  EXPECT_EQ(write_dispatching(parse_dispatching("[[90, 132], [20, 0]]", "loads.json")),
            "[\n  [90, 132],\n  [20, 0]\n]\n");
}

TEST(Dispatching, PartsThatContradictEachOtherAreRefusedWithTheirLines) {
  EXPECT_EQ(dispatching_error(R"({"ep": 2, "experts": 4,
 "per_rank_results": {
  "0": {"num_local_tokens_per_expert": [3, 1, 2, 2], "tokens_per_local_expert": [7, 3]},
  "1": {"num_local_tokens_per_expert": [4, 1, 3, 0]}}})"),
            "routing.json:3: found per_rank_results.0.tokens_per_local_expert 3 rows received by expert 1, "
            "expected 2, "
            "the sum of what the ranks send");
  EXPECT_EQ(dispatching_error(R"({"ep": 2, "experts": 4,
 "per_rank_results": {"0": {"num_local_tokens_per_expert": [3, 1, 2, 2]}},
 "num_global_tokens_per_expert": [[3, 1, 2, 2],
 [4, 1, 3, 0]],
 "topk_indices": {"1":
  [[0, 1, 2, 2]]}})"),
            "routing.json:5: found topk_indices.1 1 rows from rank 1 to expert 0, expected 4 as "
            "num_global_tokens_per_expert[1] says on line 4");
}

TEST(Dispatching, SentCountsInThePlaceOfReceivedOnesAreExplained) {
  EXPECT_THAT(
      dispatching_error(R"({"ep": 2, "experts": 4, "per_rank_results": {
    "0": {"num_local_tokens_per_expert": [3, 1, 2, 2], "tokens_per_local_expert": [3, 1]},
    "1": {"num_local_tokens_per_expert": [4, 1, 3, 0]}}})"),
      HasSubstr(
          "found per_rank_results.0.tokens_per_local_expert the rows that rank 0 sends to its own experts, "
          "expected the rows that its experts receive from all ranks, 7 for expert 0"));
}

TEST(Dispatching, RefusesBadInputInOneLine) {
  for (const auto& row : moesim::testing::cases("traces/refusals.json", "dispatching files")) {
    const std::string text = row[0], error = dispatching_error(text);
    EXPECT_THAT(error, HasSubstr(row[1].get<std::string>())) << text;
    EXPECT_THAT(error, ::testing::StartsWith("routing.json")) << text;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(Dispatching, WhatIsWrittenIsReadBack) {
  EXPECT_TRUE(rc::check("any dispatching file comes back", [] {
    Dispatching dispatching;
    dispatching.ep = *rc::gen::inRange(1, 5);
    dispatching.experts = dispatching.ep * *rc::gen::inRange(1, 4);
    const auto tables = *rc::gen::inRange(1, 4);
    for (int i = 0; i < tables; ++i) {
      DispatchingEntry entry;
      if (i > 0) entry.layer = i / 2;
      if (i == 2) entry.microbatch = 7;
      const bool with_topk = *rc::gen::arbitrary<bool>();
      entry.table.received.assign(static_cast<std::size_t>(dispatching.experts), 0);
      const auto topk = *rc::gen::inRange<std::int64_t>(1, 4);
      for (std::int64_t rank = 0; rank < dispatching.ep; ++rank) {
        TopkIndices indices{*rc::gen::inRange<std::int64_t>(1, 6), topk, {}};
        std::vector<std::int64_t> row(static_cast<std::size_t>(dispatching.experts), 0);
        for (std::int64_t k = 0; k < indices.tokens * topk; ++k) {
          indices.experts.push_back(
              *rc::gen::inRange<std::int32_t>(0, static_cast<std::int32_t>(dispatching.experts)));
          ++row[static_cast<std::size_t>(indices.experts.back())];
        }
        for (std::size_t e = 0; e < row.size(); ++e) entry.table.received[e] += row[e];
        entry.table.sent.insert(entry.table.sent.end(), row.begin(), row.end());
        if (with_topk) entry.table.topk.push_back(indices);
      }
      dispatching.entries.push_back(entry);
    }
    RC_ASSERT(parse_dispatching(write_dispatching(dispatching), "w") == dispatching);
  }));
}

// Megatron-Core's router traces become dispatching files.

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
