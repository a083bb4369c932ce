// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/element_globals.h"

#include <limits>

#include "base/limits.h"
#include "compiler/front/wasm/read/sections.h"

namespace hpvm::wasm {
namespace {

constexpr uint8_t kElementSection = 9;
enum : uint32_t { kPassive = 1, kExplicitIndex = 2, kExpressions = 4, kFlagsMax = 7 };
enum : uint8_t { kEnd = 0x0b, kGlobalGet = 0x23, kI32 = 0x41, kI64 = 0x42, kRefNull = 0xd0, kRefFunc = 0xd2 };
constexpr uint8_t kFuncRef = 0x70;

// Walks the section. The walk ends at anything that it does not understand: the reader reports the fault.
class Walk {
 public:
  explicit Walk(const ByteReader& section) : in_(section) {}

  struct Found {
    size_t at;   // Offset of the opcode.
    size_t end;  // Offset after the operand.
    uint32_t global;
    uint8_t type;  // Element type of the segment.
  };
  std::vector<Found> Run() {
    for (uint64_t count = in_.Uleb(); count > 0 && in_.ok(); --count) {
      Segment();
    }
    return std::move(found_);
  }

 private:
  // Reads one instruction and `end`. A valid offset expression is not longer, either.
  void Expression(uint8_t type, bool is_element) {
    const size_t begin = in_.position();
    const uint8_t opcode = in_.U8();
    if (opcode == kGlobalGet) {
      const uint64_t index = in_.Uleb();
      if (index > std::numeric_limits<uint32_t>::max() ||
          (is_element && found_.size() == limits::kWasmTableEntriesMax)) {
        in_.Fail();
      } else if (is_element && in_.ok()) {
        found_.push_back({begin, in_.position(), static_cast<uint32_t>(index), type});
      }
    } else if (opcode == kI32 || opcode == kI64 || opcode == kRefNull || opcode == kRefFunc) {
      in_.Sleb();
    } else {
      in_.Fail();
    }
    if (in_.U8() != kEnd) {
      in_.Fail();
    }
  }
  void Segment() {
    uint8_t type = kFuncRef;
    const uint64_t flags = in_.Uleb();
    if (flags > kFlagsMax) {
      return in_.Fail();
    }
    if ((flags & (kPassive | kExplicitIndex)) == kExplicitIndex) {
      in_.Uleb();
    }
    if ((flags & kPassive) == 0) {
      Expression(type, /*is_element=*/false);
    }
    if ((flags & (kPassive | kExplicitIndex)) != 0) {
      type = in_.U8();
    }
    for (uint64_t count = in_.Uleb(); count > 0 && in_.ok(); --count) {
      if ((flags & kExpressions) != 0) {
        Expression(type, /*is_element=*/true);
      } else {
        in_.Uleb();
      }
    }
  }

  ByteReader in_;
  std::vector<Found> found_;
};

// Writes ref.null of the type, a negative number that fills all bytes of the operand.
void Replace(const Walk::Found& found, std::vector<uint8_t>& bytes) {
  bytes[found.at] = kRefNull;
  for (size_t at = found.at + 1; at < found.end; ++at) {
    const bool is_first = at == found.at + 1, is_last = at + 1 == found.end;
    bytes[at] = static_cast<uint8_t>((is_first ? found.type & 0x7f : 0x7f) | (is_last ? 0 : 0x80));
  }
}

}  // namespace

ElementGlobals ReplaceElementGlobals(std::span<const uint8_t> bytes) {
  ElementGlobals replaced;
  const std::optional<ByteReader> section = FindSection(bytes, kElementSection);
  const std::vector<Walk::Found> found = section ? Walk(*section).Run() : std::vector<Walk::Found>{};
  if (!found.empty()) {
    replaced.bytes.assign(bytes.begin(), bytes.end());
  }
  for (const Walk::Found& one : found) {
    Replace(one, replaced.bytes);
    replaced.globals[one.end] = one.global;
  }
  return replaced;
}

}  // namespace hpvm::wasm
