// Any bytes as the profiler traces of several ranks, plain or gzip, in one folder: refused with one line, or
// one recording whose ranks are written and read back.
#include <fmt/format.h>

#include "tests/fuzz/one_line.h"
#include "tests/fuzz/parts.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/kineto_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  constexpr std::size_t kMostFiles = 16;
  const auto parts = fuzz::parts_of(fuzz::text_of(data, size));
  const fuzz::Folder folder;
  const std::size_t files = std::min(parts.size(), kMostFiles);
  for (std::size_t i = 0; i < files; ++i)
    write_file(folder / fmt::format("rank{}.json{}", i, parts[i].starts_with("\x1f\x8b") ? ".gz" : ""),
               parts[i]);
  fuzz::accepted([&] {
    const traces::Recording recording = traces::read_kineto(folder.path());
    check(!recording.ranks.empty() && recording.ranks.size() <= files, "a file is a rank");
    for (const traces::RankRecording& rank : recording.ranks) {
      const std::string written = traces::write_cmd_text(rank);
      traces::Pool pool;
      check(traces::write_cmd_text(traces::read_cmd_text(written, "written.txt", pool)) == written,
            "what was made is read back");
    }
  });
  return 0;
}
