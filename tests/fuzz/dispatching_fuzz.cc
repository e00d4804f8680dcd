// Any bytes as a dispatching file: refused with one line, or read, and then the same after writing and
// reading.
#include "tests/fuzz/one_line.h"
#include "traces/dispatching.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  traces::Dispatching dispatching;
  if (!fuzz::accepted(
          [&] { dispatching = traces::parse_dispatching(fuzz::text_of(data, size), "fuzz.json"); }))
    return 0;
  check(traces::parse_dispatching(traces::write_dispatching(dispatching), "written.json") == dispatching,
        "what was read is written back");
  return 0;
}
