// Any bytes as a table of published training steps: refused with one line, or rows that are forecast or say
// why not.
#include "calibration/training/training_rows.h"
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const fuzz::AsFile file(fuzz::text_of(data, size));
  for (const calibration::RowsWith with : {calibration::RowsWith::kTime, calibration::RowsWith::kPlan})
    fuzz::accepted([&] {
      const calibration::TrainingTable table = calibration::read_training_table(file.path(), with);
      for (const calibration::TrainingRow& row : table.rows)
        check(row.scenario.resolved && row.scenario.dispatchers.size() == 1, "a row is one question");
      for (const calibration::SkippedRow& row : table.skipped)
        check(!row.reason.empty(), "why it was left out");
    });
  return 0;
}
