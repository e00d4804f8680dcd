// Any bytes as what nccl-tests or rccl-tests write (log, JSON, CSV): refused with one line, or read.
#include "calibration/rows/import_logs.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const std::string_view text = fuzz::text_of(data, size);
  // Alone, and with facts that a user may add.
  for (const int given : {0, 1, 2}) {
    calibration::ImportFacts facts;
    facts.source = "fuzz";
    if (given > 0) facts.gpu = "GPU";
    if (given > 1) {
      facts.op = sim::CollectiveOp::all_gather;
      facts.nodes = 1;
      facts.gpus_per_node = 8;
    }
    fuzz::accepted([&] {
      const calibration::Imported imported = calibration::import_nccl_tests(text, "fuzz.log", facts);
      check(imported.rows.size() > 0, "a log that is accepted has rows");
      for (const calibration::CollectiveRow& row : imported.rows.collectives)
        check(row.ranks() > 1 && row.bytes > 0 && row.seconds > 0 && (!facts.op || row.op == *facts.op),
              "a row is a measurement");
    });
  }
  return 0;
}
