// Published training runs as scenarios: one row of a table (columns of moe_training_e2e.csv, and optionally
// those of decisions/training_decisions.csv) becomes a model, a plan, a cluster and a measured step time, or
// a reason why it cannot. A row of one layer's time (column forward_backward_ms) does as well. A row's
// statements are settings of the scenario with its line as origin; the recipe of its framework supplies the
// rest (models/recipes/).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/answers/answer.h"
#include "models/step/step_memory.h"
#include "models/workload/scenario.h"
#include "tools/moesim/show/terminal.h"

namespace moesim::tools {

// NCCL on Perlmutter as cornell-sysphotonics/ccl-bench ran it. Its row
// deepseek-v3-16b-torchtitan-ep4-dp2-tp4, the source of this number, communicates for 12.0 s; parameters
// gathered twice and gradients reduced once over pairs of GPUs of two nodes are 8.4 GB (its all-gather volume
// counts the shard that a rank contributes) and 8.3 GB through a GPU's port: the number is the line rate at
// which they take that long under the laws of slingshot-polaris.
inline constexpr double kPerlmutterPort = 1.3e9;  // bytes/s per GPU

// A row as the table has it; empty where it says nothing.
struct RowText {
  std::string table;  // the file
  long line = 0;
  std::string source, framework, gpu, model, decision_id, backend, grade;
};

// Measured memory of a job's ranks in bytes; 0 where it was not measured.
struct MeasuredMemory {
  std::string id;
  double peak = 0;                         // torch's max_memory_allocated, the maximum over ranks
  double first_stage = 0, last_stage = 0;  // of a pipeline
  bool ran = true;                         // false: out of memory
};

struct PublishedRow : RowText {
  models::Scenario scenario = {};             // resolved; one dispatcher
  double measured_s = 0;                      // per step; infinite: out of memory (kTimeOrLimit)
  std::string measured_from = {};             // "step time", "tokens/s", "TFLOP/s" or "MFU"
  std::vector<std::string> assumptions = {};  // values that the row does not state
  MeasuredMemory memory = {};
  bool framework_known = true;   // a recipe exists; otherwise the interval is as wide as the recipes differ
  bool recompute_known = false;  // stated by the row; otherwise the recipe's where that fits the memory
  std::string left_out = {};     // publication from whose rows this forecast has learnt nothing
};

struct SkippedRow : RowText {
  std::string reason;
};

struct PublishedTable {
  std::vector<PublishedRow> rows;
  std::vector<SkippedRow> skipped;
};

// Requirements on a row besides its plan.
enum class RowsWith : std::uint8_t {
  kTime,         // a step time or a rate
  kTimeOrLimit,  // either, or that it ran out of memory: measured_s is then infinite
  kPlan,         // nothing: for memory forecasts
};

// Returns the rows of all tables in order; one that is wrong or incomplete is skipped with the reason. Throws
// InputError for missing required columns, `needed` among them where it is given.
PublishedTable read_tables(const std::vector<std::string>& paths, RowsWith with = RowsWith::kTime,
                           std::string_view needed = "");

// Formats a plan as "TP1 CP1 PP2 VPP8 EP32 DP128 mb16x2 seq4096 mxfp8".
std::string plan_text(const models::Scenario& scenario);

// Returns the forecast of a row. The step ran, so it fitted: where the row does not state the recomputation
// and its recipe's does not fit, the cheapest one that fits is taken and recorded in the row's scenario and
// assumptions.
models::Answer forecast_of(PublishedRow& row, int draws);

// Returns the memory of the row's busiest rank, with the recomputation that forecast_of() takes.
models::StepMemory memory_of(PublishedRow& row);

// ---- row_names.cc: words of tables ----

// Cuts a named or written model to its first layers.
void shorten_model(nlohmann::json& model, std::int64_t layers);

// Returns the model of a row as JSON for a scenario's `model`, a built-in name or an object: by its name, by
// the sizes in its name, with the changes of its `source`. nullopt where the layers are unknown; usual values
// taken are noted in `assumptions`. Throws InputError for impossible sizes.
std::optional<nlohmann::json> row_model(const std::string& name, std::string_view source,
                                        std::vector<std::string>& assumptions);

// A setting of a scenario: a path of models/workload/fields.h and its value.
struct RowSetting {
  std::string path;
  nlohmann::json value;
};

// row_words.json, and what it says of a column's value: "" for nothing.
const nlohmann::json& row_words();
std::string meaning(const char* column, std::string_view text);
std::vector<RowSetting> settings_of(const char* column, std::string_view text);

// Returns the settings that a note's words name ("full-iteration graphs", "recompute mlp", "A2A overlap",
// "EP8", "mbs 1"); other wording is ignored.
std::vector<RowSetting> settings_of_note(std::string_view note);

// ---- refits.cc: publications without their own influence ----

// A constant that was fitted to published steps, refitted without one publication.
struct Refit {
  std::string publication, constant;
  double shipped = 0, value = 0;
  std::size_t rows = 0;  // rows of other publications in the fit; 0: its neutral value
};

// Sets for the rows of every publication the constants that the rows of all others fit: for each constant
// that the publication determines, the value with the least mean |log(forecast / measured)| over the other
// publications' rows, or its neutral value where these are fewer than three.
std::vector<Refit> leave_out_sources(std::vector<PublishedRow>& rows, const Progress& progress);

}  // namespace moesim::tools
