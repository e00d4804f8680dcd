// A file as a stream, compressed or not, without ever holding all of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

namespace moesim::traces {

// A trace shrinks to a tenth or a thirtieth; a bomb to a thousandth. Of files that unpack to more than 64
// MiB.
inline constexpr std::uint64_t kMostUnpacked = 256;

// Reads a regular file; what starts like gzip is unpacked (several members one after the other too). Throws
// InputError for a file that cannot be opened. A file that is damaged or cut short ends the stream early and
// says so in problem().
class GzipStream final : public std::streambuf {
 public:
  explicit GzipStream(const std::filesystem::path& path);
  ~GzipStream() override;
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  // "" while all is well.
  const std::string& problem() const { return problem_; }
  // Whether a byte of what was read so far is 0, which no text has.
  bool zeros() const { return zeros_; }
  // Line of the next byte, from 1.
  std::uint32_t line() const;

 protected:
  int_type underflow() override;

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::vector<char> buffer_;
  std::uint64_t unpacked_ = 0;
  std::uint64_t lines_before_ = 0;  // line feeds in buffers that are done
  std::string problem_;
  bool zeros_ = false;
};

}  // namespace moesim::traces
