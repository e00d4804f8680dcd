// Published training steps as scenarios: one row of a table (columns of moe_training_e2e.csv, and where it
// has them those of decisions/training_decisions.csv) becomes a model, a plan, a cluster and a measured step
// time, or a reason why it cannot. So does a row of one layer's time (column forward_backward_ms). What a row
// says are settings of the scenario with its line as origin; the recipe of its framework says what it does
// not (models/recipes/).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/answers/answer.h"
#include "models/step/step_memory.h"
#include "models/workload/scenario.h"

namespace moesim::calibration {

// NCCL on Perlmutter as cornell-sysphotonics/ccl-bench ran it. Its row
// deepseek-v3-16b-torchtitan-ep4-dp2-tp4, from which this one number was taken, communicates for 12.0 s;
// parameters gathered twice and gradients reduced once over pairs of GPUs of two nodes are 8.4 GB (its
// all-gather volume counts the shard that a rank puts in) and 8.3 GB through a GPU's port: with the laws of
// slingshot-polaris, the line rate at which they take that long.
inline constexpr double kPerlmutterPort = 1.3e9;  // bytes/s of a GPU

// What a job's ranks held, bytes; 0 where it was not measured.
struct MeasuredMemory {
  std::string id;
  double peak = 0;                         // torch's max_memory_allocated, the largest of the ranks
  double reserved = 0;                     // its max_memory_reserved
  double first_stage = 0, last_stage = 0;  // of a pipeline
  bool ran = true;                         // false: out of memory
};

struct TrainingRow {
  std::string table;  // the file
  long line = 0;
  std::string source, framework, gpu, model;  // as the table has them
  std::string decision_id, backend, grade;    // empty where it has none
  models::Scenario scenario;                  // resolved; one dispatcher
  double measured_s = 0;                      // of a step; infinite: it ran out of memory (kTimeOrLimit)
  std::string measured_from;                  // "step time", "tokens/s", "TFLOP/s" or "MFU"
  std::vector<std::string> assumptions;       // what the row does not state
  MeasuredMemory memory;
  bool framework_known = true;   // by a recipe; otherwise the interval is as wide as the recipes differ
  std::string left_out;          // publication from whose rows nothing was learnt for this forecast
  bool recompute_known = false;  // by the row; otherwise its recipe's where that fits the memory
};

struct SkippedRow {
  long line = 0;
  std::string source, gpu, model, reason;
  std::string decision_id, backend;  // empty where it has none
};

struct TrainingTable {
  std::vector<TrainingRow> rows;
  std::vector<SkippedRow> skipped;
};

// What a row must state besides its plan.
enum class RowsWith : std::uint8_t {
  kTime,         // a step time or a rate
  kTimeOrLimit,  // either, or that it ran out of memory: measured_s is infinite then
  kPlan,         // nothing: its memory is asked for
};

// Reads the table. Throws InputError for a table without the columns that every row needs, and for numbers
// that are none.
TrainingTable read_training_table(const std::string& path, RowsWith with = RowsWith::kTime);

// The rows of all tables, in their order.
TrainingTable read_tables(const std::vector<std::string>& paths, RowsWith with = RowsWith::kTime);

// "TP1 CP1 PP2 VPP8 EP32 DP128 mb16x2 seq4096 mxfp8".
std::string plan_text(const models::Scenario& scenario);

// Returns the forecast of a row. The step was run, so it fitted: where the row does not state the
// recomputation and its recipe's does not fit, the cheapest one that makes it fit is taken, and the row's
// scenario and assumptions say so.
models::Answer forecast_of(TrainingRow& row, int draws);

// Returns the memory of the row's busiest rank, with the recomputation that forecast_of() takes.
models::StepMemory memory_of(TrainingRow& row);

}  // namespace moesim::calibration
