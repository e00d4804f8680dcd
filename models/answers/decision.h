// The choice between the dispatchers of a scenario: the one to run, its expected loss, and its probability of
// being the fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/hardware/estimate.h"

namespace moesim::models {

// Win probabilities and tie groups from paired draws.

// Returns the probability that each of several quantities is the smallest: its share of the draws, where
// equal values share a win. One draw in which all are equal is added, the resolution of so many draws.
// `times[i]`: the draws of quantity i, all of one length.
std::vector<double> smallest_shares(std::span<const std::vector<double>> times);

// Returns the tie group of each time, for times in ascending order of `values`: the first member is smaller
// than every other member of its group with a probability below `sure`. Without draws, equal values form a
// group.
std::vector<int> tie_groups(std::span<const double> values, std::span<const std::vector<double>> times,
                            double sure);

struct Answer;
struct FrameworkRecipe;

// The reason why an answer cannot be chosen.
enum class Bar : std::uint8_t {
  kNone,
  kOtherFramework,    // the framework that is known to run the job has no such dispatcher
  kForcesRouting,     // it routes evenly although another routing was asked for
  kReplicatesTokens,  // all ranks of its EP group process the same tokens
  kDropsRows,         // it drops rows that other dispatchers compute
  kTooLarge,          // it exceeds the memory while others fit
  kNoRows,            // no measurement supports the price of its exchange
};

// The time lost by running one dispatcher instead of the fastest, as a share of the fastest one's time, under
// the draws that all answers share.
struct Loss {
  double expected = 0;  // mean over the draws
  double at_most = 0;   // quantile Decision::kSure over the draws, at least the mean
};

struct Decision {
  enum class Verdict : std::uint8_t {
    kClear,    // the choice is the fastest with a probability of at least kSure
    kSafe,     // not clear, but the loss is within the tolerance with a probability of at least kSure
    kOpen,     // neither clear nor safe, or without draws
    kOnlyOne,  // only one can be chosen
    kNoneFits,
    kNone,  // there is no forecast
  };
  static constexpr double kSure = 0.9;
  static constexpr double kTolerance = 0.1;  // accepted loss where the user gives none
  // Times within this ratio count as equal: repeated runs of one job scatter as much.
  static constexpr double kAlike = 0.02;

  Verdict verdict = Verdict::kNone;
  int winner = -1;     // the choice: least expected loss, without draws the fastest; -1: none
  int shortest = -1;   // shortest forecast among those that compete, often the choice
  int runner_up = -1;  // least loss among the others; -1: there is none
  // Answers within kAlike of the choice and as safe to run, the choice first; where the verdict is open with
  // draws, the choice alone.
  std::vector<int> alike;
  std::vector<int> among;                 // where open: answers that may be the fastest, the choice first
  Estimate speedup = Estimate::exact(1);  // the runner-up's time over the choice's
  double tolerance = kTolerance;
  // One entry for every answer, with draws only; 0 and {} for answers that cannot be chosen.
  std::vector<double> fastest;  // probability that it is the fastest
  std::vector<Loss> losses;
  // the command whose measurement would settle an open verdict (calibration::first_measurement)
  std::string settle;

  // Probability that the answer `index` is the fastest; nullopt without draws.
  std::optional<double> probability_of(int index) const;
  std::optional<double> probability() const { return probability_of(winner); }
  std::optional<Loss> loss() const;  // loss of the choice
  bool answered() const { return verdict == Verdict::kClear || verdict == Verdict::kSafe; }
};
std::string_view name_of(
    Decision::Verdict verdict);  // "clear", "safe", "open", "only_one", "none_fits", "none"

// Sets `bar` of each answer. `skewed`: the routing asked for is not balanced. `known`: the framework that runs
// the job, if it is known. Where every answer is barred, all that do the work asked for compete.
void rank(std::vector<Answer>& answers, bool skewed, const FrameworkRecipe* known = nullptr);
// `fit`: something must fit the memory.
Decision decide(const std::vector<Answer>& answers, double tolerance = Decision::kTolerance, bool fit = true);

}  // namespace moesim::models
