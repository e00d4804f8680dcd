// Corrections of a network's law at single calls that the user measured.
//
// A law has one shape for all sizes and groups, and NCCL changes algorithm and protocol with both. A refined
// law (calibrate refine) therefore holds factors C at calls, "correction/<domains>/<ranks of a domain>/<bytes>"
// with the nccl-tests "size". Elsewhere log C is the mean of a Gaussian process through them, with the
// correlation of an Ornstein-Uhlenbeck process in the logarithms of size and group, which follows jumps without
// swinging past them (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", 2006, 2.2 and
// 4.2.1). C is 1 far from all of them. Beyond the smallest and the largest measured size C stays as it is
// there: one term of the law dominates, and is off by the same factor.
//
// The parameter "correction_sigma" s is the log standard deviation of the process: how far calls differ from the
// law of their network. Given the measured calls, log C at another one still varies by s sqrt(1 - k' K^-1 k): by
// next to nothing where it was measured, and by s far away (same source, 2.26). A drawn profile has one normal
// number for all calls of a law (ParameterSet::beyond), so that equal calls of two dispatchers share it.
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
  std::string name() const;
  // Returns the correlation of log C between two calls.
  double likeness(const MeasuredCall& other) const;
};

class Corrections {
 public:
  static constexpr std::string_view kSigma = "correction_sigma";
  // Returns the call of every parameter, nullopt for one that is no correction. Throws InputError naming `key`
  // for a malformed name.
  static std::vector<std::optional<MeasuredCall>> calls_of(const ParameterSet& set, const std::string& key);
  static Corrections from(const ParameterSet& set, const std::string& key);
  // Returns the factor on the time of a call.
  double at(const GroupShape& shape, double size) const;
  // Returns the log standard deviation of that factor where the measured calls are known exactly.
  double sigma(const GroupShape& shape, double size) const;

 private:
  std::vector<MeasuredCall> calls_;
  std::vector<double> lower_, weights_;  // of the calls' correlations: the Cholesky factor; K^-1 log C
  double sigma_ = 0;
  double smallest_ = 0, largest_ = 0;
};

}  // namespace moesim::models
