// SPDX-License-Identifier: Apache-2.0
// SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104), implemented by OpenSSL's libcrypto.
#ifndef HPVMD_BASE_HASH_H_
#define HPVMD_BASE_HASH_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hpvm {

struct Sha256 {
  std::array<uint8_t, 32> bytes{};
  friend auto operator<=>(const Sha256&, const Sha256&) = default;
};

Sha256 HashOf(std::span<const uint8_t> data);
Sha256 HashOf(std::string_view data);
Sha256 HmacOf(std::span<const uint8_t> key, std::span<const uint8_t> data);
// Compares in constant time.
bool ConstantTimeEqual(const Sha256& a, const Sha256& b);

// 64 lower-case hexadecimal digits.
inline std::string ToHex(const Sha256& hash) { return ToHex(hash.bytes); }
std::optional<Sha256> Sha256FromHex(std::string_view hex);
// Returns the 32 bytes as stored in records. The view is valid as long as the hash.
inline std::string_view Raw(const Sha256& hash) { return TextOf(hash.bytes); }
std::optional<Sha256> Sha256FromRaw(std::string_view bytes);

// Hasher hashes data that arrives in pieces.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  void Add(std::span<const uint8_t> data);
  void Add(std::string_view data);
  // Adds the length before the data, so that ("ab","c") and ("a","bc") differ.
  void AddField(std::string_view data);
  Sha256 Finish();

 private:
  void* context_;
};

}  // namespace hpvm

template <>
struct std::hash<hpvm::Sha256> {
  size_t operator()(const hpvm::Sha256& h) const noexcept {
    size_t value;
    __builtin_memcpy(&value, h.bytes.data(), sizeof(value));
    return value;
  }
};

#endif  // HPVMD_BASE_HASH_H_
