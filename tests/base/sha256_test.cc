#include "base/sha256.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/file_io.h"
#include "base/input_error.h"

namespace moesim {
namespace {

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

}  // namespace
}  // namespace moesim
