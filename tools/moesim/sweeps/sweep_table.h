// The table of a sweep: what was put in, and behind it what was found, a row per answer.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/moesim/questions/ask.h"

namespace moesim::tools {

enum class RowFormat : std::uint8_t { kCsv, kJsonLines };

class SweepTable {
 public:
  // `found`: columns behind those of the paths. An axis that is called like one of them stands in its place.
  // Behind all is "error".
  SweepTable(RowFormat format, const std::vector<ScenarioPath>& axes, std::vector<std::string> found);

  RowFormat format() const { return format_; }
  std::string header() const;                                       // "" for JSON lines
  const std::vector<std::string>& names() const { return names_; }  // of the columns
  std::size_t inputs() const { return inputs_; }  // the first columns: the number and the axes before `found`

  // Writes the cells of one row in the order of the columns.
  class Row {
   public:
    // A number, true or false: as it stands in both formats.
    template <class... Args>
    void plain(fmt::format_string<Args...> format, Args&&... args) {
      begin();
      fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    }
    void text(std::string_view value);
    void json(const PathValue& value);
    void none();           // an empty cell, and no key in JSON
    void skip_to_error();  // none() for all that is left but the error
    void end();

   private:
    friend class SweepTable;
    Row(std::string& out, const SweepTable& table) : out_(out), table_(table) {}
    bool csv() const { return table_.format_ == RowFormat::kCsv; }
    void begin();

    std::string& out_;
    const SweepTable& table_;
    bool started_ = false;
    std::size_t column_ = 0;
  };
  // A row of point `index`, to be gone on with at the first of `found`; `values` are those of the axes.
  Row row(std::string& out, std::uint64_t index, const std::vector<PathValue>& values) const;
  // The one row of a point that has no answer at all.
  void append_error(std::string& out, std::uint64_t index, const std::vector<PathValue>& values,
                    const std::string& error) const;

  // The number of the point that a row (without its line end) belongs to; nullopt for what is no row.
  static std::optional<std::uint64_t> index_of(std::string_view row);

 private:
  RowFormat format_;
  std::vector<std::string> names_;
  std::size_t inputs_ = 1;
  std::vector<std::optional<std::size_t>> found_column_;  // of each axis, where it stands in one of `found`
};

}  // namespace moesim::tools
