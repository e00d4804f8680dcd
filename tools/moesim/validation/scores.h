// What the questions about published tables share: a loop over rows, errors, columns, and output.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/input_error.h"
#include "tools/moesim/show/output.h"
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

// Null where it is not given.
nlohmann::ordered_json given_if(bool given, double value);

// A column of a table for people and of its CSV.
template <class Row>
struct Column {
  Table::Column head;
  std::string (*cell)(const Row& row);
};

template <class Row>
Table table_of(const std::vector<Column<Row>>& columns, const std::vector<Row>& rows) {
  std::vector<Table::Column> heads;
  for (const Column<Row>& column : columns) heads.push_back(column.head);
  Table table(heads);
  for (const Row& row : rows) {
    std::vector<std::string> cells;
    for (const Column<Row>& column : columns) cells.push_back(column.cell(row));
    table.row(std::move(cells));
  }
  return table;
}

// Calls `take` for every row, which it may move from at its end; rows for which that throws InputError join
// the skipped ones.
void each_row(PublishedTable& table, const CommonOptions& common,
              const std::function<void(PublishedRow& row)>& take);

// Throws InputError, with the first reason, where nothing is `left`.
void expect_some(bool left, const std::string& file, std::string_view what, const PublishedTable& table);

// Prints what the format asks for: the result as JSON or a page, a table as CSV, or it with `text` below.
void show(const CommonOptions& common, const std::function<nlohmann::ordered_json()>& result,
          const Table& table, const std::string& text);
nlohmann::ordered_json new_result(const CommonOptions& common);

// Rows that were left out: each with its reason; a line for each reason with the number of rows.
nlohmann::ordered_json skipped_json(const PublishedTable& table);
std::string skipped_text(const PublishedTable& table);

// Constants refitted without a publication.
nlohmann::ordered_json left_out_json(const std::vector<Refit>& refits);
std::string left_out_text(const std::vector<Refit>& refits);

}  // namespace moesim::tools
