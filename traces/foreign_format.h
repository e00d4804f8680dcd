// Files that people have and that no reader here reads: told by what they hold, so that the refusal says what
// to do instead of which byte is wrong.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace moesim::traces {

struct ForeignFormat {
  std::string name;     // "a Chakra execution trace (protobuf)"
  std::string instead;  // what is read in its place, and how one gets it
};

// Of the beginning of a file, unpacked. `name` is the file's, for binaries without a mark. nullopt: a format
// of ours, or one that is not known.
std::optional<ForeignFormat> foreign_format(std::string_view beginning, std::string_view name);

// Whether the beginning of a file says that it is a Chakra trace in JSON.
bool is_chakra_file(const std::filesystem::path& path);

// PyTorch profiler and Chakra traces are read by `trace convert` only.
enum class Traces : unsigned char { kRead, kForeign };

// Throws InputError with both for a file, or for the first files of a folder, of such a format. What cannot
// be read is left to the reader.
void refuse_foreign(const std::filesystem::path& path, Traces kineto);

}  // namespace moesim::traces
