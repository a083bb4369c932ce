// SPDX-License-Identifier: Apache-2.0
// ByteReader reads the numbers of DWARF and of module headers from untrusted bytes. After the first fault every read
// yields zero or an empty result, and ok() is false.
#ifndef HPVMD_COMPILER_API_BYTE_READER_H_
#define HPVMD_COMPILER_API_BYTE_READER_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace hpvm {

class ByteReader {
 public:
  // Borrows `bytes`.
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  void Fail() { ok_ = false; }
  bool AtEnd() const { return position_ == bytes_.size(); }
  size_t position() const { return position_; }
  // Returns the number of unread bytes.
  size_t size() const { return bytes_.size() - position_; }

  uint8_t U8() { return Number<uint8_t>(); }
  uint16_t U16() { return Number<uint16_t>(); }
  uint32_t U32() { return Number<uint32_t>(); }
  uint64_t U64() { return Number<uint64_t>(); }

  // Bits beyond 64 are a fault; an encoding longer than needed is not.
  uint64_t Uleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t byte = U8();
      const uint64_t bits = byte & 0x7f;
      if (shift >= 64 ? bits != 0 : shift == 63 && bits > 1) {
        ok_ = false;
      }
      value |= shift < 64 ? bits << shift : 0;
      if (!ok_ || (byte & 0x80) == 0) {
        return ok_ ? value : 0;
      }
    }
  }
  int64_t Sleb() {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const uint8_t byte = U8();
      value |= shift < 64 ? uint64_t{byte & 0x7fu} << shift : 0;
      if (!ok_ || (byte & 0x80) == 0) {
        const bool extends = (byte & 0x40) != 0 && shift + 7 < 64;
        return ok_ ? static_cast<int64_t>(value | (extends ? ~uint64_t{0} << (shift + 7) : 0)) : 0;
      }
    }
  }
  // Reads up to a zero byte and consumes that byte; a missing zero byte is a fault.
  std::string_view String() {
    if (!ok_ || AtEnd()) {
      ok_ = false;
      return {};
    }
    const auto* begin = reinterpret_cast<const char*>(bytes_.data() + position_);
    const size_t length = strnlen(begin, size());
    ok_ = length < size();
    position_ += ok_ ? length + 1 : 0;
    return ok_ ? std::string_view(begin, length) : std::string_view();
  }
  std::span<const uint8_t> Take(uint64_t count) {
    if (!ok_ || count > size()) {
      ok_ = false;
      return {};
    }
    position_ += count;
    return bytes_.subspan(position_ - count, count);
  }
  // Takes all unread bytes.
  std::span<const uint8_t> Rest() { return Take(size()); }

 private:
  template <typename T>
  T Number() {
    T value = 0;
    const std::span<const uint8_t> taken = Take(sizeof(T));
    if (!taken.empty()) {
      std::memcpy(&value, taken.data(), sizeof(T));
    }
    return value;
  }

  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_BYTE_READER_H_
