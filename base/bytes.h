// SPDX-License-Identifier: Apache-2.0
// Bytes as text and text as bytes: views of the same memory, and hexadecimal digits, which are lower-case everywhere.
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

// Two digits a byte.
std::string ToHex(std::span<const uint8_t> bytes);
// 16 digits, the highest first.
std::string HexOfNumber(uint64_t value);
// False, and nothing is read, for anything but the digits of exactly so many bytes.
bool ReadHex(std::string_view hex, std::span<uint8_t> into);

}  // namespace hpvm

#endif  // HPVMD_BASE_BYTES_H_
