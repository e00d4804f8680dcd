// Output of verbs for programs: JSON with its envelope, CSV with as many cells as columns, the same bytes
// every time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/command.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::realistic;
using testing::run_moesim;
using testing::sample_folder;
using testing::scaling;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

const std::string kWarning = "moesim: warning: ";

struct Command {
  std::string name;
  std::string schema;
  Words words;
};

void PrintTo(const Command& command, std::ostream* out) { *out << command.name; }

std::vector<Command> commands() {
  const Words validate{"validate", "--forecast", scaling(), "--measured", realistic()};
  return {
      {"list", "moesim.list/1", {"list"}},
      {"list_models", "moesim.list/1", {"list", "models"}},
      {"list_recipes", "moesim.list/1", {"list", "recipes"}},
      {"compare",
       "moesim.compare/1",
       {"compare", "--model", "mixtral-8x7b", "--ep", "8", "--routing", "zipf:1.2", "--draws", "4"}},
      {"compare_messages",
       "moesim.compare/1",
       {"compare", "--model", "qwen3-30b-a3b", "--ep", "4", "--detail", "messages", "--draws", "0"}},
      {"replay_scaling", "moesim.replay/1", {"replay", scaling(), "--microbatches", "4"}},
      {"replay_explained", "moesim.replay/1", {"replay", scaling(), "--explain"}},
      {"replay_realistic", "moesim.replay/1", {"replay", realistic(), "--cluster", "echo-h800x2"}},
      {"validate", "moesim.validate/1", validate},
      {"validate_all", "moesim.validate/1", {"validate", "--all", sample_folder().parent_path().string()}},
      {"trace_info", "moesim.trace-info/1", {"trace", "info", scaling()}},
      {"trace_check", "moesim.trace-check/1", {"trace", "check", realistic()}},
  };
}

class EveryCommand : public ::testing::TestWithParam<Command> {
 protected:
  static Outcome run(Words more) {
    Words words = GetParam().words;
    words.insert(words.end(), more.begin(), more.end());
    return run_moesim(words);
  }
};

TEST_P(EveryCommand, PrintsATableForPeople) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_GT(outcome.out.size(), 40u);
  EXPECT_EQ(outcome.out.back(), '\n');
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) EXPECT_THAT(line, StartsWith(kWarning));
  const Outcome quiet = run({"--quiet"});
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, outcome.out);
}

// Every number of a result is a number: no NaN turned null, no infinity.
void expect_finite(const json& value, const std::string& path) {
  if (value.is_object())
    for (const auto& [key, item] : value.items()) {
      // Intentional nulls: no bar against the dispatcher, a replay without memory, nothing left to measure,
      // and no probability without draws.
      static const std::set<std::string> kNull{
          "not_ranked_because", "peak_memory_bytes", "measure_next", "settle",
          "probability",        "expected_loss",     "loss_at_most"};
      if (!kNull.contains(key)) expect_finite(item, path + "." + key);
    }
  else if (value.is_array())
    for (const auto& item : value) expect_finite(item, path + "[]");
  else
    EXPECT_FALSE(value.is_null()) << path;
}

