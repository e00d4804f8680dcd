// The summary of a sweep, for people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tools/moesim/study/sweep_kind.h"

namespace moesim::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A sweep of scenarios over ep and topk, with the columns that its summary reads.
SweepTable table_of(RowFormat format) {
  const std::vector<std::string> kept{"dispatcher", "time_us.value",         "winner", "tokens_per_s_per_gpu",
                                      "mfu",        "peak_memory_bytes.max", "fits"};
  std::vector<SweepColumn> columns = columns_of_scenarios(false, false, false);
  std::erase_if(columns, [&](const SweepColumn& column) {
    return std::find(kept.begin(), kept.end(), column.name) == kept.end();
  });
  return {format,
          {{"ep", models::FieldType::kInteger, ""}, {"topk", models::FieldType::kInteger, ""}},
          std::move(columns)};
}

std::string summary_of(const SweepTable& table, const std::string& lines) {
  SweepSummary summary(table, summary_of_scenarios(false));
  table.read(lines, [&](const SweepRow& row) { summary.add(row); });
  return summary.text();
}

// Throughput falls by 2 with topk and rises by 1.25 with ep; the fastest of all does not fit.
constexpr const char* kRows =
    "0,8,1,a,1000,true,2000,0.2,50e9,true,\n0,8,1,b,1200,false,1666,0.2,50e9,true,\n"
    "1,8,2,a,4000,true,1000,0.1,50e9,true,\n2,16,1,b,500,true,2500,0.3,90e9,false,\n"
    "3,16,2,b,1500,true,1250,0.1,60e9,true,\n4,7,1,,,,,,,,\"ep: found 7, expected a divisor\"\n";

TEST(SweepSummary, NamesTheBestThatFitsAndWhatMatters) {
  const std::string text = summary_of(table_of(RowFormat::kCsv), kRows);
  EXPECT_THAT(text, StartsWith("Best of 5 scenarios: ep = 8, topk = 1 with a: 2000 tokens/s/GPU.\n"));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("topk: 2.00 times from 2 (worst) to 1 (best)"),
            HasSubstr("ep: 1.25 times from 8 (worst) to 16 (best)"),
            HasSubstr("Not among the best for want of memory: 1 of 5 scenarios."),
            HasSubstr("Without a forecast: 1 of 5 scenarios; the first: ep: found 7, expected a divisor\n")));
  EXPECT_LT(text.find("topk: 2.00"), text.find("ep: 1.25"));
  EXPECT_THAT(text, HasSubstr("time [ms]"));
}

// HH, 7: EP 8 fits nowhere.
TEST(SweepSummary, AValueThatFitsNowhereIsNotTheBest) {
  const std::string text =
      summary_of(table_of(RowFormat::kCsv),
                 "0,8,1,a,1000,true,4000,0.2,90e9,false,\n1,8,2,a,1000,true,3000,0.2,90e9,false,\n"
                 "2,16,1,a,1000,true,2000,0.2,50e9,true,\n3,16,2,a,1000,true,1000,0.2,50e9,true,\n"
                 "4,32,1,a,1000,true,1000,0.2,50e9,true,\n5,32,2,a,1000,true,500,0.2,50e9,true,\n");
  EXPECT_THAT(text, AllOf(HasSubstr("ep: 2.00 times from 32 (worst) to 16 (best)"),
                          HasSubstr("topk: 2.00 times from 2 (worst) to 1 (best)"),
                          HasSubstr("for want of memory: 2 of 6 scenarios")));
}

TEST(SweepSummary, NothingThatFitsIsSaid) {
  EXPECT_THAT(summary_of(table_of(RowFormat::kCsv), "0,8,1,a,1000,true,2000,0.2,90e9,false,\n"),
              StartsWith("Best of 1 scenarios, none of which fits the memory: ep = 8, topk = 1 with a"));
}

// Rows say the same as CSV and as JSON.
TEST(SweepSummary, BothFormatsOfATableSayTheSame) {
  std::vector<std::string> texts;
  for (const RowFormat format : {RowFormat::kCsv, RowFormat::kJsonLines}) {
    const SweepTable table = table_of(format);
    std::string lines;
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto topk = static_cast<std::int64_t>(i + 1);
      table.write(lines, i, {{8, "8", 8}, {topk, std::to_string(topk), static_cast<double>(topk)}},
                  {std::string("a"), 1000.0 / 3, true, 2000 + 1e-5 * static_cast<double>(i), 0.123456789,
                   5e10, true});
    }
    table.write_error(lines, 3, {{8, "8", 8}, {9, "9", 9}}, "topk: found 9");
    texts.push_back(summary_of(table, lines));
    // Numbers that differ only behind the digits that are printed are equal.
    EXPECT_THAT(texts.back(), StartsWith("Best of 4 scenarios: ep = 8, topk = 1 with a: 2000 tokens/s/GPU."));
  }
  EXPECT_EQ(texts.front(), texts.back());
}

}  // namespace
}  // namespace moesim::tools
