// `moesim sweep --report`: the rows of a sweep as one page. Of a long sweep only every second, fourth, ...
// scenario is kept with all its rows, so that the page stays small and opens at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tools/moesim/study/sweep_table.h"

namespace moesim::tools {

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
