// SPDX-License-Identifier: Apache-2.0
// Little-endian fields with length prefixes: how artifacts, and records of what was measured, are written. A reader
// never runs past its bytes; after the first fault every further read yields zero or nothing, and ok() is false.
#ifndef HPVMD_COMPILER_API_WIRE_H_
#define HPVMD_COMPILER_API_WIRE_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm {

class WireWriter {
 public:
  void U8(uint8_t value) { bytes_.push_back(value); }
  void U32(uint32_t value) { Raw(&value, sizeof(value)); }
  void U64(uint64_t value) { Raw(&value, sizeof(value)); }
  void Bytes(std::span<const uint8_t> bytes) {
    U32(static_cast<uint32_t>(bytes.size()));
    Raw(bytes.data(), bytes.size());
  }
  void Text(std::string_view text) {
    U32(static_cast<uint32_t>(text.size()));
    Raw(text.data(), text.size());
  }
  void Raw(const void* data, size_t size) {
    if (size != 0) {
      size_t at = bytes_.size();
      bytes_.resize(at + size);
      std::memcpy(bytes_.data() + at, data, size);
    }
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

class WireReader {
 public:
  // Borrows `bytes`.
  explicit WireReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  // Everything was read, and nothing was wrong.
  bool AtEnd() const { return ok_ && rest_.empty(); }
  void Fail() { ok_ = false; }

  uint8_t U8() { return Number<uint8_t>(); }
  uint32_t U32() { return Number<uint32_t>(); }
  uint64_t U64() { return Number<uint64_t>(); }
  // 0 or 1; any other value is a fault.
  bool Flag() {
    uint8_t value = U8();
    ok_ = ok_ && value <= 1;
    return ok_ && value == 1;
  }
  // A count of things of which each takes at least `each_bytes`: what the rest cannot hold is a fault, so a reader may
  // reserve it.
  uint32_t Count(size_t each_bytes) {
    uint32_t count = U32();
    ok_ = ok_ && count <= rest_.size() / each_bytes;
    return ok_ ? count : 0;
  }
  std::span<const uint8_t> Bytes() { return Raw(U32()); }
  std::string Text() {
    std::span<const uint8_t> bytes = Bytes();
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::span<const uint8_t> Raw(size_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    std::span<const uint8_t> taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }

 private:
  template <typename T>
  T Number() {
    T value = 0;
    std::span<const uint8_t> bytes = Raw(sizeof(T));
    if (!bytes.empty()) {
      std::memcpy(&value, bytes.data(), sizeof(T));
    }
    return value;
  }

  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_WIRE_H_
