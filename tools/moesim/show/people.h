// Tables for people made from columns: heads of shares, times and intervals, and columns that give way where the
// terminal is narrow.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "models/answers/answer.h"
#include "tools/moesim/show/columns.h"
#include "tools/moesim/show/output.h"

namespace moesim::tools {

// As percent() has it.
inline Head share_head(const char* name, int digits = 0, bool sign = false) {
  return {name, [=](double share) { return percent(share, digits, sign); }};
}

// A time in microseconds, in one unit for all rows.
inline Head time_head(std::string name, const TimeUnit& unit) {
  return {std::move(name), [unit](double us) { return unit.number(us); }};
}

// "159.18 to 348.18"; right-aligned, as an optional one.
inline std::optional<std::string> interval(const models::Estimate& us, const TimeUnit& unit) {
  return unit.number(us.low) + " to " + unit.number(us.high);
}

// `rows`: Rows, or references to them; `spare`: the heads of columns that give way; `best`: the rows to mark.
template <class Row, class Rows>
Table people_table(const Columns<Row>& columns, const Rows& rows,
                   std::initializer_list<std::string_view> spare = {},
                   const std::function<bool(const Row&)>& best = {}) {
  std::vector<Table::Column> heads = columns.heads({});
  for (Table::Column& head : heads) head.spare = std::ranges::find(spare, head.name) != spare.end();
  Table table(heads);
  for (const Row& row : rows) {
    table.row(columns.cells({}, row));
    if (best && best(row)) table.mark_best();
  }
  return table;
}

// The answers with a forecast.
std::vector<std::reference_wrapper<const models::Answer>> forecasts(const models::Comparison& comparison);
// The memory of an answer, and whether it fits.
Columns<models::Answer> memory_for_people();

}  // namespace moesim::tools
