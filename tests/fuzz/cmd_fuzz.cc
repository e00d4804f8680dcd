// Any bytes as a CMD rank file: refused with one line, or read, and then written back byte for byte.
#include "tests/fuzz/one_line.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/recording_check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const std::string_view text = fuzz::text_of(data, size);
  traces::Recording recording;
  if (!fuzz::accepted(
          [&] { recording.ranks.push_back(traces::read_cmd_text(text, "fuzz.txt", recording.pool)); }))
    return 0;
  check(traces::write_cmd_text(recording.ranks.front()) == text, "what was read is written back");
  recording.source = "fuzz";
  traces::examine(recording, traces::describe(recording));
  return 0;
}
