// `--report`: a page of its own for every verb that offers it, or one line that says what is missing; nothing
// half-written.
#include "tools/moesim/show/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::sample_folder;
using testing::TempFolder;
using Words = std::vector<std::string>;

std::string scenario() { return std::string(MOESIM_SOURCE_DIR) + "/docs/examples/scenario.json"; }

std::vector<Words> commands() {
  const std::string scaling = (sample_folder() / "scaling").string();
  return {{"compare", scenario(), "--draws", "0"},
          {"compare", "--scope", "step", "--model", "mixtral-8x7b", "--cluster", "dgx-h100x1", "--ep", "8",
           "--draws", "0"},
          {"replay", scaling, "--microbatches", "2", "--draws", "0"},
          {"validate", "--forecast", scaling, "--measured", (sample_folder() / "realistic").string(),
           "--draws", "0"},
          {"whatif", scenario(), "--set", "parallel.ep=4", "--draws", "0"},
          {"whatif", scenario(), "--set", "parallel.ep=4", "--each", "--draws", "0"},
          {"whatif", scenario(), "--crossover", "topk=1..2", "--draws", "0"},
          {"whatif", scenario(), "--map", "topk=1..2", "parallel.ep=4,8", "--draws", "0"},
          {"whatif", scenario(), "--sensitivity", "--draws", "0"},
          {"sweep", scenario(), "--grid", "topk=1,2"},
          {"plan", "--model", "mixtral-8x7b", "--tokens", "100B", "--cluster", "dgx-h100x2", "--most", "20",
           "--draws", "0", "--no-upgrades"}};
}

TEST(Report, IsWrittenBesideTheUsualOutputOfEveryVerb) {
  for (const Words& words : commands()) {
    SCOPED_TRACE(words[0] + " " + words[2]);
    const TempFolder here;
    Words with = words;
    with.insert(with.end(), {"--quiet", "--report", here / "out.html"});
    const Outcome outcome = run_moesim(with);
    if (!report_missing().empty()) {
      // A build without Node: one line that says so, and no file.
      EXPECT_EQ(outcome.exit_code, 2);
      EXPECT_EQ(outcome.error_lines(), 1u);
      EXPECT_THAT(outcome.err, HasSubstr("--report: " + std::string(report_missing())));
      EXPECT_TRUE(fs::is_empty(here.path()));
      continue;
    }
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string page = read_text(here.path() / "out.html");
    EXPECT_THAT(page, HasSubstr("\"schema\":\"moesim.report/1\",\"verb\":\"" + words[0] + "\""));
    EXPECT_EQ(page.find("@MOESIM_DATA@"), std::string::npos);
    // Equal bytes on every run, and otherwise the same as without a report.
    Words plain = words;
    plain.emplace_back("--quiet");
    EXPECT_EQ(run_moesim(plain).out, outcome.out);
    EXPECT_EQ(run_moesim(with).exit_code, 0);
    EXPECT_EQ(read_text(here.path() / "out.html"), page);
  }
}

TEST(Report, APlaceThatCannotBeWrittenIsAnErrorBeforeTheWork) {
  if (!report_missing().empty()) GTEST_SKIP() << report_missing();
  const TempFolder here;
  for (const std::string& place : {here / "no/such/folder.html", here.path().string()}) {
    const Outcome outcome = run_moesim({"compare", scenario(), "--report", place});
    EXPECT_EQ(outcome.exit_code, 2) << place;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_TRUE(fs::is_empty(here.path()));
}

TEST(Report, TimelinesOfTablesAreRefusedNotForgotten) {
  const TempFolder here;
  const Outcome outcome =
      run_moesim({"validate", "--training", "t.csv", "--timeline", "t.json"}, here.path());
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.error_lines(), 1u);
  EXPECT_THAT(outcome.err, HasSubstr("--timeline"));
  EXPECT_TRUE(fs::is_empty(here.path()));
}

// The passes of every stage are there, do not overlap, and end before the step does.
TEST(Report, TimelineOfAStepShowsEveryPassOnItsStage) {
  const TempFolder here;
  const Words words{"compare",    "--scope",        "step", "--model",   "mixtral-8x7b", "--pp",
                    "4",          "--ep",           "4",    "--cluster", "dgx-h100x2",   "--dispatcher",
                    "alltoall",   "--microbatches", "6",    "--format",  "json",         "--quiet",
                    "--timeline", "t.json"};
  const Outcome outcome = run_moesim(words, here.path());
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const double step_us = json::parse(outcome.out)["scenarios"][0]["time_us"]["value"];
  std::map<int, std::string> process;
  std::map<int, std::vector<std::pair<double, double>>> passes;
  const json trace = json::parse(read_text(here / "t.json"));
  for (const json& e : trace["traceEvents"]) {
    if (e["name"] == "process_name") process[e["pid"]] = e["args"]["name"];
    if (e["ph"] != "X" || !process[e["pid"]].starts_with("stage")) continue;
    passes[e["pid"]].emplace_back(e["ts"], e["dur"]);
  }
  ASSERT_EQ(passes.size(), 4u);
  for (const auto& [stage, slots] : passes) {
    EXPECT_EQ(slots.size(), 12u) << "six forward, six backward";
    double end = 0;
    for (const auto& [from, length] : slots) {
      EXPECT_GE(from, end - 0.01);
      end = from + length;
    }
    EXPECT_LE(end, step_us + 0.01);
  }
}

// A graph of three ranks: an exchange with unequal splits, a message, a reduction.
TEST(Report, MatricesHoldWhatEveryMemberSends) {
  sim::TaskGraphBuilder b;
  b.add_ranks(3);
  const auto rank = [](std::uint32_t r) { return sim::RankId(r); };
  std::vector<sim::StreamId> streams;
  for (std::uint32_t r = 0; r < 3; ++r) streams.push_back(b.add_stream(rank(r), sim::StreamKind::comm));
  const sim::LabelId label = b.add_label("x", sim::Category::dispatch);
  const sim::GroupId pair = b.add_group(std::vector{rank(0), rank(2)});
  const sim::GroupId all = b.add_group(std::vector{rank(0), rank(1), rank(2)});
  const auto add = [&](sim::CollectiveOp op, sim::GroupId group, sim::TrafficRef traffic,
                       const std::vector<int>& members) {
    const sim::CollectiveId collective = b.add_collective(op, group, traffic, label);
    for (std::uint32_t m = 0; m < members.size(); ++m)
      b.add_member(streams[static_cast<std::size_t>(members[m])], collective, m);
  };
  // Rows 1, 2 / 3, 4 of ten bytes: rank 0 sends 20 bytes to rank 2, which sends 30 back; the diagonal stays.
  const sim::MatrixId rows = b.add_matrix(2, std::vector<std::uint32_t>{1, 2, 3, 4});
  add(sim::CollectiveOp::all_to_all, pair, sim::matrix_traffic(rows, 10), {0, 2});
  add(sim::CollectiveOp::send_recv, pair, sim::uniform_traffic(7), {0, 2});
  // A ring sends 2 (n - 1) / n of the buffer: 4 x 300 / 3 bytes from everybody, half of it to each of the
  // others.
  add(sim::CollectiveOp::all_reduce, all, sim::uniform_traffic(300), {0, 1, 2});
  const TrafficMatrix matrix = traffic_matrix("all", b.finalize());
  ASSERT_EQ(matrix.ranks, 3);
  EXPECT_THAT(matrix.bytes, ::testing::ElementsAre(0, 200, 227, 200, 0, 200, 230, 200, 0));
}

}  // namespace
}  // namespace moesim::tools
