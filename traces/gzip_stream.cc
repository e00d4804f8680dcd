#include "traces/gzip_stream.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "base/file_io.h"
#include "base/files_read.h"
#include "base/input_error.h"

namespace moesim::traces {

namespace {
constexpr unsigned kBufferBytes = 1 << 18;
constexpr std::uint64_t kUnpackedFreely = std::uint64_t{64} << 20;
}  // namespace

// zlib closes it and needs its own descriptor.
struct GzipStream::File {
  explicit File(const std::filesystem::path& path) : regular(path), opened(status()) {
    const int own = ::dup(regular.descriptor());
    handle = gzdopen(own, "rb");
    if (handle == nullptr && own >= 0) ::close(own);
  }
  ~File() {
    if (handle != nullptr) gzclose_r(handle);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  struct stat status() const {
    struct stat now {};
    ::fstat(regular.descriptor(), &now);
    return now;
  }
  // A file that changed meanwhile differs from what was hashed.
  bool changed() const {
    const struct stat now = status();
    return now.st_size != opened.st_size || now.st_mtim.tv_sec != opened.st_mtim.tv_sec ||
           now.st_mtim.tv_nsec != opened.st_mtim.tv_nsec;
  }

  RegularFile regular;
  struct stat opened;
  gzFile handle = nullptr;
};

GzipStream::GzipStream(const std::filesystem::path& path) : buffer_(kBufferBytes) {
  if (!is_file(path))
    throw InputError(SourcePlace{path.string()}, path_exists(path) ? "no regular file" : "no such file",
                     "a trace file");
  file_ = std::make_unique<File>(path);
  if (file_->handle == nullptr) throw InputError(SourcePlace{path.string()}, "a file that cannot be opened");
  FilesRead::note_file(path);
  gzbuffer(file_->handle, kBufferBytes);
}

GzipStream::~GzipStream() = default;

std::uint32_t GzipStream::line() const {
  return static_cast<std::uint32_t>(lines_before_ +
                                    static_cast<std::uint64_t>(std::count(eback(), gptr(), '\n')) + 1);
}

GzipStream::int_type GzipStream::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  lines_before_ += static_cast<std::uint64_t>(std::count(eback(), egptr(), '\n'));
  setg(buffer_.data(), buffer_.data(), buffer_.data());
  const int count = gzread(file_->handle, buffer_.data(), kBufferBytes);
  int code = Z_OK;
  const char* text = gzerror(file_->handle, &code);
  // At the end of the bytes inside a member gzread returns the data so far and leaves Z_BUF_ERROR.
  if (count <= 0 && code != Z_OK && code != Z_STREAM_END)
    problem_ = code == Z_BUF_ERROR ? "compressed data that is cut short"
                                   : std::string("damaged compressed data (") + text + ")";
  if (count <= 0) {
    if (file_->changed()) problem_ = "a file that changed while it was read";
    return traits_type::eof();
  }
  zeros_ = zeros_ || std::memchr(buffer_.data(), 0, static_cast<std::size_t>(count)) != nullptr;
  unpacked_ += static_cast<std::uint64_t>(count);
  const auto packed = static_cast<std::uint64_t>(std::max<z_off_t>(1, gzoffset(file_->handle)));
  if (unpacked_ > kUnpackedFreely && unpacked_ / packed >= kMostUnpacked) {
    problem_ =
        "compressed data that unpacks to more than " + std::to_string(kMostUnpacked) + " times its size";
    return traits_type::eof();
  }
  setg(buffer_.data(), buffer_.data(), buffer_.data() + count);
  return traits_type::to_int_type(*gptr());
}

}  // namespace moesim::traces
