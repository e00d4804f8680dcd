// Runs a fuzz target on files and folders, without libFuzzer: seeds and what once went wrong, in every build.
// A seed (corpus/) that is refused says little; it is an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "base/file_io.h"
#include "tests/fuzz/one_line.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> inputs;
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      inputs.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(argv[i]))
      if (entry.is_regular_file()) inputs.push_back(entry.path());
  }
  std::sort(inputs.begin(), inputs.end());
  std::size_t refused = 0;
  for (const fs::path& path : inputs) {
    const std::string content = moesim::read_own_file(path);  // any bytes
    std::fprintf(stderr, "%s\n", path.c_str());               // targets may close stdout
    const std::size_t before = moesim::fuzz::accepted_so_far;
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(content.data()), content.size());
    if (path.string().find("/corpus/") == std::string::npos || moesim::fuzz::accepted_so_far > before)
      continue;
    std::fprintf(stderr, "%s: a seed is refused: %s\n", path.c_str(), moesim::fuzz::last_refusal.c_str());
    ++refused;
  }
  std::fprintf(stderr, "%zu inputs\n", inputs.size());
  return inputs.empty() || refused > 0 ? 1 : 0;
}
