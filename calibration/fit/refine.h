// A profile made one's own: a few rows of a machine move the laws of a built-in one.
//
// Every law that rows speak of is updated by itself (law_update.h), from the law that would have priced them
// and from how machines of one kind differ (machine_spread.h). What no row speaks of stays as it is, and the
// refined profile answers everything that its base answers.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "calibration/rows/devices.h"
#include "calibration/rows/measurements.h"
#include "models/hardware/network.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

struct RefinedLaw {
  std::string key;
  int rows = 0;
  int outliers = 0;  // rows that count less than half
  // Mean change of the log time over the law's domain (of a product or kernel: over its rows), and root mean
  // square of it in standard deviations of what was known of another machine.
  double moved = 0, moved_sigma = 0;
  double own_share = 0;  // of the variance there, how much the rows took away
  // Mean |log error| of the rows before, and under a law of the other rows.
  double error_before = 0, error_left_out = 0;
  bool added = false;   // the base had no such law
  double evidence = 0;  // log probability of the rows, whatever the law is
};

struct RefineReport {
  std::vector<RefinedLaw> laws;
  std::size_t rows = 0;                        // that were used
  std::map<std::string, std::size_t> skipped;  // reason -> rows
};

// Of rows of this GPU: collectives inside a domain, products, kernels, what the host costs. Rows between
// nodes are a network's and skipped with that reason.
models::Profile refine(const models::Profile& base, const Measurements& rows, RefineReport& report);

// Of rows between nodes of any GPU with a profile, which `profile_of` gives.
models::NetworkProfile refine(const models::NetworkProfile& base, const Measurements& rows,
                              const std::function<const models::Profile&(const Device&)>& profile_of,
                              RefineReport& report);

}  // namespace moesim::calibration
