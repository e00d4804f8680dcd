#include "base/file_io.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/input_error.h"

namespace moesim {
namespace {

class FileIo : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("moesim_file_io_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(FileIo, WritesAndReadsBack) {
  write_file(folder_ / "a", "line\n\0end");
  EXPECT_EQ(read_file(folder_ / "a"), "line\n");
  const std::string binary("a\0b", 3);
  write_file(folder_ / "a", binary);
  EXPECT_EQ(read_file(folder_ / "a"), binary);
}

TEST_F(FileIo, RefusesFoldersPipesAndMissingFiles) {
  EXPECT_THROW(read_file(folder_), InputError);
  EXPECT_THROW(read_file(folder_ / "missing"), InputError);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(read_file(folder_ / "pipe"), InputError);
}

TEST_F(FileIo, RefusesFilesOverTheLimitBeforeReading) {
  std::filesystem::path big = folder_ / "big";
  write_file(big, "x");
  std::filesystem::resize_file(big, std::uint64_t{20} << 30);  // sparse
  EXPECT_THROW(read_file(big), InputError);
}

TEST_F(FileIo, FailedWriteLeavesNothing) {
  EXPECT_THROW(write_file(folder_ / "no" / "such" / "file", "x"), InputError);
  EXPECT_THROW(write_file("/dev/full/x", "x"), InputError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileIo, LeavesOnlyTheFile) {
  write_file(folder_ / "a", std::string(1 << 20, 'x'));
  write_file(folder_ / "a", "y");
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    names.push_back(entry.path().filename());
  EXPECT_EQ(names, std::vector<std::string>{"a"});
}

}  // namespace
}  // namespace moesim
