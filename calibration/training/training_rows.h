// Published training steps as scenarios: one row of a table (columns of moe_training_e2e.csv, and optionally
// those of decisions/training_decisions.csv) becomes a model, a plan, a cluster and a measured step time, or
// a reason why it cannot. A row of one layer's time (column forward_backward_ms) does as well. A row's
// statements are settings of the scenario with its line as origin; the recipe of its framework supplies the
// rest (models/recipes/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/step/step_memory.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {

// NCCL on Perlmutter as cornell-sysphotonics/ccl-bench ran it. Its row
// deepseek-v3-16b-torchtitan-ep4-dp2-tp4, the source of this number, communicates for 12.0 s; parameters
// gathered twice and gradients reduced once over pairs of GPUs of two nodes are 8.4 GB (its all-gather volume
// counts the shard that a rank contributes) and 8.3 GB through a GPU's port: the number is the line rate at
// which they take that long under the laws of slingshot-polaris.
inline constexpr double kPerlmutterPort = 1.3e9;  // bytes/s per GPU

// Measured memory of a job's ranks in bytes; 0 where it was not measured.
struct MeasuredMemory {
  std::string id;
  double peak = 0;                         // torch's max_memory_allocated, the maximum over ranks
  double reserved = 0;                     // torch's max_memory_reserved
  double first_stage = 0, last_stage = 0;  // of a pipeline
  bool ran = true;                         // false: out of memory
};

struct TrainingRow {
  std::string table;  // the file
  long line = 0;
  std::string source, framework, gpu, model;  // as in the table
  std::string decision_id, backend, grade;    // empty where the row has none
  models::Scenario scenario;                  // resolved; one dispatcher
  double measured_s = 0;                      // per step; infinite: out of memory (kTimeOrLimit)
  std::string measured_from;                  // "step time", "tokens/s", "TFLOP/s" or "MFU"
  std::vector<std::string> assumptions;       // values that the row does not state
  MeasuredMemory memory;
  bool framework_known = true;   // a recipe exists; otherwise the interval is as wide as the recipes differ
  std::string left_out;          // publication from whose rows this forecast has learnt nothing
  bool recompute_known = false;  // stated by the row; otherwise the recipe's where that fits the memory
};

struct SkippedRow {
  long line = 0;
  std::string source, gpu, model, reason;
  std::string decision_id, backend;  // empty where the row has none
};

struct TrainingTable {
  std::vector<TrainingRow> rows;
  std::vector<SkippedRow> skipped;
};

// Requirements on a row besides its plan.
enum class RowsWith : std::uint8_t {
  kTime,         // a step time or a rate
  kTimeOrLimit,  // either, or that it ran out of memory: measured_s is then infinite
  kPlan,         // nothing: for memory forecasts
};

// Reads the table. Throws InputError for missing required columns and for invalid numbers.
TrainingTable read_training_table(const std::string& path, RowsWith with = RowsWith::kTime);

// Returns the rows of all tables in order.
TrainingTable read_tables(const std::vector<std::string>& paths, RowsWith with = RowsWith::kTime);

// Formats a plan as "TP1 CP1 PP2 VPP8 EP32 DP128 mb16x2 seq4096 mxfp8".
std::string plan_text(const models::Scenario& scenario);

// Returns the forecast of a row. The step ran, so it fitted: where the row does not state the recomputation
// and its recipe's does not fit, the cheapest one that fits is taken and recorded in the row's scenario and
// assumptions.
models::Answer forecast_of(TrainingRow& row, int draws);

// Returns the memory of the row's busiest rank, with the recomputation that forecast_of() takes.
models::StepMemory memory_of(TrainingRow& row);

}  // namespace moesim::calibration
