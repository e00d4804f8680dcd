// Any bytes as a dispatching file: refused with one line, or read, and then the same after writing and
// reading.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/input_error.h"
#include "traces/dispatching.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  traces::Dispatching dispatching;
  try {
    dispatching = traces::parse_dispatching({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  } catch (const InputError& error) {
    check(std::string_view(error.what()).find('\n') == std::string_view::npos, "an error is one line");
    return 0;
  }
  check(traces::parse_dispatching(traces::write_dispatching(dispatching), "written.json") == dispatching,
        "what was read is written back");
  return 0;
}
