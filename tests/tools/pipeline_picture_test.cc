// The picture of a pipeline: passes where the forecast put them, bubbles that add up, and a cut that can be
// read.
#include "tools/moesim/show/pipeline_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "process.h"
#include "tools/moesim/show/report_template.h"

namespace moesim::tools {
namespace {

using nlohmann::json;
using testing::Outcome;
using testing::read_text;
using testing::run_moesim;
using testing::TempFolder;
using Kind = models::PipelineSlot::Kind;

// Stages that run a forward pass of 1 and a backward pass of 2 for every microbatch, one stage after another.
models::Answer step_of(int stages, int microbatches) {
  models::Answer a;
  a.dispatcher = "alltoall";
  for (int s = 0; s < stages; ++s) {
    std::int64_t at = 10 * s;
    for (int m = 0; m < microbatches; ++m) {
      a.slots.push_back({s, {Kind::kForward, m, s}, at, at + 10});
      a.slots.push_back({s, {Kind::kBackward, m, s}, at + 10, at + 30});
      at += 40;
    }
    a.stage_end.push_back(at);
  }
  a.critical_stage = stages - 1;
  return a;
}

TEST(PipelinePicture, ShowsShortStepsWhole) {
  const PipelinePicture p = pipeline_picture(step_of(4, 6));
  EXPECT_EQ(p.stages, 4);
  EXPECT_EQ(p.microbatches, 6);
  ASSERT_EQ(p.windows.size(), 1u);
  EXPECT_EQ(p.windows[0].to, p.end);
  EXPECT_EQ(p.end, 270);
  EXPECT_EQ(p.boxes.size(), 48u);
  // Six times thirty of work; after the last pass ten for gradients and optimizer.
  for (const double idle : p.idle) EXPECT_NEAR(idle, 1 - 190.0 / 270, 1e-12);
}

TEST(PipelinePicture, CutsLongStepsIntoEqualStretchesThatCanBeRead) {
  for (const int microbatches : {25, 40, 80, 1000, 5000})
    for (const int stages : {1, 2, 16, 100}) {
      SCOPED_TRACE(std::to_string(microbatches) + " through " + std::to_string(stages));
      const PipelinePicture p = pipeline_picture(step_of(stages, microbatches));
      ASSERT_EQ(p.windows.size(), 3u);
      EXPECT_EQ(p.windows.front().from, 0);
      EXPECT_EQ(p.windows.back().to, p.end);
      const std::int64_t length = p.windows.front().to;
      std::int64_t before = 0;
      for (const PipelinePicture::Window& w : p.windows) {
        EXPECT_EQ(w.to - w.from, length);
        EXPECT_GE(w.from, before);
        before = w.to;
        std::map<int, int> boxes;
        for (const models::SlotTrace& box : p.boxes)
          if (box.to > w.from && box.from < w.to) ++boxes[box.stage];
        for (const auto& [stage, count] : boxes) EXPECT_LE(count, kPicturePasses + 8) << stage;
      }
      EXPECT_EQ(p.rows.size(), static_cast<std::size_t>(std::min(stages, kPictureRows)));
      EXPECT_EQ(p.rows.front(), 0);
      EXPECT_EQ(p.rows.back(), stages - 1);
      EXPECT_EQ(p.passes, static_cast<std::size_t>(2 * stages * microbatches));
      // Nothing that a window shows is missing.
      for (const models::SlotTrace& slot : step_of(stages, microbatches).slots) {
        if (std::find(p.rows.begin(), p.rows.end(), slot.stage) == p.rows.end()) continue;
        const bool shown = std::any_of(
            p.windows.begin(), p.windows.end(),
            [&](const PipelinePicture::Window& w) { return slot.to > w.from && slot.from < w.to; });
        const bool there = std::any_of(p.boxes.begin(), p.boxes.end(), [&](const models::SlotTrace& box) {
          return box.stage == slot.stage && box.from == slot.from;
        });
        ASSERT_EQ(shown, there) << slot.stage << " at " << slot.from;
      }
    }
}

// In the page: the same passes as in the timeline of the forecast, which end with the step.
TEST(PipelinePicture, OfAPageIsThatOfTheForecast) {
  if (!report_missing().empty()) GTEST_SKIP() << report_missing();
  for (const char* schedule : {"1f1b", "zero-bubble", "dualpipe"}) {
    SCOPED_TRACE(schedule);
    const TempFolder here;
    const Outcome outcome = run_moesim(
        {"compare", "--scope",    "step",      "--model",    "mixtral-8x7b", "--pp",     "4",
         "--ep",    "4",          "--cluster", "dgx-h100x2", "--dispatcher", "alltoall", "--microbatches",
         "8",       "--schedule", schedule,    "--format",   "json",         "--quiet",  "--draws",
         "0",       "--timeline", "t.json",    "--report",   "r.html"},
        here.path());
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::string page = read_text(here / "r.html");
    const std::string marker = "id=\"moesim-data\">";
    const std::size_t from = page.find(marker) + marker.size();
    const json data = json::parse(page.substr(from, page.find("</script>", from) - from));
    ASSERT_EQ(data["pipelines"].size(), 1u);
    const json& picture = data["pipelines"][0];
    const json result = json::parse(outcome.out)["scenarios"][0];
    EXPECT_NEAR(picture["end_us"].get<double>(), result["time_us"]["value"].get<double>(), 1e-3);
    std::map<int, std::string> process;
    std::vector<std::vector<double>> traced, drawn;
    const json trace = json::parse(read_text(here / "t.json"));
    for (const json& e : trace["traceEvents"]) {
      if (e["name"] == "process_name") process[e["pid"]] = e["args"]["name"];
      if (e["ph"] == "X" && process[e["pid"]].starts_with("stage"))
        traced.push_back({e["ts"], e["ts"].get<double>() + e["dur"].get<double>()});
    }
    for (const json& box : picture["boxes"]) drawn.push_back({box[4], box[5]});
    std::sort(traced.begin(), traced.end());
    std::sort(drawn.begin(), drawn.end());
    ASSERT_EQ(traced.size(), drawn.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_NEAR(traced[i][0], drawn[i][0], 0.01);
      EXPECT_NEAR(traced[i][1], drawn[i][1], 0.01);
    }
    // A stage's own messages are in its passes' gaps, too; the bubble is the most of them.
    const auto critical = picture["critical_stage"].get<std::size_t>();
    const double bubble = result["breakdown_us"]["bubble"].get<double>() / picture["end_us"].get<double>();
    EXPECT_GT(picture["rows"][critical]["idle"].get<double>(), 0.5 * bubble);
  }
}

}  // namespace
}  // namespace moesim::tools
