// What is made of a sweep's rows: the summary for people (its best points, and the axes that matter most), the
// Pareto front, and the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/show/common_options.h"
#include "tools/moesim/study/sweep_table.h"

namespace moesim::tools {

// Rules for summarising a table: the column that scores a row, and the columns to show.
struct SummaryShape {
  std::string many;                 // plural of a point: "scenarios"
  std::string answered;             // column that is empty where there is no answer
  std::string noun = "forecast";    // name of the missing answer
  std::string score;                // column
  bool smaller = false;             // smaller scores are better
  std::string score_words;          // "tokens/s/GPU"
  std::string winner;               // column that marks the counting row of a point; "": one row per point
  std::string fits;                 // column; false: never among the best
  std::string none_fits, not_best;  // "none of which fits the memory", "for want of memory"
  std::string with;                 // column that names the best besides the axes; "": none
  std::string notes;                // column of notes for the reader; "": none
  std::string asked;                // what the points have in common, in a sentence; "": none
  std::vector<std::string> shown;   // columns after the number and the axes
};

class SweepSummary {
 public:
  SweepSummary(const SweepTable& table, SummaryShape shape);

  // Takes a row, in table order.
  void add(const SweepRow& row);

  // Returns the best points, each with its winner, and the effect of each axis.
  std::string text() const;

 private:
  // The counting row of a point.
  struct Found {
    std::uint64_t scenario = 0;
    double score = 0;  // larger is better; 0: unknown
    bool fits = true;
    Cells cells;
  };
  // Data for drivers().
  struct Sample {
    std::uint64_t scenario = 0;
    double score = 0;
    bool fits = true;
    Cells axes;
  };
  void keep_best(const Found& one);
  std::vector<std::pair<const Sample*, double>> compared(std::size_t axis) const;
  std::string styled(std::size_t column, const Cell& cell) const;
  std::string sentence(const std::vector<Found>& best) const;
  std::string best_table(const std::vector<Found>& best) const;
  std::string drivers() const;

  const SweepTable& table_;
  SummaryShape shape_;
  // Column indices in the table.
  std::size_t answered_, score_;
  std::optional<std::size_t> winner_, fits_, with_, notes_;
  std::size_t error_;
  std::vector<std::size_t> axes_, shown_;
  std::vector<Found> best_, best_too_big_;      // of points that fit, and of points that do not; best first
  std::vector<Sample> samples_;                 // every step_-th answered point, for drivers()
  std::map<std::string, std::uint64_t> noted_;  // number of rows with each note
  std::uint64_t step_ = 1;
  std::uint64_t scenarios_ = 0, without_ = 0, too_big_ = 0;
  std::string first_error_;  // of the scenarios without an answer
  std::optional<std::uint64_t> last_;
};

// Throws InputError for an unknown column.
void check_pareto_columns(const std::string& columns, const SweepTable& table);

// Prints the front of a sweep's CSV file. `columns`: names of columns, smaller is better; "-name": larger is
// better. Throws InputError for unknown columns. Also shows the inputs and the columns by which `shape` names
// the best.
void print_pareto(const std::string& csv_file, const std::string& columns, const SweepTable& table,
                  const SummaryShape& shape, const CommonOptions& common);

// `moesim sweep --report`: the rows of a sweep as one page. Of a long sweep only every second, fourth, ...
// scenario is kept with all its rows, so that the page stays small and opens at once.
class SweepReport {
 public:
  // `most_bytes`: limit on the text of kept rows.
  explicit SweepReport(const SweepTable& table, std::size_t most_bytes = kMostBytes)
      : table_(table), most_bytes_(most_bytes) {}

  // Takes a row, in table order.
  void add(SweepRow row);

  // Adds "columns", "rows" (numbers as numbers, empty cells null), "scenarios" and "left_out" to a result.
  // Leaves out columns without values, and parts of the time that are zero everywhere.
  void add_to(nlohmann::ordered_json& result) const;

 private:
  static constexpr std::size_t kMostBytes = 2'500'000;

  void thin_out();

  const SweepTable& table_;
  std::size_t most_bytes_, bytes_ = 0;
  std::uint64_t step_ = 1;       // keeps scenarios whose numbers are multiples of this
  std::uint64_t scenarios_ = 0;  // number seen
  std::uint64_t last_ = UINT64_MAX;
  std::vector<SweepRow> rows_;
};

}  // namespace moesim::tools
