// Any bytes as a PyTorch profiler trace, plain or gzip: refused with one line, or read, and then a recording
// that is written and read back.
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/fuzz/one_line.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"
#include "traces/kineto_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace moesim;
  // The reader streams a file; this one lives in memory.
  const int file = ::memfd_create("kineto", MFD_CLOEXEC);
  check(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size), "a file in memory");
  const std::filesystem::path path = "/proc/self/fd/" + std::to_string(file);
  fuzz::accepted([&] {
    const traces::Recording recording = traces::read_kineto(path);
    for (const traces::RankRecording& rank : recording.ranks) {
      const std::string written = traces::write_cmd_text(rank);
      traces::Pool pool;
      check(traces::write_cmd_text(traces::read_cmd_text(written, "written.txt", pool)) == written,
            "what was made is read back");
    }
  });
  ::close(file);
  return 0;
}
