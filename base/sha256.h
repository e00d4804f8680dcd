// SHA-256 (FIPS 180-4) of input files, so that a result identifies its inputs exactly.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // OpenSSL's

namespace moesim {

// Incremental hash of bytes that arrive piece by piece.
class Sha256 {
 public:
  Sha256();
  void add(std::string_view piece);
  std::string hex() const;  // of all pieces so far

 private:
  std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

// Returns 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view data);
// Likewise for a file of any size, read piece by piece. Throws InputError where it cannot be read.
std::string sha256_hex_of_file(const std::filesystem::path& path);

}  // namespace moesim
