// The log of a training job: step times, and arguments where it printed them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/scenario.h"
#include "tools/moesim/read/job_file.h"

namespace moesim::tools {

struct TrainingLog {
  // What the steps are measured in.
  enum class Unit : std::uint8_t { kSeconds, kTokensPerSecondAndGpu, kSamplesPerSecond };
  Unit unit = Unit::kSeconds;
  std::vector<double> steps;         // in log order
  std::int64_t global_batch = 0;     // sequences per step, as Megatron prints them; 0: not printed
  SourcePlace batch_place;           // the last step that prints it
  std::optional<JobFile> arguments;  // from Megatron's dump, defaults included
  std::vector<std::string> notes;    // steps left out, one line each
};

inline constexpr std::uint64_t kMaxTrainingLogBytes = std::uint64_t{1} << 30;

// Reads a log of Megatron-LM, Megatron-Bridge, NeMo, torchtitan, MaxText, DeepSpeed or Automodel, a JSON
// object a line (torchtitan's and Automodel's metrics, an export of W&B's history), a CSV export of W&B, or
// an event file of TensorBoard, skipping launchers' prefixes and colours. An iteration that several ranks print counts once.
// A file with several runs counts by its last run, and a run by its steps with the last global batch. Throws
// InputError for a log without steps, or with steps of both kinds.
TrainingLog read_training_log(std::string_view text, const std::string& file);

// Whether a text has steps that read_training_log() reads.
bool has_steps(std::string_view text);

// Returns the work of a step in a unit of rates: seconds times rate.
double step_work(TrainingLog::Unit unit, const models::Scenario& scenario);
// Returns seconds of every step.
std::vector<double> step_seconds(const TrainingLog& log, const models::Scenario& scenario);

// Returns the steps without warm-up: drops the first two (one of fewer than four), of more than twenty the
// first tenth. Needs at least one.
std::vector<double> steady(const std::vector<double>& steps);

}  // namespace moesim::tools
