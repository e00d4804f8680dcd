// Files that verbs write: whole or not at all, and what is in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::realistic;
using testing::run_moesim;
using testing::sample_folder;
using testing::scaling;
using testing::TempFolder;

std::size_t files_in(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(OutputFiles, AMissingFolderGetsNothing) {
  const TempFolder here;
  const Outcome outcome =
      run_moesim({"replay", scaling(), "--quiet", "--timeline", "no/such/folder/t.json"}, here.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.error_lines(), 1u);
  EXPECT_THAT(outcome.err, HasSubstr("no/such/folder/t.json"));
  EXPECT_EQ(files_in(here.path()), 0u);
}

TEST(OutputFiles, ReplaceWhatWasThereAndLeaveNothingElse) {
  const TempFolder here;
  here.write("t.json", "old");
  EXPECT_EQ(run_moesim({"replay", scaling(), "--quiet", "--timeline", "t.json"}, here.path()).exit_code, 0);
  EXPECT_EQ(files_in(here.path()), 1u);
  EXPECT_TRUE(json::accept(read_text(here.path() / "t.json")));
}

TEST(OutputFiles, AFailedRunLeavesTheOldFile) {
  const TempFolder here;
  here.write("t.json", "old");
  EXPECT_EQ(run_moesim({"replay", scaling(), "--cluster", "echo-h800x1", "--timeline", "t.json"}, here.path())
                .exit_code,
            2);
  EXPECT_EQ(read_text(here.path() / "t.json"), "old");
  EXPECT_EQ(files_in(here.path()), 1u);
}

TEST(OutputFiles, ConvertedRecordingsKeepTheirBytes) {
  const TempFolder here;
  const Outcome outcome = run_moesim({"trace", "convert", realistic(), here / "copy"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(files_in(here.path() / "copy"), 16u);
  for (const auto& entry : fs::directory_iterator(realistic()))
    EXPECT_EQ(read_text(entry.path()), read_text(here.path() / "copy" / entry.path().filename()));
  // A folder with something in it is not written over.
  const Outcome again = run_moesim({"trace", "convert", scaling(), here / "copy"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(again.error_lines(), 1u);
  for (const auto& entry : fs::directory_iterator(realistic()))
    EXPECT_EQ(read_text(entry.path()), read_text(here.path() / "copy" / entry.path().filename()));
}

// moesim-capture writes what the routers chose beside the recording that it made.
TEST(OutputFiles, ARecordingBesideItsRoutingIsConvertedAsARecording) {
  const TempFolder here;
  fs::copy(realistic(), here.path() / "run");
  const std::string record =
      R"({"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": 0, "rank": 0, "num_tokens": 1, "topk": 1, "top_indices": [[0]]})";
  here.write("run/routing_rank0.jsonl", record + "\n");
  const Outcome outcome = run_moesim({"trace", "convert", "run", "copy"}, here.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(files_in(here.path() / "copy"), 16u);
}

TEST(OutputFiles, SynthesizedRecordingsAreReplayedAndValidated) {
  const TempFolder here;
  const std::string folder = here / "out/pp4_tp1_ep2_expn8_dp2_nl8_hs4096_sl2048";
  const std::vector<std::string> make{"trace",          "synthesize", "--out",  here / "out", "--pp",  "4",
                                      "--ep",           "2",          "--dp",   "2",          "--seq", "2048",
                                      "--microbatches", "6",          "--seed", "3"};
  const Outcome made = run_moesim(make);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("synthetic"));
  const json info = json::parse(run_moesim({"trace", "info", folder + "/scaling", "--format", "json"}).out);
  EXPECT_EQ(info.at("world"), 8);
  EXPECT_EQ(info.at("stages"), 4);
  EXPECT_THAT(info.at("about").at(0).get<std::string>(), HasSubstr("SYNTHETIC"));
  EXPECT_EQ(run_moesim({"trace", "check", folder + "/scaling"}).exit_code, 0);
  EXPECT_EQ(run_moesim({"trace", "check", folder + "/realistic"}).exit_code, 0);
  const Outcome validated = run_moesim({"validate", "--forecast", folder + "/scaling", "--measured",
                                        folder + "/realistic", "--max-error", "5%", "--quiet"});
  EXPECT_EQ(validated.exit_code, 0) << validated.out << validated.err;
  // A second time there is something in the way.
  const Outcome again = run_moesim(make);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_EQ(again.error_lines(), 1u);
}

TEST(OutputFiles, ASeedGivesTheSameRecordings) {
  const TempFolder here;
  for (const char* name : {"a", "b"})
    ASSERT_EQ(run_moesim({"trace", "synthesize", "--out", here / name, "--seed", "5", "--quiet"}).exit_code,
              0);
  ASSERT_EQ(run_moesim({"trace", "synthesize", "--out", here / "c", "--seed", "6", "--quiet"}).exit_code, 0);
  std::size_t files = 0, different = 0;
  for (const auto& entry : fs::recursive_directory_iterator(here.path() / "a")) {
    if (!entry.is_regular_file()) continue;
    const fs::path name = fs::relative(entry.path(), here.path() / "a");
    EXPECT_EQ(read_text(entry.path()), read_text(here.path() / "b" / name)) << name;
    different += read_text(entry.path()) != read_text(here.path() / "c" / name);
    ++files;
  }
  EXPECT_EQ(files, 32u);
  EXPECT_GT(different, 0u);
}

// --- Timelines, as Perfetto and chrome://tracing read them.

class Timeline : public ::testing::TestWithParam<const char*> {
 protected:
  static json read(const TempFolder& here) {
    const std::string file = here / "timeline.json";
    const Outcome outcome =
        run_moesim({"replay", (sample_folder() / GetParam()).string(), "--quiet", "--timeline", file});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return json::parse(read_text(file));
  }
};

TEST_P(Timeline, IsValidTraceEventJson) {
  const TempFolder here;
  const json timeline = read(here);
  const json& events = timeline.at("traceEvents");
  ASSERT_FALSE(events.empty());
  std::set<std::pair<int, int>> named_threads;
  std::set<int> named_processes;
  std::map<std::pair<int, int>, std::vector<double>> open_until;
  for (const json& event : events) {
    const std::string phase = event.at("ph");
    ASSERT_THAT((std::vector<std::string>{"M", "X", "s", "f", "C"}), ::testing::Contains(phase));
    const int pid = event.at("pid");
    if (phase == "M") {
      if (event.at("name") == "thread_name") named_threads.insert({pid, event.at("tid")});
      if (event.at("name") == "process_name") named_processes.insert(pid);
      continue;
    }
    EXPECT_GE(event.at("ts").get<double>(), 0);
    if (phase != "X") continue;
    const int tid = event.at("tid");
    EXPECT_TRUE(named_threads.contains({pid, tid})) << event.dump();
    EXPECT_GT(event.at("dur").get<double>(), 0);
    EXPECT_NE(event.at("name"), "");
    // Slices of a track follow one another or lie inside one another; viewers draw anything else wrongly.
    const double begin = event.at("ts"), end = begin + event.at("dur").get<double>();
    auto& open = open_until[{pid, tid}];
    while (!open.empty() && begin >= open.back() - 1e-3) open.pop_back();
    EXPECT_TRUE(open.empty() || end <= open.back() + 1e-3) << event.dump();
    open.push_back(end);
  }
  EXPECT_EQ(named_processes.size(), 16u);
}

TEST_P(Timeline, ArrowsComeInPairsThatMeetSlices) {
  const TempFolder here;
  const json timeline = read(here);
  std::map<std::int64_t, json> starts, ends;
  std::map<std::pair<int, int>, std::set<double>> slice_starts;
  for (const json& event : timeline.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "s") {
      EXPECT_TRUE(starts.emplace(event.at("id"), event).second);
    }
    if (phase == "f") {
      EXPECT_TRUE(ends.emplace(event.at("id"), event).second);
    }
    if (phase == "X") slice_starts[{event.at("pid"), event.at("tid")}].insert(event.at("ts").get<double>());
  }
  ASSERT_FALSE(starts.empty());
  ASSERT_EQ(starts.size(), ends.size());
  for (const auto& [id, from] : starts) {
    ASSERT_TRUE(ends.contains(id));
    const json& to = ends.at(id);
    EXPECT_LE(from.at("ts").get<double>(), to.at("ts").get<double>());
    EXPECT_NE(from.at("pid"), to.at("pid"));
    for (const json* end : {&from, &to}) {
      const std::pair<int, int> track{end->at("pid"), end->at("tid")};
      EXPECT_TRUE(slice_starts[track].contains(end->at("ts").get<double>())) << end->dump();
    }
  }
}

TEST_P(Timeline, EndsWhereTheIterationDoes) {
  const TempFolder here;
  const json timeline = read(here);
  const json result =
      json::parse(run_moesim({"replay", (sample_folder() / GetParam()).string(), "--format", "json"}).out);
  double end = 0;
  for (const json& event : timeline.at("traceEvents"))
    if (event.at("ph") == "X")
      end = std::max(end, event.at("ts").get<double>() + event.at("dur").get<double>());
  EXPECT_NEAR(end, result.at("iteration_us").at("value").get<double>(), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Moesim, Timeline, ::testing::Values("scaling", "realistic"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace moesim::tools
