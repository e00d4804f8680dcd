// The ranks of a recording as files of a folder, for targets of readers that take one.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

#include "tests/fuzz/one_line.h"
#include "tests/fuzz/parts.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::fuzz {

// Puts the parts of the input into files of these names, plain or gzip; refused with one line, or one
// recording whose ranks are written and read back.
inline void read_ranks(const std::uint8_t* data, std::size_t size,
                       const std::function<std::string(std::size_t)>& name,
                       const std::function<traces::Recording(const std::filesystem::path&)>& read) {
  constexpr std::size_t kMostFiles = 16;
  const auto parts = parts_of(text_of(data, size));
  const Folder folder;
  const std::size_t files = std::min(parts.size(), kMostFiles);
  for (std::size_t i = 0; i < files; ++i)
    write_file(folder / (name(i) + (parts[i].starts_with("\x1f\x8b") ? ".gz" : "")), parts[i]);
  accepted([&] {
    const traces::Recording recording = read(folder.path());
    check(!recording.ranks.empty() && recording.ranks.size() <= files, "a file is a rank");
    for (const traces::RankRecording& rank : recording.ranks) {
      const std::string written = traces::write_cmd_text(rank);
      traces::Pool pool;
      check(traces::write_cmd_text(traces::read_cmd_text(written, "written.txt", pool)) == written,
            "what was made is read back");
    }
  });
}

}  // namespace moesim::fuzz
