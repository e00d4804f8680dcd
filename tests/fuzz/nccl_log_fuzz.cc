// Any bytes as the output of nccl-tests: refused with one line, or read.
#include "calibration/rows/import_logs.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  calibration::ImportFacts facts;
  facts.gpu = "H100-SXM5-80GB";
  facts.source = "fuzz";
  facts.op = sim::CollectiveOp::all_gather;
  fuzz::accepted([&] {
    const auto rows = calibration::import_nccl_tests(fuzz::text_of(data, size), "fuzz.log", facts);
    check(rows.size() > 0, "a log that is accepted has rows");
  });
  return 0;
}
