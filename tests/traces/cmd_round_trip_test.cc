#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file_io.h"
#include "traces/cmd_reader.h"
#include "traces/cmd_writer.h"

namespace moesim::traces {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> public_recordings() {
  std::vector<fs::path> files;
  const fs::path root = fs::path(MOESIM_DATA_DIR) / "echo";
  if (!fs::exists(root)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(root))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("rank"))
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(CmdRoundTrip, EveryPublicFileComesBackByteForByte) {
  const std::vector<fs::path> files = public_recordings();
  if (files.empty()) GTEST_SKIP() << "no recordings under " << MOESIM_DATA_DIR;
  for (const fs::path& file : files) {
    const std::string text = read_file(file);
    Pool pool;
    const RankRecording rank = read_cmd_text(text, file.string(), pool);
    EXPECT_EQ(write_cmd_text(rank), text) << file;
    EXPECT_EQ(rank.operations.size(), static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')))
        << file;
  }
}

}  // namespace
}  // namespace moesim::traces
