// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/narrow_table.h"

namespace hpvm::wasm {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr uint8_t kTableSection = 4;
constexpr uint8_t kHasMaximum = 1;
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

// Skips an unsigned LEB128 of up to 64 bits.
bool SkipU64(std::span<const uint8_t> bytes, size_t* at) {
  for (int i = 0; i < 10 && *at < bytes.size(); ++i) {
    if ((bytes[(*at)++] & 0x80) == 0) {
      return true;
    }
  }
  return false;
}

// `bytes` are the module up to the section's end.
void NarrowSection(std::span<const uint8_t> bytes, size_t at, NarrowedTables* narrowed) {
  uint32_t count = 0;
  if (!ReadU32(bytes, &at, &count)) {
    return;
  }
  for (uint32_t i = 0; i < count && bytes.size() - at >= 2; ++i) {  // The element's type, the flags, the limits.
    const uint8_t flags = bytes[++at];
    if ((flags & kIs64) != 0) {
      narrowed->is_64.resize(i);
      narrowed->is_64.push_back(true);
      narrowed->bytes[at] &= static_cast<uint8_t>(~kIs64);
    }
    ++at;
    if (!SkipU64(bytes, &at) || ((flags & kHasMaximum) != 0 && !SkipU64(bytes, &at))) {
      return;
    }
  }
}

}  // namespace

NarrowedTables NarrowTables(std::span<const uint8_t> bytes) {
  NarrowedTables narrowed;
  size_t at = kHeaderBytes;
  while (at < bytes.size()) {
    const uint8_t section = bytes[at++];
    uint32_t size = 0;
    if (!ReadU32(bytes, &at, &size) || size > bytes.size() - at) {
      break;  // The reader says what is wrong.
    }
    if (section == kTableSection) {
      narrowed.bytes.assign(bytes.begin(), bytes.end());
      NarrowSection(bytes.first(at + size), at, &narrowed);
      break;
    }
    at += size;
  }
  if (narrowed.is_64.empty()) {
    narrowed.bytes.clear();
  }
  return narrowed;
}

}  // namespace hpvm::wasm