TEST_P(EveryCommand, PrintsJsonWithItsEnvelope) {
  const Outcome outcome = run({"--format", "json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result.at("schema"), GetParam().schema);
  EXPECT_EQ(result.at("version"), version());
  ASSERT_TRUE(result.at("inputs").is_object());
  ASSERT_TRUE(result.at("inputs").at("files").is_object());
  for (const auto& [file, facts] : result["inputs"]["files"].items())
    EXPECT_EQ(facts.at("sha256").get<std::string>().size(), 64u) << file;
  EXPECT_EQ(result["inputs"].at("command").get<Words>().front(), GetParam().words.front());
  ASSERT_TRUE(result.at("warnings").is_array());
  // The envelope comes first, so that a reader of a large result meets it at once.
  const auto ordered = nlohmann::ordered_json::parse(outcome.out);
  Words first;
  for (const auto& [key, value] : ordered.items())
    if (first.size() < 4) first.push_back(key);
  EXPECT_EQ(first, (Words{"schema", "version", "inputs", "warnings"}));
  // Whatever people are warned of, programs are too.
  std::istringstream lines(outcome.err);
  for (std::string line; std::getline(lines, line);) {
    ASSERT_THAT(line, StartsWith(kWarning));
    if (line.ends_with("more in the result's \"warnings\"")) continue;
    EXPECT_THAT(result["warnings"].get<Words>(), ::testing::Contains(line.substr(kWarning.size())));
  }
  expect_finite(result, "");
}

// Rows of RFC 4180 text.
std::vector<Words> csv_rows(const std::string& text) {
  std::vector<Words> rows(1, Words(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& cell = rows.back().back();
    if (text[i] == '"') {
      if (quoted && i + 1 < text.size() && text[i + 1] == '"')
        cell += text[i++];
      else
        quoted = !quoted;
    } else if (text[i] == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (text[i] == '\n' && !quoted) {
      rows.emplace_back(1);
    } else {
      cell += text[i];
    }
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(rows.back(), Words(1)) << "the last line ends";
  rows.pop_back();
  return rows;
}

TEST_P(EveryCommand, PrintsRectangularCsv) {
  const Outcome outcome = run({"--format", "csv", "--quiet"});
  if (GetParam().words.back() == "--explain") {  // sentences are no cells
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.error_lines(), 1u);
    return;
  }
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto rows = csv_rows(outcome.out);
  ASSERT_GE(rows.size(), 1u);
  for (const auto& row : rows) EXPECT_EQ(row.size(), rows.front().size());
  for (const auto& column : rows.front()) EXPECT_NE(column, "");
  if (GetParam().name != "trace_check") {
    EXPECT_GE(rows.size(), 2u);
  }
}

TEST_P(EveryCommand, SaysTheSameTwiceAndOnAnyNumberOfThreads) {
  for (const char* format : {"table", "json", "csv"}) {
    const Outcome first = run({"--format", format});
    const Outcome second = run({"--format", format});
    EXPECT_EQ(first.out, second.out) << format;
    EXPECT_EQ(first.err, second.err) << format;
  }
  const Outcome one = run({"--threads", "1", "--format", "csv"});
  const Outcome many = run({"--threads", "7", "--format", "csv"});
  EXPECT_EQ(one.out, many.out);
}

INSTANTIATE_TEST_SUITE_P(Moesim, EveryCommand, ::testing::ValuesIn(commands()),
                         [](const auto& info) { return info.param.name; });

TEST(Output, AClosedPipeEndsQuietly) {
  // Like `moesim list | head -0`: the reader closed before the first byte.
  for (const Words& words : {Words{"list"}, Words{"replay", scaling(), "--quiet"}}) {
    const Outcome outcome = run_moesim(words, {}, testing::Output::kClosedPipe);
    EXPECT_EQ(outcome.err, "") << words.front();
    EXPECT_EQ(outcome.exit_code, 141) << words.front();
  }
}

TEST(Output, AFullDiskIsAnError) {
  const Outcome outcome = run_moesim({"list"}, {}, testing::Output::kFullDisk);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error_lines(), 1u);
  EXPECT_THAT(outcome.err, HasSubstr("No space left on device"));
}

TEST(Output, ValidateFailsAboveTheAskedError) {
  const Words words{"validate", "--forecast", scaling(), "--measured", realistic(), "--quiet", "--max-error"};
  const auto with = [&](const char* limit) {
    Words all = words;
    all.push_back(limit);
    return run_moesim(all);
  };
  EXPECT_EQ(with("99%").exit_code, 0);
  const Outcome failed = with("0.000001%");
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("iteration"));
  EXPECT_EQ(with("many").exit_code, 2);
}

TEST(Output, ValidateSaysWhatLiesOutsideTheInterval) {
  // A host's recording is forecast as if H800s had moved its gradients.
  const std::filesystem::path host = sample_folder().parent_path().parent_path() / "host" /
                                     "alltoall-balanced" / "pp1_tp1_exp4_expn8_dp4_nl2_hs256_sl256";
  const Outcome outcome = run_moesim({"validate", "--forecast", (host / "scaling").string(), "--measured",
                                      (host / "realistic").string(), "--max-error", "10%"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, ::testing::ContainsRegex("\niteration .*  outside the interval\n"));
  EXPECT_THAT(outcome.err,
              ::testing::ContainsRegex("check failed: the iteration is off by [0-9.]+ %, more than "
                                       "--max-error 10"));
  const Outcome synthetic = run_moesim({"validate", "--forecast", scaling(), "--measured", realistic()});
  EXPECT_THAT(synthetic.out, ::testing::ContainsRegex("\niteration .*  inside\n"));
}

}  // namespace
}  // namespace moesim::tools
