// The choice between the dispatchers of a scenario: which one to run, what that can cost, and how sure it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/estimate.h"

namespace moesim::models {

struct Answer;

// Why an answer cannot be chosen.
enum class Bar : std::uint8_t {
  kNone,
  kForcesRouting,     // it routes evenly, where another routing was asked for
  kReplicatesTokens,  // all ranks of its EP group process the same tokens
  kDropsRows,         // it drops rows that others compute
  kTooLarge,          // it does not fit the memory, others do
  kNoRows,            // no row of any measurement supports the price of its exchange
};

// The time that is lost by running one dispatcher and not the fastest, as a share of the fastest one's time,
// under the draws that all answers share.
struct Loss {
  double expected = 0;  // mean of the draws
  double at_most = 0;   // not exceeded with probability Decision::kSure, and not below the mean
};

struct Decision {
  enum class Verdict : std::uint8_t {
    kClear,    // the choice is the fastest with a probability of at least kSure
    kSafe,     // it is not, but its loss is within the tolerance with that probability
    kOpen,     // neither, or no draws say so
    kOnlyOne,  // only one can be chosen
    kNoneFits,
    kNone,  // there is no forecast
  };
  static constexpr double kSure = 0.9;
  static constexpr double kTolerance = 0.1;  // loss that is accepted where nothing else was said
  // Times that differ by less are alike to people: repeated runs of one job scatter as much.
  static constexpr double kAlike = 0.02;

  Verdict verdict = Verdict::kNone;
  int winner = -1;     // the choice: of least expected loss, without draws the fastest; -1: none
  int shortest = -1;   // the fastest forecast of those that compete, often the choice
  int runner_up = -1;  // the one of the others that loses least; -1: there is none
  // Those within kAlike of the choice that are as safe to run, the choice first; where it is open with draws,
  // the choice alone.
  std::vector<int> alike;
  std::vector<int> among;                 // where it is open: those that may be the fastest, the choice first
  Estimate speedup = Estimate::exact(1);  // of the choice over the runner-up
  double tolerance = kTolerance;
  // With draws, of every answer; of those that cannot be chosen 0 and {}.
  std::vector<double> fastest;  // probability that it is the fastest
  std::vector<Loss> losses;
  std::string settle;  // the command that measures what would settle it (calibration::first_measurement)

  // Nullopt without draws; `index` of an answer.
  std::optional<double> probability_of(int index) const;
  std::optional<double> probability() const { return probability_of(winner); }
  std::optional<Loss> loss() const;  // of the choice
  bool answered() const { return verdict == Verdict::kClear || verdict == Verdict::kSafe; }
};
std::string_view name_of(
    Decision::Verdict verdict);  // "clear", "safe", "open", "only_one", "none_fits", "none"

// Says of each answer what bars it. `skewed`: the routing asked for is not balanced. Where no answer is left,
// all compete that do the work that was asked for.
void rank(std::vector<Answer>& answers, bool skewed);
Decision decide(const std::vector<Answer>& answers, double tolerance = Decision::kTolerance);

}  // namespace moesim::models
