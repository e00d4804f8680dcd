// Whole files in and out: reads are bounded, writes appear by rename or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace moesim {

// What a path names; false for any that the file system will not look up (too long, no permission, a loop).
bool path_exists(const std::filesystem::path& path) noexcept;
bool is_file(const std::filesystem::path& path) noexcept;
bool is_folder(const std::filesystem::path& path) noexcept;

// The bytes of a regular file. Throws InputError if it is missing, unreadable, not a regular file, or larger
// than `limit_bytes`.
std::string read_file(const std::filesystem::path& path, std::uint64_t limit_bytes = std::uint64_t{8} << 30);

// Writes beside `path` and renames, so that no reader ever sees half a file. Throws InputError naming `path`
// when the disk is full or the folder cannot be written; nothing is left behind then.
void write_file(const std::filesystem::path& path, std::string_view content);

}  // namespace moesim
