// What a sweep found, for people: the best scenarios and which axis matters most.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/sweeps/sweep_rows.h"

namespace moesim::tools {

class SweepSummary {
 public:
  // `axes`: columns that were swept over.
  SweepSummary(std::vector<std::string> columns, std::vector<std::string> axes);

  // Takes whole lines of the table, CSV or JSON lines, in order.
  void add(std::string_view lines);
  void add_file(const std::string& path);

  // The best scenarios, each with its fastest dispatcher, and what each axis changes. Scenarios compare by
  // what a million tokens cost where there are prices, else by tokens per second and GPU, so that other
  // batches and sequences compare.
  std::string text() const;

 private:
  // The fastest dispatcher of a scenario.
  struct Found {
    std::uint64_t scenario = 0;
    double score = 0;  // larger is better
    bool fits = true;
    std::vector<std::string> cells;  // of axes_
    std::string dispatcher;
    double time_us = 0, tokens = 0, mfu = 0, memory = 0, cost = 0;
  };
  void take(const std::vector<std::string>& cells);
  void keep_best(const Found& one);
  std::string sentence(const std::vector<Found>& best) const;
  std::string drivers() const;

  std::vector<std::string> columns_, axes_;
  std::vector<std::size_t> axis_columns_;
  bool priced_;
  // Where the cells are that take() reads of every row.
  std::size_t scenario_, time_, winner_, fits_, tokens_, cost_, dispatcher_, mfu_, memory_;
  std::vector<Found> best_, best_too_big_;  // of those that fit, and of those that do not; the best first
  std::vector<Found> found_;                // every step_-th scenario, for drivers()
  std::uint64_t step_ = 1;
  std::uint64_t scenarios_ = 0, without_ = 0, too_big_ = 0;
  std::optional<std::uint64_t> last_;
};

}  // namespace moesim::tools
