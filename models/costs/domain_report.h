// What of a forecast lies outside of what the profile's laws were measured on.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/domain_range.h"

namespace moesim::models {

// Octaves by which a value lies outside of a measured range; 0 inside.
double octaves_outside(const DomainRange& range, double value);

// Why a price is not a measured one.
struct OutsideDomain {
  std::string price;  // "h100-sxm: all_gather inside a node"
  std::string why;    // "was not measured"; empty where a quantity lies out of its range:
  DomainRange measured;
  double value = 0;
  bool drawn = false;     // the draws of the price hold the doubt: a law of another machine
  bool exchange = false;  // a library's dispatch or combine kernel
  bool no_rows = false;   // no measurement of it on any machine: another operation's price stands for it

  // `source`: of the law, "derived from h100-sxm: ...".
  static OutsideDomain derived(std::string price, const std::string& source);
  // "h100-sxm: all_gather inside a node extrapolates to 16 ranks (measured 2 to 8)".
  std::string text() const;
};

// The farthest of a law's ranges that the values lie outside of, none where all are inside.
class FarthestOutside {
 public:
  void try_range(const DomainRange* range, double value);
  std::optional<OutsideDomain> of(std::string price) const;

 private:
  DomainRange range_;
  double value_ = 0, octaves_ = 0;
};

// Collects the prices of a forecast. Parts below 1 % of the time are no reason to warn.
class DomainReport {
 public:
  // `seconds` of operations of one price, and why it is not a measured one.
  void add(double seconds, const std::optional<OutsideDomain>& outside);
  // One line for each price and quantity, with the value that takes longest; what takes most of the time
  // comes first.
  std::vector<std::string> lines() const;
  // Prices that nobody measured on the machine (those beyond a measured range are not meant), and their share
  // of the time. Below 1 % they do not count.
  struct Unmeasured {
    std::string part;
    double share = 0;
    bool drawn = false;     // the draws of the price hold the doubt
    bool exchange = false;  // a library's dispatch or combine kernel
    bool no_rows = false;   // no measurement on any machine
  };
  std::vector<Unmeasured> unmeasured() const;
  // Share of the time of all operations, one after the other, that lies outside.
  double share() const { return total_ > 0 ? outside_ / total_ : 0; }

 private:
  struct Entry {
    OutsideDomain longest;
    double longest_seconds = 0, seconds = 0;
  };
  std::vector<Entry> entries_;
  double total_ = 0, outside_ = 0;
};

// Times `us` of a whole under draws of the profile, with the doubt about parts that nobody measured: each is
// off by a log-normal factor, under one draw the same for all times that hold the part. `sigma`: log standard
// deviation. Dispatch kernels of EP sizes left out of a fit are off by 33 % in the mean, 44 % before their
// last fit, which is kept: with kernel_doubt() 85 % of those rows are inside of 90 % (docs/calibration.md).
inline constexpr double kUnmeasuredSigma = 0.365;  // log 1.44
// By what factor draw d has a part off.
double unmeasured_factor(std::string_view part, std::size_t d, double sigma = kUnmeasuredSigma);
void doubt_unmeasured(std::span<const DomainReport::Unmeasured> parts, double us,
                      std::vector<double>& draws_us, double sigma = kUnmeasuredSigma);

}  // namespace moesim::models
