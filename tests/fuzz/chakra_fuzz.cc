// Any bytes as the Chakra traces of several ranks, plain or gzip, in one folder: refused with one line, or
// one recording whose ranks are written and read back.
#include "tests/fuzz/rank_files.h"
#include "traces/kineto_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  fuzz::read_ranks(
      data, size, [](std::size_t rank) { return fmt::format("step.{}.json", rank); },
      [](const std::filesystem::path& path) { return traces::read_chakra(path); });
  return 0;
}
