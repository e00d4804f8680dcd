// Any bytes as a table of published training steps: refused with one line, or rows that are forecast or say
// why not.
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"
#include "tools/moesim/validation/rows.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const fuzz::AsFile file(fuzz::text_of(data, size));
  for (const tools::RowsWith with : {tools::RowsWith::kTime, tools::RowsWith::kPlan})
    fuzz::accepted([&] {
      const tools::PublishedTable table = tools::read_tables({file.path()}, with);
      for (const tools::PublishedRow& row : table.rows)
        check(row.scenario.resolved && row.scenario.dispatchers.size() == 1, "a row is one question");
      for (const tools::SkippedRow& row : table.skipped) check(!row.reason.empty(), "why it was left out");
    });
  return 0;
}
