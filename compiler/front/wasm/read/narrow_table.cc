// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/narrow_table.h"

#include "compiler/front/wasm/read/sections.h"

namespace hpvm::wasm {
namespace {

constexpr uint8_t kTableSection = 4;
constexpr uint8_t kHasMaximum = 1;
constexpr uint8_t kIs64 = 4;

}  // namespace

NarrowedTables NarrowTables(std::span<const uint8_t> bytes) {
  NarrowedTables narrowed;
  std::optional<ByteReader> in = FindSection(bytes, kTableSection);
  const uint64_t count = in ? in->Uleb() : 0;
  for (uint64_t i = 0; i < count && in->ok(); ++i) {  // Each table has the element type, the flags and the limits.
    in->U8();
    const size_t at = in->position();
    const uint8_t flags = in->U8();
    if ((flags & kIs64) != 0) {
      if (narrowed.bytes.empty()) {
        narrowed.bytes.assign(bytes.begin(), bytes.end());
      }
      narrowed.is_64.resize(i);
      narrowed.is_64.push_back(true);
      narrowed.bytes[at] &= static_cast<uint8_t>(~kIs64);
    }
    in->Uleb();
    if ((flags & kHasMaximum) != 0) {
      in->Uleb();
    }
  }
  return narrowed;
}

}  // namespace hpvm::wasm
