// Forecasts against published tables: what `moesim validate` answers about tables of runs and of figures.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "calibration/check/check.h"
#include "tools/moesim/show/common_options.h"

namespace moesim::tools {

struct TableQuestion {
  std::vector<std::string> tables = {};  // of validate_known() one folder
  std::optional<int> draws = {};
  double max_error = 0;     // limit; 0: none
  std::string detail = {};  // in the JSON: "breakdown" of each step, "causes" of each job's fullest stage
  bool leave_out = false;   // forecasts each publication without the constants that its rows determine
  bool anchored = false;    // each arm in turn is given as measured (--measured), the others are forecast
};

// Each prints its result and returns the exit code: 1 where a limit is exceeded. Throw InputError where no row
// can be forecast.

// Published training steps. Limit: on the median absolute error.
int validate_training(const TableQuestion& question, const CommonOptions& common);

// Decisions between dispatchers: rows with equal decision_id form one. Limit: on the mean loss of answered
// decisions.
int validate_decisions(const TableQuestion& question, const CommonOptions& common);

// Measured memory peaks of jobs. Limit: on the median absolute error; every job that ran has to fit, then.
int validate_memory(const TableQuestion& question, const CommonOptions& common);

// Well-known figures. The folder contains collectives.csv, kernels.csv, steps.csv and memory.csv, published
// rows in the columns of their kinds, each with a description ("what") and a band for the ratio of forecast to
// published figure ("spread", "miss"). Returns 1 where one lies outside of its band; every row needs a
// forecast.
int validate_known(const TableQuestion& question, const CommonOptions& common);

// Their results.

// Formats the errors of every publication that was left out of a fit, by kind of row.
std::string left_out_text(const calibration::CheckReport& report);

}  // namespace moesim::tools
