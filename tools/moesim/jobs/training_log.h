// What a training job wrote while it ran: the times of its steps, and its arguments where it printed them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/workload/scenario.h"
#include "tools/moesim/jobs/job_file.h"

namespace moesim::tools {

struct TrainingLog {
  // One of these, in the order of the log: seconds of an iteration (Megatron), tokens a second and device
  // (torchtitan).
  std::vector<double> step_s, tokens_per_s;
  std::int64_t global_batch = 0;     // sequences of every step, as Megatron prints them; 0: it does not
  long batch_line = 0;               // where the last step says so
  std::optional<JobFile> arguments;  // of Megatron's dump, defaults and all
  std::vector<std::string> notes;    // steps that are left out, a line each
};

inline constexpr std::uint64_t kMaxTrainingLogBytes = std::uint64_t{1} << 30;

// Reads a log; launchers' prefixes and colours are skipped. An iteration that several ranks print counts
// once. Of several runs in one file the last is taken, and of its steps those of the last global batch.
// Throws InputError for one without steps, or with steps of both kinds.
TrainingLog read_training_log(std::string_view text, const std::string& file);

// Seconds of every step; torchtitan logs tokens a second of a device, each counted once in its replica.
std::vector<double> step_seconds(const TrainingLog& log, const models::Scenario& scenario);

// Steps without those that warm up: the first two (one of fewer than four), of more than twenty the first
// tenth. Needs at least one.
std::vector<double> steady(const std::vector<double>& steps);

}  // namespace moesim::tools
