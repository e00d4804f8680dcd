// Refines one law by its rows: the shared part of refining a GPU's and a network's profile.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "calibration/fit/least_squares.h"
#include "calibration/fit/refine.h"
#include "calibration/rows/collective_table.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/cluster.h"
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

// Returns the law refined by its rows; `law` receives the report.
models::ParameterSet refined(const LawCase& one, RefinedLaw& law);

// Returns the law of dispatch rows, with the rows' origins and ranges.
LawCase dispatch_case(const std::string& key, const std::vector<DispatchRow>& rows);

// Refines laws one after another and reports each.
class Refining {
 public:
  explicit Refining(RefineReport& report) : report_(report) {}

  void skip(const std::string& reason, std::size_t rows = 1) { report_.skipped[reason] += rows; }

  // Groups rows by their law, which is a network's where their ranks lie in several domains; skips those that a
  // law of the other kind prices, or none.
  std::map<std::string, std::vector<DispatchRow>> dispatches_by_law(const std::vector<DispatchRow>& rows,
                                                                    bool across);

  models::ParameterSet take(const LawCase& one) {
    RefinedLaw law;
    models::ParameterSet set = refined(one, law);
    report_.rows += one.origins.size();
    report_.laws.push_back(std::move(law));
    return set;
  }

 protected:
  static constexpr const char* kOfNetwork =
      "rows between nodes: they are of a network (calibrate refine NETWORK)";
  static constexpr const char* kOfGpu = "rows inside a domain: they are of a GPU (calibrate refine PROFILE)";

  RefineReport& report_;
};

// Returns the law of the rows' operation, from `before`; `cluster` has the laws that bound it.
LawCase collective_case(const models::Cluster& cluster, const std::vector<CollectiveRow>& rows, bool network,
                        const models::ParameterSet& before);

std::map<sim::CollectiveOp, std::vector<CollectiveRow>> by_operation(const std::vector<CollectiveRow>& rows);

// Returns the covariance of the logarithms of a law's parameters on another machine of the same kind: the
// fit's own uncertainty plus the spread between machines (docs/calibration.md, "One log makes it mine"). A
// law derived from other machines varies more, by its residual. Row-major, n x n.
std::vector<double> machine_covariance(const models::ParameterSet& law);

}  // namespace moesim::calibration
