// Any bytes as router traces of several ranks: refused with one line, or tables that are written and read
// back.
#include <fmt/format.h>

#include "tests/fuzz/one_line.h"
#include "tests/fuzz/parts.h"
#include "traces/router_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  constexpr std::size_t kMostFiles = 16;
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size));
  const fuzz::Folder folder;
  for (std::size_t i = 0; i < std::min(parts.size(), kMostFiles); ++i)
    write_file(folder / fmt::format("router_trace_rank{}.jsonl", i), parts[i]);
  fuzz::accepted([&] {
    const traces::Dispatching made = traces::read_router_trace(folder.path()).dispatching;
    check(traces::parse_dispatching(traces::write_dispatching(made), "written.json") == made,
          "what was made is read back");
  });
  return 0;
}
