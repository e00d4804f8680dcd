// Forecasts against published tables: what `moesim validate` answers about tables of runs and of figures, and what
// these questions share: a loop over rows, errors, columns, and output.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "calibration/check/check.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/common_options.h"
#include "tools/moesim/validation/rows.h"

namespace moesim::tools {

struct TableQuestion {
  std::vector<std::string> tables = {};  // of validate_known() one folder
  int draws = 0;
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

// Errors of forecasts, forecast / measured - 1, and how many measured values lie inside their interval.
struct Score {
  std::vector<double> errors;
  int inside = 0;

  void add(double error, bool is_inside);
  double median_abs() const;  // 0 for none
  double worst() const;
  double bias() const;  // median
};

bool inside(const models::Estimate& us, double measured_s);

// Returns Spearman's rank correlation, ties at their mean rank; 0 for fewer than two different values.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Calls `take` for every row, which it may move from at its end; rows for which that throws InputError join
// the skipped ones.
void each_row(PublishedTable& table, const CommonOptions& common,
              const std::function<void(PublishedRow& row)>& take);

// Throws InputError, with the first reason, where nothing is `left`.
void expect_some(bool left, const std::string& file, std::string_view what, const PublishedTable& table);

// Prints what the format asks for: the result as JSON or a page, a table as CSV, or it with `text` below.
void show(const CommonOptions& common, const nlohmann::ordered_json& figures, const Table& table,
          const std::string& text);

// Rows that were left out: a line for each reason with the number of rows.
Columns<SkippedRow> columns_of(Of<SkippedRow>);
std::string skipped_text(const PublishedTable& table);

// Constants refitted without a publication.
Columns<Refit> columns_of(Of<Refit>);
std::string left_out_text(const std::vector<Refit>& refits);

// Formats the errors of every publication that was left out of a fit, by kind of row.
std::string left_out_text(const calibration::CheckReport& report);

}  // namespace moesim::tools
