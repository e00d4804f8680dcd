#include "base/sha256.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"

namespace moesim {

Sha256::Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "OpenSSL has no SHA-256");
}

void Sha256::add(std::string_view piece) {
  check(EVP_DigestUpdate(context_.get(), piece.data(), piece.size()) == 1, "OpenSSL takes any bytes");
}

std::string Sha256::hex() const {
  const Sha256 copy;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_MD_CTX_copy_ex(copy.context_.get(), context_.get()) == 1 &&
            EVP_DigestFinal_ex(copy.context_.get(), digest.data(), &size) == 1,
        "OpenSSL ends a digest");
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

std::string sha256_hex(std::string_view data) {
  Sha256 sum;
  sum.add(data);
  return sum.hex();
}

std::string sha256_hex_of_file(const std::filesystem::path& path) {
  const RegularFile file(path);
  Sha256 sum;
  std::vector<char> piece(std::size_t{1} << 20);
  for (std::uint64_t left = file.size(); left > 0;) {
    const std::size_t got = file.read(piece.data(), std::min<std::uint64_t>(left, piece.size()));
    if (got == 0) break;
    sum.add({piece.data(), got});
    left -= got;
  }
  return sum.hex();
}

}  // namespace moesim
