// Commands without a shell: what they print is kept, what they read is listed, thread by thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tests/message_of.h"
#include "tools/moesim/verbs/command_line.h"

namespace moesim::tools {
namespace {

using moesim::testing::message_of;
using testing::run_moesim;
using testing::TempFolder;

const std::vector<std::string> kCompare{"compare",  "--model", "mixtral-8x7b", "--cluster", "dgx-h100x1",
                                        "--ep",     "8",       "--draws",      "4",         "--quiet",
                                        "--format", "json"};

TEST(RunCommand, PrintsWhatTheProgramPrints) {
  for (const auto& words : {kCompare, std::vector<std::string>{"list", "models", "--format", "csv"}}) {
    const CommandOutput made = run_command(words);
    EXPECT_EQ(made.exit_code, 0);
    EXPECT_EQ(made.text, run_moesim(words).out);
  }
}

TEST(RunCommand, RefusesInTheProgramsWords) {
  const std::vector<std::string> words{"compare", "--model", "mixtral-8x7", "--ep", "8"};
  EXPECT_EQ("moesim: " + message_of([&] { run_command(words); }) + "\n", run_moesim(words).err);
}

TEST(RunCommand, ThreadsListTheirOwnFiles) {
  const TempFolder folder;
  std::vector<std::thread> threads;
  std::vector<std::string> read(4);
  for (int n = 0; n < 4; ++n) {
    folder.write(
        "s" + std::to_string(n) + ".json",
        R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "topk": )" + std::to_string(n + 1) + "}");
    threads.emplace_back([&, n] {
      const std::string file = folder / ("s" + std::to_string(n) + ".json");
      for (int i = 0; i < 3; ++i)
        read[n] += nlohmann::json::parse(
                       run_command({"compare", file, "--draws", "0", "--quiet", "--format", "json"}).text)
                       .at("inputs")
                       .at("files")
                       .begin()
                       .key() +
                   " ";
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int n = 0; n < 4; ++n) {
    const std::string file = folder / ("s" + std::to_string(n) + ".json") + " ";
    EXPECT_EQ(read[n], file + file + file);
  }
}

TEST(RunCommand, AScenarioMayStandInTheLine) {
  const TempFolder folder;
  const std::string scenario = R"({"model": "mixtral-8x7b", "parallel": {"ep": 8}, "routing": "zipf:1.2"})";
  folder.write("s.json", scenario);
  const auto numbers = [](const testing::Outcome& outcome) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out).at("scenarios");
  };
  EXPECT_EQ(numbers(run_moesim({"compare", scenario, "--draws", "0", "-q", "--format", "json"})),
            numbers(run_moesim({"compare", folder / "s.json", "--draws", "0", "-q", "--format", "json"})));
  EXPECT_THAT(run_moesim({"whatif", scenario, "--set", "topk=1", "-q"}).exit_code, 0);
}

}  // namespace
}  // namespace moesim::tools
