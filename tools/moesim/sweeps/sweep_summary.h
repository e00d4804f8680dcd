// What a sweep found, for people: the best of its points and which axis matters most.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/moesim/sweeps/sweep_table.h"

namespace moesim::tools {

// How cells of a column are shown: as they are, with a number of digits, as a share, in bytes, or in
// microseconds that all rows show in one unit.
enum class CellStyle : std::uint8_t { kText, kWhole, kThree, kFour, kPercent, kGigabytes, kTime };

struct SummaryColumn {
  std::string column, head;
  CellStyle style = CellStyle::kText;
};

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
  struct Told {
    std::string column, words;  // "{} tokens/s/GPU"
    CellStyle style = CellStyle::kWhole;
  };
  std::vector<Told> told;            // of the best
  std::vector<SummaryColumn> shown;  // behind the number and the axes
};

class SweepSummary {
 public:
  // `axes`: columns that were swept over.
  SweepSummary(std::vector<std::string> columns, std::vector<std::string> axes, SummaryShape shape);

  // Takes whole lines of the table, CSV or JSON lines, in order.
  void add(std::string_view lines);
  void add_file(const std::string& path);

  // The best points, each with its winner, and what each axis changes.
  std::string text() const;

 private:
  // The row of a point that counts.
  struct Found {
    std::uint64_t scenario = 0;
    double score = 0;  // larger is better; 0: nobody knows
    bool fits = true;
    std::vector<std::string> axes, shown, told;  // cells
    std::string with;
  };
  void take(const std::vector<std::string>& cells);
  void keep_best(const Found& one);
  std::string sentence(const std::vector<Found>& best) const;
  std::string best_table(const std::vector<Found>& best) const;
  std::string drivers() const;

  std::vector<std::string> columns_, axes_;
  SummaryShape shape_;
  // Where the cells are that take() reads of every row.
  std::size_t answered_, score_;
  std::optional<std::size_t> winner_, fits_, with_, notes_;
  std::vector<std::size_t> axis_columns_, shown_, told_;
  std::vector<Found> best_, best_too_big_;      // of those that fit, and of those that do not; the best first
  std::vector<Found> found_;                    // every step_-th point, for drivers()
  std::map<std::string, std::uint64_t> noted_;  // how many rows say it
  std::uint64_t step_ = 1;
  std::uint64_t scenarios_ = 0, without_ = 0, too_big_ = 0;
  std::optional<std::uint64_t> last_;
};

}  // namespace moesim::tools
