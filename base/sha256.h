// SHA-256 (FIPS 180-4) of input files, so that a result names exactly what it was computed from.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace moesim {

// 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view data);
// Of a file of any size, read piece by piece. Throws InputError where it cannot be read.
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace moesim
