// Published training steps as scenarios: one row of a table (columns of moe_training_e2e.csv) becomes a
// model, a plan, a cluster and a measured step time, or a reason why it cannot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/workload/scenario.h"

namespace moesim::tools {

// What a job's ranks held, bytes; 0 where it was not measured.
struct MeasuredMemory {
  std::string id;
  double peak = 0;                         // torch's max_memory_allocated, the largest of the ranks
  double reserved = 0;                     // its max_memory_reserved
  double first_stage = 0, last_stage = 0;  // of a pipeline
  bool ran = true;                         // false: out of memory
};

struct TrainingRow {
  long line = 0;
  std::string source, framework, gpu, model;  // as the table has them
  models::Scenario scenario;                  // resolved; one dispatcher
  double measured_s = 0;                      // of a step
  std::string measured_from;                  // "step time", "tokens/s", "TFLOP/s" or "MFU"
  std::vector<std::string> assumptions;       // what the row does not state
  MeasuredMemory memory;
  bool recompute_known = false;  // by the row or its framework's presets; otherwise what the memory asks for
};

struct SkippedRow {
  long line = 0;
  std::string source, gpu, model, reason;
};

struct TrainingTable {
  std::vector<TrainingRow> rows;
  std::vector<SkippedRow> skipped;
};

// What a row must state besides its plan.
enum class RowsWith : std::uint8_t {
  kTime,  // a step time or a rate; models without experts are skipped
  kPlan,  // nothing: its memory is asked for
};

// Throws InputError for a table without the columns that every row needs, and for numbers that are none.
TrainingTable read_training_table(const std::string& path, RowsWith with = RowsWith::kTime);

// "TP1 CP1 PP2 VPP8 EP32 DP128 mb16x2 seq4096 mxfp8".
std::string plan_text(const models::Scenario& scenario);

// 0 for no values.
double median(std::vector<double> values);

}  // namespace moesim::tools
