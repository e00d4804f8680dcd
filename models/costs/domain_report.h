// Reports which prices of a forecast lie outside of the range that the profile's laws were measured on.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/estimate.h"

namespace moesim::models {

// Returns the octaves by which a value lies outside of a measured range; 0 inside.
double octaves_outside(const DomainRange& range, double value);

// The reason why a price is not a measured one.
struct OutsideDomain {
  std::string price;  // "h100-sxm: all_gather inside a node"
  std::string why;    // "was not measured"; empty where a quantity lies outside of its range:
  DomainRange measured;
  double value = 0;
  bool drawn = false;     // the price's draws contain the doubt: a law of another machine
  bool exchange = false;  // dispatch or combine kernel of a library
  bool no_rows = false;   // measured on no machine: the price of another operation stands in

  // `source`: of the law, "derived from h100-sxm: ...".
  static OutsideDomain derived(std::string price, const std::string& source);
  // "h100-sxm: all_gather inside a node extrapolates to 16 ranks (measured 2 to 8)".
  std::string text() const;
};

// Finds the quantity that lies farthest outside of a law's ranges; none where all lie inside.
class FarthestOutside {
 public:
  void try_range(const DomainRange* range, double value);
  std::optional<OutsideDomain> of(std::string price) const;

 private:
  DomainRange range_;
  double value_ = 0, octaves_ = 0;
};

// Collects the prices of a forecast. Parts below 1 % of the time cause no warning.
class DomainReport {
 public:
  // Adds `seconds` of operations with one price, and the reason why it is not measured.
  void add(double seconds, const std::optional<OutsideDomain>& outside);
  // Returns one line for each price and quantity, with the value that takes longest; longest total time
  // first.
  std::vector<std::string> lines() const;
  // Prices that were not measured on the machine (extrapolated ones are not included) and their share of the
  // time, from 1 % on.
  struct Unmeasured {
    std::string part;
    double share = 0;
    bool drawn = false;     // the price's draws contain the doubt
    bool exchange = false;  // dispatch or combine kernel of a library
    bool no_rows = false;   // no measurement on any machine
  };
  std::vector<Unmeasured> unmeasured() const;
  // Returns the share of the summed time of all operations that lies outside.
  double share() const { return total_ > 0 ? outside_ / total_ : 0; }

 private:
  struct Entry {
    OutsideDomain longest;
    double longest_seconds = 0, seconds = 0;
  };
  std::vector<Entry> entries_;
  double total_ = 0, outside_ = 0;
};

// Widens draws of a time (`us` nominal, microseconds) by the uncertainty of unmeasured parts: each part is
// off by a log-normal factor, which in one draw is the same for all times that contain the part. `sigma`: log
// standard deviation. Dispatch kernels of EP sizes left out of a fit are off by 33 % in the mean, 44 % before
// the last fit, which is kept: with kernel_doubt() 85 % of those rows lie inside of 90 %
// (docs/calibration.md).
inline constexpr double kUnmeasuredSigma = 0.365;  // log 1.44
// Returns the factor of a part in draw d.
double unmeasured_factor(std::string_view part, std::size_t d, double sigma = kUnmeasuredSigma);
void doubt_unmeasured(std::span<const DomainReport::Unmeasured> parts, double us,
                      std::vector<double>& draws_us, double sigma = kUnmeasuredSigma);

}  // namespace moesim::models
