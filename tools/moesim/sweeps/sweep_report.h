// `moesim sweep --report`: the rows of a sweep as one page. Of a long sweep, every second, fourth, ...
// scenario is kept, whole, so that the page stays small and opens at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace moesim::tools {

class SweepReport {
 public:
  // Names of the columns, as in the header of the CSV file; text of rows that is kept at most.
  explicit SweepReport(std::vector<std::string> columns, std::size_t most_bytes = kMostBytes);

  // Whole lines of CSV or JSON lines, in the order of the file; a header is skipped.
  void add(std::string_view lines);
  // All rows of a file of either kind. Throws InputError where it cannot be read.
  void add_file(const std::string& path);

  // Adds "columns", "rows" (numbers as numbers, empty cells null), "scenarios" and "left_out" to a result.
  // Columns without any value, and parts of the time that are zero everywhere, are left out.
  void add_to(nlohmann::ordered_json& result) const;

 private:
  static constexpr std::size_t kMostBytes = 2'500'000;

  struct Line {
    std::uint64_t scenario;
    std::string text;
  };
  void thin_out();

  std::vector<std::string> columns_;
  std::size_t most_bytes_, bytes_ = 0;
  std::uint64_t step_ = 1;       // scenarios with numbers that this divides are kept
  std::uint64_t scenarios_ = 0;  // seen
  std::uint64_t last_ = UINT64_MAX;
  std::vector<Line> lines_;
};

}  // namespace moesim::tools
