// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/narrow_table.h"

namespace hpvm::wasm {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr uint8_t kTableSection = 4;
constexpr uint8_t kIs64 = 4;

// An unsigned LEB128 of 32 bits at `at`, which moves behind it; false when it does not end in time.
bool ReadU32(std::span<const uint8_t> bytes, size_t* at, uint32_t* value) {
  *value = 0;
  for (uint32_t shift = 0; shift < 35 && *at < bytes.size(); shift += 7) {
    const uint8_t byte = bytes[(*at)++];
    *value |= static_cast<uint32_t>(uint64_t{byte & 0x7fu} << shift);
    if ((byte & 0x80) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::vector<uint8_t> NarrowTable(std::span<const uint8_t> bytes) {
  size_t at = kHeaderBytes;
  while (at < bytes.size()) {
    const uint8_t section = bytes[at++];
    uint32_t size = 0;
    if (!ReadU32(bytes, &at, &size) || size > bytes.size() - at) {
      break;  // The reader says what is wrong.
    }
    uint32_t count = 0;
    size_t item = at;
    if (section == kTableSection && ReadU32(bytes, &item, &count) && count == 1 && item + 1 < at + size &&
        (bytes[item + 1] & kIs64) != 0) {  // The element's type, then the flags.
      std::vector<uint8_t> narrowed(bytes.begin(), bytes.end());
      narrowed[item + 1] &= static_cast<uint8_t>(~kIs64);
      return narrowed;
    }
    at += size;
  }
  return {};
}

}  // namespace hpvm::wasm
