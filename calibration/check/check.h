// Errors of profiles against measured rows, by operation, size and rank count, and coverage of the intervals.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibration/rows/measurements.h"
#include "models/hardware/estimate.h"
#include "models/hardware/profile.h"

namespace moesim::calibration {

// One row against its forecast; error = forecast / measured - 1.
struct CheckedRow {
  Origin origin;
  std::string op, scope, sizes, ranks;
  std::string law;       // key of the profile's law that priced it
  double bytes = 0;      // for collectives
  double measured = 0;   // seconds
  std::string network;   // for rows between nodes: the network profile that priced it
  bool assumed = false;  // the network is assumed, not stated by the row
  std::string cell;      // what rows of the same call have in common; "" for rows that are no communication
  double bandwidth = 0;  // busbw of a collective, what the library prints of a kernel; bytes/s
  int nodes = 1;
  models::Estimate forecast;

  double error() const { return forecast.value / measured - 1; }
  bool covered() const { return measured >= forecast.low && measured <= forecast.high; }
};

struct CheckGroup {
  std::string gpu, op, scope, sizes, ranks;
  std::size_t rows = 0;
  double mean_abs_error = 0;
  double median_abs_error = 0;
  double bias = 0;      // mean of the signed errors
  double coverage = 0;  // share of rows inside their 90 % interval
};

struct CheckReport {
  std::vector<CheckedRow> rows;
  std::map<std::string, std::size_t> skipped;  // reason -> rows

  // Rows between nodes whose network is not stated, by the assumed network.
  std::map<std::string, std::size_t> assumed_networks() const;
  CheckGroup total() const;
  CheckGroup collectives_from(double bytes) const;  // with at least so many bytes
  std::vector<CheckGroup> groups() const;           // by gpu, op, scope, sizes, ranks, in that order
};

// Returns the profile for a GPU's name in the rows, or nullptr to skip the row.
using ProfileOf = std::function<const models::Profile*(const std::string& gpu)>;

// Facts about the network between nodes, for rows that do not state them.
struct Between {
  std::string network = {};   // profile or file; "": from the row's source, else the usual one of its GPU
  int ports = 0;              // of a node; 0: the network's
  double port_bandwidth = 0;  // bytes/s; 0: the network's
};

CheckReport check_rows(const Measurements& measurements, const ProfileOf& profile_of,
                       const Between& between = {});

}  // namespace moesim::calibration
