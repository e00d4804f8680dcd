#include "base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/file_io.h"

namespace moesim {

namespace {

std::string hex_of(const unsigned char* digest, unsigned int size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    hex += kDigits[digest[i] >> 4];
    hex += kDigits[digest[i] & 15];
  }
  return hex;
}

}  // namespace

std::string sha256_hex(std::string_view data) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_Digest(data.data(), data.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1,
        "OpenSSL has no SHA-256");
  return hex_of(digest.data(), size);
}

struct Sha256::Context {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> held{EVP_MD_CTX_new(), EVP_MD_CTX_free};
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  check(context_->held && EVP_DigestInit_ex(context_->held.get(), EVP_sha256(), nullptr) == 1,
        "OpenSSL has no SHA-256");
}

Sha256::~Sha256() = default;

void Sha256::add(std::string_view piece) {
  check(EVP_DigestUpdate(context_->held.get(), piece.data(), piece.size()) == 1, "OpenSSL takes any bytes");
}

std::string Sha256::hex() const {
  const Context copy;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  check(EVP_MD_CTX_copy_ex(copy.held.get(), context_->held.get()) == 1 &&
            EVP_DigestFinal_ex(copy.held.get(), digest.data(), &size) == 1,
        "OpenSSL ends a digest");
  return hex_of(digest.data(), size);
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
