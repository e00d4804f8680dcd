// Any bytes as logs of NCCL Inspector, one file or two: refused with one line, or read.
#include "calibration/rows/import_logs.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const std::string text(fuzz::text_of(data, size));
  calibration::is_inspector_log(text);
  calibration::ImportFacts facts;
  facts.gpu = "GPU";
  // The second file begins at a blank line.
  const std::size_t cut = text.find("\n\n");
  std::vector<std::string> files{text.substr(0, cut)};
  if (cut != std::string::npos) files.push_back(text.substr(cut));
  fuzz::accepted([&] {
    std::size_t next = 0;
    const auto text_of = [&](const std::string&) { return files[next++]; };
    const std::vector<std::string> names(files.size(), "fuzz.log");
    const calibration::Imported imported = calibration::import_inspector(names, text_of, facts);
    check(imported.rows.size() > 0, "a log that is accepted has rows");
    for (const calibration::CollectiveRow& row : imported.rows.collectives)
      check(row.ranks() > 1 && row.bytes > 0 && row.seconds > 0, "a row is a measurement");
  });
  return 0;
}
