// SPDX-License-Identifier: Apache-2.0
// Conversions between bytes and text: views of the same memory, and lower-case hexadecimal digits.
#ifndef HPVMD_BASE_BYTES_H_
#define HPVMD_BASE_BYTES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hpvm {

inline std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view TextOf(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns two digits per byte.
std::string ToHex(std::span<const uint8_t> bytes);
// Returns 16 digits, most significant first.
std::string HexOfNumber(uint64_t value);
// Returns false, and reads nothing, unless `hex` has exactly the digits for all bytes of `into`.
bool ReadHex(std::string_view hex, std::span<uint8_t> into);

}  // namespace hpvm

#endif  // HPVMD_BASE_BYTES_H_
