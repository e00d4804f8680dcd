// Any bytes as a table of measurements (the published layouts, or the Echo traces' benchmarks): refused with
// one line, or read.
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  calibration::ImportFacts facts;
  facts.gpu = "H800-SXM5-80GB";
  facts.source = "fuzz";
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::accepted([&] { calibration::read_table(text, "fuzz.csv"); });
  if (calibration::is_echo_table(text))
    fuzz::accepted([&] { calibration::import_echo(text, "allreduce_16gpu_2node_fuzz.csv", facts); });
  return 0;
}
