// Any bytes as a table of operations (CSV): refused with one line, or a recording that is written as CMD
// files and read again.
#include "tests/fuzz/as_file.h"
#include "tests/fuzz/one_line.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/csv_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  const fuzz::AsFile file(fuzz::text_of(data, size));
  traces::Recording recording;
  if (!fuzz::accepted([&] { recording = traces::read_csv_recording(file.path()); })) return 0;
  for (const traces::RankRecording& rank : recording.ranks) {
    std::string text;
    if (!fuzz::accepted([&] { text = traces::write_cmd_text(rank); })) continue;
    traces::Pool pool;
    const traces::RankRecording again = traces::read_cmd_text(text, "again.txt", pool);
    check(traces::write_cmd_text(again) == text, "what is written can be read and written again");
  }
  return 0;
}
