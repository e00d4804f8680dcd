// Files: read, written, hashed; and the errors of programs and users.
#include "base/file_io.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/input_error.h"
#include "base/sha256.h"
#include "tests/message_of.h"

namespace moesim {
namespace {

using moesim::testing::message_of;

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
  write_file(folder_ / "marked", "\xEF\xBB\xBF{}");  // as editors on Windows save it
  EXPECT_EQ(read_file(folder_ / "marked"), "{}");
  const std::string binary("a\0b", 3);
  write_file(folder_ / "a", binary);
  EXPECT_EQ(read_own_file(folder_ / "a"), binary);
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
  EXPECT_EQ(message_of([&] { read_file(folder_ / "latin"); }),
            (folder_ / "latin").string() + ":2:5: found the byte 0xe9, expected text in UTF-8");
  EXPECT_EQ(read_own_file(folder_ / "latin"), "one\ntwo \xe9\n");
  // Readers would take a zero for the end.
  write_file(folder_ / "zeros", std::string("one\0\0", 5));
  EXPECT_EQ(message_of([&] { read_file(folder_ / "zeros"); }),
            (folder_ / "zeros").string() + ":1:4: found the byte 0x00, expected text in UTF-8");
}

TEST_F(FileIo, NamesAreOnOneLine) {
  EXPECT_THROW(write_file(folder_ / "a\nb", "x"), InputError);
  EXPECT_THROW(read_file(folder_ / "a\nb"), InputError);
  EXPECT_THROW(entries_of(folder_ / "a\nb"), InputError);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// "/dev/stdout" of a shell's redirection is the file that the answer goes to: written to, not replaced.
TEST_F(FileIo, DescriptorsAreWrittenTo) {
  const std::filesystem::path file = folder_ / "out";
  const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(opened, 0);
  const std::string name = "/dev/fd/" + std::to_string(opened);
  write_file(name, "one ");
  write_file(name, "two");
  ::close(opened);
  EXPECT_EQ(read_file(file), "one two");
  EXPECT_THROW(write_file(name, "x"), InputError) << "a closed one";
  EXPECT_THROW(regular_file_to_write("/dev/stdout"), InputError);
  // Under any name: "moesim compare --report page.html > page.html".
  const std::filesystem::path link = folder_ / "link";
  std::filesystem::create_symlink("/dev/stdout", link);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::freopen(file.c_str(), "w", stdout) == nullptr) ::_exit(1);
    std::fputs("answer ", stdout);
    write_file(link, "page ");
    write_file(file, "page again");
    std::fflush(stdout);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(read_file(file), "answer page page again");
}

TEST_F(FileIo, ASignalThatWouldEndTheProcessIsSeen) {
  EXPECT_FALSE(SignalsHeld::one_ends());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto ends = [](int number) {
      const SignalsHeld held;
      ::raise(number);
      return SignalsHeld::one_ends();
    };
    ::signal(SIGHUP, SIG_IGN);
    if (ends(SIGHUP)) ::_exit(1);
    const SignalsHeld held;
    ::raise(SIGTERM);
    ::_exit(SignalsHeld::one_ends() ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
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

// Temporary files of a writer killed before its rename disappear with the next write.
TEST_F(FileIo, LeftoversOfKilledWritersGo) {
  write_file(folder_ / "a", "old");
  const std::vector<std::filesystem::path> others{folder_ / "a", folder_ / "a.123.tmp",
                                                  folder_ / "a.124.moesim-tmp", folder_ / "a.x.moesim-tmp",
                                                  folder_ / "b.123.moesim-tmp"};
  for (const std::filesystem::path& other : others) write_file(other, "x");
  write_file(folder_ / "a.123.moesim-tmp", "x");
  for (const char* name : {"a.123.moesim-tmp", "a.123.tmp", "a.x.moesim-tmp", "b.123.moesim-tmp"})
    std::filesystem::last_write_time(folder_ / name,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  write_file(folder_ / "a", "new");
  EXPECT_EQ(entries_of(folder_), others) << "only abandoned ones";
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
      EXPECT_FALSE(std::filesystem::exists(folder_ / ("a." + std::to_string(child) + ".moesim-tmp")));
    }
  }
}

TEST(Sha256, MatchesTheStandardExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, OfAFileIsThatOfItsBytes) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("sha256_" + std::to_string(getpid()));
  std::string bytes;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{3}, std::size_t{1} << 20, (std::size_t{3} << 20) + 17}) {
    bytes.resize(size, 'x');
    write_file(file, bytes);
    EXPECT_EQ(sha256_hex_of_file(file), sha256_hex(bytes)) << size;
  }
  std::filesystem::remove(file);
  EXPECT_THROW(sha256_hex_of_file(file), InputError);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  EXPECT_THROW(sha256_hex_of_file(file), InputError) << "does not wait for a writer";
  std::filesystem::remove(file);
}

TEST(Sha256, PiecesAreTheWhole) {
  Sha256 sum;
  EXPECT_EQ(sum.hex(), sha256_hex(""));
  sum.add("one ");
  EXPECT_EQ(sum.hex(), sha256_hex("one "));
  sum.add("two");
  EXPECT_EQ(sum.hex(), sha256_hex("one two"));
}

TEST(Checked, ProductsUpToTheLargestSize) {
  EXPECT_EQ(checked_product("x", {3, 5, 7}), 105);
  EXPECT_EQ(checked_product("x", {}), 1);
  EXPECT_EQ(checked_product("x", {std::int64_t{1} << 40, 1 << 16}), kMostSize);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(checked_product("x", {kMost, kMost, 0}), 0);
}

TEST(Checked, LargerOnesAreRefused) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THROW(checked_product("x", {(std::int64_t{1} << 40) + 1, 1 << 16}), InputError);
  EXPECT_THROW(checked_product("x", {kMost, kMost}), InputError);
  // Wraps to a small number.
  EXPECT_THROW(checked_product("x", {std::int64_t{1} << 33, (std::int64_t{1} << 31) + 1}), InputError);
}

}  // namespace
}  // namespace moesim
