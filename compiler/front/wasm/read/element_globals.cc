// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/element_globals.h"

#include "base/limits.h"

namespace hpvm::wasm {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr uint8_t kElementSection = 9;
enum : uint32_t { kPassive = 1, kExplicitIndex = 2, kExpressions = 4, kFlagsMax = 7 };
enum : uint8_t { kEnd = 0x0b, kGlobalGet = 0x23, kI32 = 0x41, kI64 = 0x42, kRefNull = 0xd0, kRefFunc = 0xd2 };
constexpr uint8_t kFuncRef = 0x70;

// Walks the section. Whatever it does not understand ends the walk: the reader says what is wrong.
class Walk {
 public:
  Walk(std::span<const uint8_t> section_end, size_t at) : bytes_(section_end), at_(at) {}

  struct Found {
    size_t at;   // Of the opcode.
    size_t end;  // Behind the operand.
    uint32_t global;
    uint8_t type;  // Of the segment.
  };
  std::vector<Found> Run() {
    uint32_t count = 0;
    if (Number(&count)) {
      for (uint32_t i = 0; i < count && Segment(); ++i) {
      }
    }
    return std::move(found_);
  }

 private:
  bool Byte(uint8_t* byte) {
    if (at_ >= bytes_.size()) {
      return false;
    }
    *byte = bytes_[at_++];
    return true;
  }
  // An unsigned LEB128 of 32 bits.
  bool Number(uint32_t* value) {
    *value = 0;
    uint8_t byte = 0;
    for (uint32_t shift = 0; shift < 35 && Byte(&byte); shift += 7) {
      *value |= static_cast<uint32_t>(uint64_t{byte & 0x7fu} << shift);
      if ((byte & 0x80) == 0) {
        return true;
      }
    }
    return false;
  }
  // A LEB128 of up to 64 bits.
  bool Skip() {
    uint8_t byte = 0;
    for (int i = 0; i < 10 && Byte(&byte); ++i) {
      if ((byte & 0x80) == 0) {
        return true;
      }
    }
    return false;
  }

  // One instruction and `end`; an offset's, too, is no longer unless it is wrong.
  bool Expression(uint8_t type, bool is_element) {
    const size_t begin = at_;
    uint8_t opcode = 0, end = 0;
    uint32_t index = 0;
    if (!Byte(&opcode)) {
      return false;
    }
    switch (opcode) {
      case kI32:
      case kI64:
      case kRefNull:
      case kRefFunc:
        if (!Skip()) {
          return false;
        }
        break;
      case kGlobalGet:
        if (!Number(&index)) {
          return false;
        }
        if (is_element) {
          if (found_.size() == limits::kWasmTableEntriesMax) {
            return false;
          }
          found_.push_back({begin, at_, index, type});
        }
        break;
      default:
        return false;
    }
    return Byte(&end) && end == kEnd;
  }

  bool Segment() {
    uint32_t flags = 0, count = 0, index = 0;
    uint8_t type = kFuncRef;
    if (!Number(&flags) || flags > kFlagsMax) {
      return false;
    }
    if ((flags & (kPassive | kExplicitIndex)) == kExplicitIndex && !Number(&index)) {
      return false;
    }
    if ((flags & kPassive) == 0 && !Expression(type, /*is_element=*/false)) {
      return false;
    }
    if ((flags & (kPassive | kExplicitIndex)) != 0 && !Byte(&type)) {
      return false;
    }
    if (!Number(&count)) {
      return false;
    }
    for (uint32_t i = 0; i < count; ++i) {
      if ((flags & kExpressions) != 0 ? !Expression(type, /*is_element=*/true) : !Number(&index)) {
        return false;
      }
    }
    return true;
  }

  const std::span<const uint8_t> bytes_;
  size_t at_;
  std::vector<Found> found_;
};

// ref.null of the type, a negative number that fills all bytes of the operand.
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
  size_t at = kHeaderBytes;
  while (at < bytes.size()) {
    const uint8_t section = bytes[at++];
    uint64_t size = 0;
    bool is_whole = false;
    for (uint32_t shift = 0; shift < 35 && at < bytes.size() && !is_whole; shift += 7) {
      size |= uint64_t{bytes[at] & 0x7fu} << shift;
      is_whole = (bytes[at++] & 0x80) == 0;
    }
    if (!is_whole || size > bytes.size() - at) {
      break;
    }
    if (section == kElementSection) {
      const std::vector<Walk::Found> found = Walk(bytes.first(at + size), at).Run();
      if (!found.empty()) {
        replaced.bytes.assign(bytes.begin(), bytes.end());
      }
      for (const Walk::Found& one : found) {
        Replace(one, replaced.bytes);
        replaced.globals[one.end] = one.global;
      }
      break;
    }
    at += size;
  }
  return replaced;
}

}  // namespace hpvm::wasm
