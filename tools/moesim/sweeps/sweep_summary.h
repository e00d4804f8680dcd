// What a sweep found, for people: the best of its points and which axis matters most.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/moesim/sweeps/sweep_table.h"

namespace moesim::tools {

// What of a table is summed up: which column says how good a row is, and what people see of it.
struct SummaryShape {
  std::string many;                 // "scenarios"
  std::string answered;             // column that is empty where there is no answer
  std::string noun = "forecast";    // what is missing there
  std::string score;                // column
  bool smaller = false;             // is better
  std::string score_words;          // "tokens/s/GPU"
  std::string winner;               // column that marks the row of a point that counts; "": there is one
  std::string fits;                 // column; false: never among the best
  std::string none_fits, not_best;  // "none of which fits the memory", "do not fit the memory"
  std::string with;                 // column that the best is named by, behind the axes; "": none
  std::string notes;                // column of what a reader has to know; "": none
  std::vector<std::string> shown;   // columns behind the number and the axes
};

class SweepSummary {
 public:
  SweepSummary(const SweepTable& table, SummaryShape shape);

  // Takes a row, in the order of the table.
  void add(const SweepRow& row);

  // The best points, each with its winner, and what each axis changes.
  std::string text() const;

 private:
  // The row of a point that counts.
  struct Found {
    std::uint64_t scenario = 0;
    double score = 0;  // larger is better; 0: nobody knows
    bool fits = true;
    Cells cells;
  };
  // What drivers() reads of it.
  struct Sample {
    std::uint64_t scenario = 0;
    double score = 0;
    Cells axes;
  };
  void keep_best(const Found& one);
  std::string styled(std::size_t column, const Cell& cell) const;
  std::string sentence(const std::vector<Found>& best) const;
  std::string best_table(const std::vector<Found>& best) const;
  std::string drivers() const;

  const SweepTable& table_;
  SummaryShape shape_;
  // Columns of the table.
  std::size_t answered_, score_;
  std::optional<std::size_t> winner_, fits_, with_, notes_;
  std::size_t error_;
  std::vector<std::size_t> axes_, shown_;
  std::vector<Found> best_, best_too_big_;      // of those that fit, and of those that do not; the best first
  std::vector<Sample> samples_;                 // every step_-th point, for drivers()
  std::map<std::string, std::uint64_t> noted_;  // how many rows say it
  std::uint64_t step_ = 1;
  std::uint64_t scenarios_ = 0, without_ = 0, too_big_ = 0;
  std::string first_error_;  // of the scenarios without an answer
  std::optional<std::uint64_t> last_;
};

}  // namespace moesim::tools
