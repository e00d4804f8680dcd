// What a sweep found, for people.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/process.h"
#include "tools/moesim/sweeps/sweep_kind.h"

namespace moesim::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::vector<std::string> kColumns{"scenario",
                                        "ep",
                                        "topk",
                                        "dispatcher",
                                        "time_us.value",
                                        "winner",
                                        "tokens_per_s_per_gpu",
                                        "mfu",
                                        "peak_memory_bytes.max",
                                        "fits",
                                        "error"};

// Throughput falls by 2 with topk and rises by 1.25 with ep; the fastest of all does not fit.
constexpr const char* kRows =
    "0,8,1,a,1000,true,2000,0.2,50e9,true,\n0,8,1,b,1200,false,1666,0.2,50e9,true,\n"
    "1,8,2,a,4000,true,1000,0.1,50e9,true,\n2,16,1,b,500,true,2500,0.3,90e9,false,\n"
    "3,16,2,b,1500,true,1250,0.1,60e9,true,\n4,7,1,,,,,,,,\"ep: found 7, expected a divisor\"\n";

TEST(SweepSummary, NamesTheBestThatFitsAndWhatMatters) {
  SweepSummary summary(kColumns, {"ep", "topk"}, summary_of_scenarios(false));
  summary.add(kRows);
  const std::string text = summary.text();
  EXPECT_THAT(text, StartsWith("Best of 5 scenarios: ep = 8, topk = 1 with a: 2000 tokens/s/GPU.\n"));
  EXPECT_THAT(
      text, AllOf(HasSubstr("topk: 2.00 times from 2 (worst) to 1 (best)"),
                  HasSubstr("ep: 1.25 times from 8 (worst) to 16 (best)"),
                  HasSubstr("1 scenarios do not fit the memory"), HasSubstr("1 scenarios have no forecast")));
  EXPECT_LT(text.find("topk: 2.00"), text.find("ep: 1.25"));
  EXPECT_THAT(text, HasSubstr("time [ms]"));
}

TEST(SweepSummary, JsonLinesSayTheSame) {
  SweepSummary csv(kColumns, {"ep"}, summary_of_scenarios(false)),
      lines(kColumns, {"ep"}, summary_of_scenarios(false));
  csv.add("0,8,1,a,1000,true,2000,0.2,5e10,true,\n");
  lines.add(R"({"scenario":0,"ep":8,"topk":1,"dispatcher":"a","time_us.value":1000,"winner":true,)"
            R"("tokens_per_s_per_gpu":2000,"mfu":0.2,"peak_memory_bytes.max":5e10,"fits":true})"
            "\n");
  EXPECT_EQ(csv.text(), lines.text());
}

TEST(SweepSummary, NothingThatFitsIsSaid) {
  SweepSummary summary(kColumns, {"ep"}, summary_of_scenarios(false));
  summary.add("0,8,1,a,1000,true,2000,0.2,90e9,false,\n");
  EXPECT_THAT(summary.text(),
              StartsWith("Best of 1 scenarios, none of which fits the memory: ep = 8 with a"));
}

TEST(SweepSummary, IsWhatASweepPrintsAndRowsComeOnRequest) {
  const testing::TempFolder folder;
  folder.write("s.json", R"({"model": "mixtral-8x7b", "parallel": {"ep": 8, "seq": 1024},
 "dispatcher": "allgather,alltoall", "cluster": "dgx-h100x4"})");
  const std::vector<std::string> words{"sweep", "s.json", "--grid", "topk=1,2", "-q"};
  const testing::Outcome people = testing::run_moesim(words, folder.path());
  ASSERT_EQ(people.exit_code, 0) << people.err;
  EXPECT_THAT(people.out, AllOf(StartsWith("Best of 2 scenarios: topk = 1 with "), HasSubstr("--format csv"),
                                Not(HasSubstr("time_us.value"))));
  std::vector<std::string> csv = words;
  csv.insert(csv.end(), {"--format", "csv"});
  EXPECT_THAT(testing::run_moesim(csv, folder.path()).out,
              StartsWith("scenario,topk,dispatcher,time_us.value"));
}

}  // namespace
}  // namespace moesim::tools
