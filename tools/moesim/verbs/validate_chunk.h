// `moesim validate --training KERNELS.csv`: the kernels of one published chunk of DeepSeek-V3's training,
// class by class, against the forecast of the same layers.
#pragma once

#include "tools/moesim/verbs/validate_training.h"

namespace moesim::calibration {
class CsvTable;
}

namespace moesim::tools {

// Returns whether the table lists kernels (columns dur_us and kind) instead of steps.
bool lists_kernels(const calibration::CsvTable& table);

// Prints the comparison; returns the exit code.
int validate_chunk(const calibration::CsvTable& table, const TrainingValidation& options,
                   const CommonOptions& common);

}  // namespace moesim::tools
