// Any bytes as the beginning of a foreign file: nothing, or a name and an alternative; the same for the file.
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"
#include "traces/foreign_format.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  for (const char* name : {"x", "x.et", "x.json.gz"})
    if (const auto found = traces::foreign_format(fuzz::text_of(data, size), name)) {
      check(!found->name.empty() && !found->instead.empty(), "a name and what to do instead");
      ++fuzz::accepted_so_far;
    }
  const fuzz::AsFile file(fuzz::text_of(data, size));
  fuzz::accepted([&] { traces::refuse_foreign(file.path(), traces::Traces::kForeign); });
  return 0;
}
