// One question has one answer, whichever verb is asked.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tests/models/random_scenario.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;

// The column of the only row.
double cell(const std::string& csv, const std::string& column) {
  std::istringstream lines(csv);
  std::string header, row, name, value;
  std::getline(lines, header);
  std::getline(lines, row);
  std::istringstream names(header), values(row);
  while (std::getline(names, name, ',') && std::getline(values, value, ','))
    if (name == column) return std::stod(value);
  ADD_FAILURE() << "no column " << column << " in " << header;
  return 0;
}

TEST(OneAnswer, CompareWhatIfSweepAndBestGiveTheSameNumber) {
  std::mt19937_64 random(7);
  for (int n = 0; n < 100; ++n) {
    const TempFolder folder;
    const json scenario = models::testing::legal_scenario_json(random, n % 2 == 0);
    SCOPED_TRACE(scenario.dump());
    folder.write("s.json", scenario.dump());
    const auto result = [&](std::vector<std::string> words) {
      words.insert(words.end(), {"--format", "json", "--quiet", "--draws", "0"});
      const Outcome outcome = run_moesim(words, folder.path());
      EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
      return json::parse(outcome.out, nullptr, false);
    };
    const json compared = result({"compare", "s.json"})["scenarios"][0];
    const double time = compared["time_us"]["value"];
    const std::string ep = scenario["parallel"]["ep"].dump();

    const json whatif = result({"whatif", "s.json", "--each", "--set", "gpu.flops=x2"});
    EXPECT_DOUBLE_EQ(whatif["baseline"]["dispatchers"][0]["time_us"]["value"].get<double>(), time)
        << "what-if";

    const Outcome sweep =
        run_moesim({"sweep", "s.json", "--grid", "ep=" + ep, "--out", "out.csv", "--quiet", "--draws", "0"},
                   folder.path());
    ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
    const std::string row = read_text(folder.path() / "out.csv");
    EXPECT_NEAR(cell(row, "time_us.value") / time, 1, 1e-9) << "sweep";
    EXPECT_NEAR(cell(row, "tokens_per_s_per_gpu") / compared["tokens_per_s_per_gpu"].get<double>(), 1, 1e-6);

    if (!scenario.contains("scope")) continue;  // plans are of steps
    const json best = result({"whatif", "s.json", "--best", "dispatcher", "--top", "20"});
    for (const json& plan : best["best"])
      if (plan["dispatcher"] == compared["dispatcher"]) {
        EXPECT_DOUBLE_EQ(plan["forecast"]["time_us"]["value"].get<double>(), time) << "--best";
        EXPECT_DOUBLE_EQ(plan["forecast"]["mfu"].get<double>(), compared["mfu"].get<double>());
        EXPECT_DOUBLE_EQ(plan["forecast"]["peak_memory_bytes"]["max"].get<double>(),
                         compared["peak_memory_bytes"]["max"].get<double>());
      }
  }
}

}  // namespace
}  // namespace moesim::tools
