// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include "base/status.h"

namespace hpvm {
namespace {

std::span<const uint8_t> Bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

Sha256 HashOf(std::span<const uint8_t> data) {
  Sha256 hash;
  SHA256(data.data(), data.size(), hash.bytes.data());
  return hash;
}

Sha256 HashOf(std::string_view data) { return HashOf(Bytes(data)); }

Sha256 HmacOf(std::span<const uint8_t> key, std::span<const uint8_t> data) {
  Sha256 hash;
  unsigned length = 0;
  HPVMD_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data.data(), data.size(), hash.bytes.data(),
                   &length) != nullptr);
  return hash;
}

bool ConstantTimeEqual(const Sha256& a, const Sha256& b) {
  return CRYPTO_memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

std::string ToHex(const Sha256& hash) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (uint8_t byte : hash.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::optional<Sha256> Sha256FromHex(std::string_view hex) {
  if (hex.size() != 64) {
    return std::nullopt;
  }
  Sha256 hash;
  for (size_t i = 0; i < 32; ++i) {
    int high = HexDigit(hex[2 * i]);
    int low = HexDigit(hex[2 * i + 1]);
    if (high < 0 || low < 0) {
      return std::nullopt;
    }
    hash.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return hash;
}

Hasher::Hasher() : context_(EVP_MD_CTX_new()) {
  HPVMD_CHECK(context_ != nullptr && EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1);
}

Hasher::~Hasher() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Hasher::Add(std::span<const uint8_t> data) {
  HPVMD_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data.data(), data.size()) == 1);
}

void Hasher::Add(std::string_view data) { Add(Bytes(data)); }

void Hasher::AddField(std::string_view data) {
  uint64_t size = data.size();
  Add({reinterpret_cast<const uint8_t*>(&size), sizeof(size)});
  Add(data);
}

Sha256 Hasher::Finish() {
  Sha256 hash;
  unsigned length = 0;
  HPVMD_CHECK(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), hash.bytes.data(), &length) == 1);
  return hash;
}

}  // namespace hpvm
