// The picture of a pipeline: the passes of every stage over time, as the step's forecast timed them, cut to a
// readable size.
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
    std::string what;  // "all", or "first", "middle" and "last" of equal length
    std::int64_t from = 0, to = 0;
  };

  std::string title;  // the dispatcher
  int stages = 0;     // in the job
  int microbatches = 0, chunks = 0;
  int critical_stage = 0;
  std::int64_t end = 0;   // end of the step, without logging
  std::vector<int> rows;  // stages shown, ascending
  // For every stage shown: time from the end of its last pass to its own end, and the share of `end` in which
  // it is idle.
  std::vector<std::int64_t> after_from, after_to;
  std::vector<double> idle;
  std::vector<Window> windows;
  std::vector<models::SlotTrace> boxes;  // boxes that a window shows in part or whole, stage by stage
  std::size_t passes = 0;                // in the whole step
};

// Limits of rows, and of passes of a stage in a window, that a screen can resolve.
inline constexpr int kPictureRows = 32;
inline constexpr int kPicturePasses = 48;

// Needs the answer to a step, with AnswerOptions::trace.
PipelinePicture pipeline_picture(const models::Answer& forecast);

// Returns JSON for a page (tools/report/src/pipeline.ts).
nlohmann::ordered_json pipeline_json(const PipelinePicture& picture);

}  // namespace moesim::tools
