#include "base/file_io.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
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

TEST_F(FileIo, TextIsUtf8) {
  write_file(folder_ / "latin", "one\ntwo \xe9\n");
  try {
    read_file(folder_ / "latin");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(),
              (folder_ / "latin").string() + ":2:5: found the byte 0xe9, expected text in UTF-8");
  }
  EXPECT_EQ(read_own_file(folder_ / "latin"), "one\ntwo \xe9\n");
}

TEST_F(FileIo, EntriesComeInTheOrderOfTheirNames) {
  for (const char* name : {"b", "a", "c"}) write_file(folder_ / name, "x");
  const std::vector<std::filesystem::path> expected{folder_ / "a", folder_ / "b", folder_ / "c"};
  EXPECT_EQ(entries_of(folder_), expected);
  EXPECT_THROW(entries_of(folder_ / "missing"), InputError);
  EXPECT_THROW(entries_of(folder_ / "a"), InputError);
  std::filesystem::create_symlink("loop", folder_ / "loop");
  EXPECT_THROW(entries_of(folder_ / "loop"), InputError);
}

// What a writer left that was killed between its file's two names goes with the next write.
TEST_F(FileIo, LeftoversOfKilledWritersGo) {
  write_file(folder_ / "a", "old");
  for (const char* name : {"a.123.tmp", "a.124.tmp", "a.x.tmp", "b.123.tmp"}) write_file(folder_ / name, "x");
  for (const char* name : {"a.123.tmp", "a.x.tmp", "b.123.tmp"})
    std::filesystem::last_write_time(folder_ / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  write_file(folder_ / "a", "new");
  const std::vector<std::filesystem::path> expected{folder_ / "a", folder_ / "a.124.tmp", folder_ / "a.x.tmp",
                                                    folder_ / "b.123.tmp"};
  EXPECT_EQ(entries_of(folder_), expected) << "only those that nobody writes any more";
}

// Killed at any moment, the old file or the new one is there and, where there was none, nothing else.
TEST_F(FileIo, AKilledWriterLeavesAWholeFile) {
  const std::string old(100'000, 'o'), fresh(200'000, 'f');
  for (int i = 0; i < 40; ++i) {
    write_file(folder_ / "a", old);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (;;) {
        write_file(folder_ / "a", fresh);
        write_file(folder_ / "a", old);
      }
    }
    ::usleep(static_cast<useconds_t>(500 + 377 * i));
    ::kill(child, i % 2 == 0 ? SIGTERM : SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    const std::string text = read_file(folder_ / "a");
    EXPECT_TRUE(text == old || text == fresh);
    if (i % 2 == 0) {
      EXPECT_FALSE(std::filesystem::exists(folder_ / ("a." + std::to_string(child) + ".tmp")));
    }
  }
}

}  // namespace
}  // namespace moesim
