// Refines one law by its rows: the shared part of refining a GPU's and a network's profile.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "calibration/fit/least_squares.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Largest log scatter of a row around its law; more is the error of a law over several machines on one of
// them.
inline constexpr double kMostScatter = 0.12;

// One law and its rows.
struct LawCase {
  std::string key;
  models::ParameterSet before;
  bool added = false;
  std::vector<Origin> origins;                                      // of the rows
  std::vector<std::pair<const char*, std::vector<double>>> ranges;  // ranges that the rows cover
  LawResiduals residuals;
  // log times over the law's whole domain; empty: at its rows.
  LawResiduals over_domain;
};

template <class Row>
std::vector<Origin> origins_of(const std::vector<Row>& rows) {
  std::vector<Origin> origins;
  origins.reserve(rows.size());
  for (const Row& row : rows) origins.push_back(row.origin);
  return origins;
}

template <class Row, class Value>
std::vector<double> values_of(const std::vector<Row>& rows, const Value& value) {
  std::vector<double> values;
  values.reserve(rows.size());
  for (const Row& row : rows) values.push_back(static_cast<double>(value(row)));
  return values;
}

// Returns the law refined by its rows; `law` receives the report.
models::ParameterSet refined(const LawCase& one, RefinedLaw& law);

// Refines laws one after another and reports each.
class Refining {
 public:
  explicit Refining(RefineReport& report) : report_(report) {}

  void skip(const std::string& reason, std::size_t rows = 1) { report_.skipped[reason] += rows; }

  models::ParameterSet take(const LawCase& one) {
    RefinedLaw law;
    models::ParameterSet set = refined(one, law);
    report_.rows += one.origins.size();
    report_.laws.push_back(std::move(law));
    return set;
  }

 protected:
  RefineReport& report_;
};

}  // namespace moesim::calibration
