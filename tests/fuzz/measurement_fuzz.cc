// Any bytes as JSON measurements, Google Benchmark's or our own: refused with one line, or read, and then the
// same after writing and reading.
#include "calibration/rows/import_logs.h"
#include "calibration/rows/measurements.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  calibration::ImportFacts facts;
  facts.gpu = "H200-SXM5-141GB";
  facts.source = "fuzz";
  const std::string_view text = fuzz::text_of(data, size);
  const auto round_trip = [](const calibration::Measurements& rows) {
    const std::string written = calibration::to_json(rows, "fuzz");
    check(
        calibration::to_json(calibration::parse_measurement_file(written, "written.json"), "fuzz") == written,
        "what was read is written back");
  };
  fuzz::accepted([&] { round_trip(calibration::parse_measurement_file(text, "fuzz.json")); });
  fuzz::accepted([&] { round_trip(calibration::import_google_benchmark(text, "fuzz.json", facts).rows); });
  return 0;
}
