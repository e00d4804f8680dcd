// A file as a stream, compressed or not, with bounded memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

namespace moesim::traces {

// Limit on the compression ratio of files that unpack to more than 64 MiB: traces reach 10 to 30, a bomb
// 1000.
inline constexpr std::uint64_t kMostUnpacked = 256;

// Reads a regular file; unpacks content that starts like gzip, with one or more members. Throws InputError
// for a file that cannot be opened. A damaged or truncated file ends the stream early with an explanation in
// problem().
class GzipStream final : public std::streambuf {
 public:
  explicit GzipStream(const std::filesystem::path& path);
  ~GzipStream() override;
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // "" without errors.
  const std::string& problem() const { return problem_; }
  // Returns whether any byte read so far is 0, which text does not contain.
  bool zeros() const { return zeros_; }
  // Returns the line of the next byte, from 1.
  std::uint32_t line() const;

 protected:
  int_type underflow() override;

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::vector<char> buffer_;
  std::uint64_t unpacked_ = 0;
  std::uint64_t lines_before_ = 0;  // line feeds in finished buffers
  std::string problem_;
  bool zeros_ = false;
};

}  // namespace moesim::traces
