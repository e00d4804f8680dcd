// Any bytes as what nccl-tests or rccl-tests write (log, JSON, CSV): refused with one line, or read.
#include <optional>

#include "calibration/rows/import_logs.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  calibration::ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  facts.source = "fuzz";
  const std::string_view text = fuzz::text_of(data, size);
  // As it says itself, and with what a user may add.
  for (const auto op : {std::optional<sim::CollectiveOp>(), std::optional(sim::CollectiveOp::all_gather)}) {
    facts.op = op;
    facts.nodes = op ? 1 : 0;
    facts.gpus_per_node = op ? 8 : 0;
    fuzz::accepted([&] {
      const calibration::Imported imported = calibration::import_nccl_tests(text, "fuzz.log", facts);
      check(imported.rows.size() > 0, "a log that is accepted has rows");
      for (const calibration::CollectiveRow& row : imported.rows.collectives)
        check(row.ranks() > 1 && row.bytes > 0 && row.seconds > 0 && (!op || row.op == *op), "a row is a measurement");
    });
  }
  return 0;
}
