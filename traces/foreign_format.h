// Recognises unsupported file formats by content, so that the error message says what to do instead of naming
// an unexpected byte.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace moesim::traces {

struct ForeignFormat {
  std::string name;     // "a Chakra execution trace (protobuf)"
  std::string instead;  // the supported alternative, and how to obtain it
};

// Recognises a file by its unpacked beginning. `name`: the file's, for binaries without a signature. nullopt:
// a supported or unknown format.
std::optional<ForeignFormat> foreign_format(std::string_view beginning, std::string_view name);

// Returns whether a file begins as a Chakra trace in JSON.
bool is_chakra_file(const std::filesystem::path& path);

// Whether PyTorch profiler and Chakra traces are supported, as in `trace convert` only.
enum class Traces : unsigned char { kRead, kForeign };

// Throws InputError with name and alternative for a file, or for the first files of a folder, of such a
// format. Unreadable files are left to the reader.
void refuse_foreign(const std::filesystem::path& path, Traces kineto);

}  // namespace moesim::traces
