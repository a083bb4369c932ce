// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <algorithm>

#include "base/status.h"

namespace hpvm {

Sha256 HashOf(std::span<const uint8_t> data) {
  Sha256 hash;
  SHA256(data.data(), data.size(), hash.bytes.data());
  return hash;
}

Sha256 HashOf(std::string_view data) { return HashOf(BytesOf(data)); }

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

std::optional<Sha256> Sha256FromHex(std::string_view hex) {
  Sha256 hash;
  return ReadHex(hex, hash.bytes) ? std::optional(hash) : std::nullopt;
}

std::optional<Sha256> Sha256FromRaw(std::string_view bytes) {
  Sha256 hash;
  if (bytes.size() != hash.bytes.size()) {
    return std::nullopt;
  }
  std::copy(bytes.begin(), bytes.end(), hash.bytes.begin());
  return hash;
}

Hasher::Hasher() : context_(EVP_MD_CTX_new()) {
  HPVMD_CHECK(context_ != nullptr && EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), EVP_sha256(), nullptr) == 1);
}

Hasher::~Hasher() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Hasher::Add(std::span<const uint8_t> data) {
  HPVMD_CHECK(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data.data(), data.size()) == 1);
}

void Hasher::Add(std::string_view data) { Add(BytesOf(data)); }

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
