// Corrections of a network's law at single calls that the user measured.
//
// A law has one shape for all sizes and groups, and NCCL changes algorithm and protocol with both. A refined
// law (calibrate refine) therefore holds factors C at calls, "correction/<domains>/<ranks of a domain>/<bytes>"
// with the nccl-tests "size". Elsewhere log C is the mean of a Gaussian process through them, with the
// correlation of an Ornstein-Uhlenbeck process in the logarithms of size and group, which follows jumps without
// swinging past them (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", 2006, 2.2 and
// 4.2.1). C is 1 far from all of them. Beyond the smallest and the largest measured size C stays as it is
// there: one term of the law dominates, and is off by the same factor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/profile.h"

namespace moesim::models {

struct GroupShape;

// Binary logarithms of a call's domains, ranks of the fullest domain, and size.
struct MeasuredCall {
  double domains = 0, ranks = 0, bytes = 0;

  static MeasuredCall of(const GroupShape& shape, double size);
  // Returns nullopt where the name is not that of a correction. Throws InputError naming `key` where it is a
  // malformed one.
  static std::optional<MeasuredCall> from_name(std::string_view name, const std::string& key);
  std::string name() const;
  // Returns the correlation of log C between two calls.
  double likeness(const MeasuredCall& other) const;
};

class Corrections {
 public:
  static Corrections from(const ParameterSet& set, const std::string& key);
  // Returns the factor on the time of a call.
  double at(const GroupShape& shape, double size) const;

 private:
  std::vector<MeasuredCall> calls_;
  std::vector<double> weights_;
  double smallest_ = 0, largest_ = 0;
};

}  // namespace moesim::models
