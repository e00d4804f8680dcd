// One law, the rows that speak of it, and what becomes of it; what refining a GPU's and a network's profile
// have in common.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "calibration/fit/law_update.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// Of a row around its law: more is how far a law of several machines is off on one of them.
inline constexpr double kMostScatter = 0.12;

// One law and the rows that speak of it.
struct LawCase {
  std::string key;
  models::ParameterSet before;
  bool added = false;
  std::vector<Origin> origins;                                      // of the rows
  std::vector<std::pair<const char*, std::vector<double>>> ranges;  // what the rows cover
  LawResiduals residuals;
  // log times over what the law is for; empty: at its rows.
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

// The law that the rows ask for; `law` gets what is reported of it.
models::ParameterSet refined(const LawCase& one, RefinedLaw& law);

// A covariance n x n of logarithms whose correlations, written with three digits, are read back.
std::vector<double> writable(std::vector<double> covariance, std::size_t n);

// Takes law after law and reports each.
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
