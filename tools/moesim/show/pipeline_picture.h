// The picture of a pipeline: which pass runs when on every stage, as the forecast of the step timed it, cut
// to what can be read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/answers/answer.h"

namespace moesim::tools {

struct PipelinePicture {
  struct Window {
    std::string what;  // "all", or "first", "middle" and "last", equally long
    std::int64_t from = 0, to = 0;
  };

  std::string title;  // the dispatcher
  int stages = 0;     // of the job
  int microbatches = 0, chunks = 0;
  int critical_stage = 0;
  std::int64_t end = 0;   // of the step, without what logging adds
  std::vector<int> rows;  // stages that are shown, ascending
  // Of every stage that is shown: from the end of its last pass to its own end, and the share of `end` in
  // which it runs neither a pass nor that.
  std::vector<std::int64_t> after_from, after_to;
  std::vector<double> idle;
  std::vector<Window> windows;
  std::vector<models::SlotTrace> boxes;  // that a window shows any of, stage by stage
  std::size_t passes = 0;                // of the whole step
};

// At most so many rows, and so many passes of a stage in a window: more cannot be told apart on a screen.
inline constexpr int kPictureRows = 32;
inline constexpr int kPicturePasses = 48;

// Needs the answer to a step, with AnswerOptions::trace.
PipelinePicture pipeline_picture(const models::Answer& forecast);

// For a page (tools/report/src/pipeline.ts).
nlohmann::ordered_json pipeline_json(const PipelinePicture& picture);

}  // namespace moesim::tools
