// What the questions about published tables share: a loop over rows, errors, columns, and output.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/validation/rows.h"

namespace moesim::tools {

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

// "3.1 %".
std::string share(double fraction);

// "+3.1 %".
std::string difference(double fraction);

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

}  // namespace moesim::tools
