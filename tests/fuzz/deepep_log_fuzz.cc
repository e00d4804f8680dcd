// Any bytes as the output of DeepEP's or HybridEP's tests: refused with one line, or read.
#include "calibration/rows/import_logs.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const std::string_view text = fuzz::text_of(data, size);
  calibration::ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  facts.source = "fuzz";
  for (const int nodes : {0, 1, 2}) {
    facts.nodes = nodes;
    facts.gpus_per_node = nodes > 0 ? 8 : 0;
    facts.tokens = nodes > 0 ? 128 : 0;
    facts.hidden = nodes > 0 ? 7168 : 0;
    facts.topk = nodes > 0 ? 8 : 0;
    fuzz::accepted([&] {
      const calibration::Imported imported = calibration::import_deepep(text, "fuzz.log", facts);
      check(!imported.rows.dispatches.empty(), "a log that is accepted has rows");
      for (const calibration::DispatchRow& row : imported.rows.dispatches)
        check(row.ep > 0 && row.tokens > 0 && row.hidden > 0 && row.topk > 0 &&
                  (row.seconds > 0 || row.bandwidth > 0),
              "a row is a measurement");
    });
  }
  return 0;
}
