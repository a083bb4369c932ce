// SPDX-License-Identifier: Apache-2.0
// A growing buffer of bytes in WebAssembly's binary format.
#ifndef HPVMD_TESTS_DIFF_BYTES_H_
#define HPVMD_TESTS_DIFF_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace hpvm::diff {

class Bytes {
 public:
  void Byte(uint32_t value) { out_.push_back(static_cast<uint8_t>(value)); }
  void Unsigned(uint64_t value) {
    while (value >= 0x80) {
      Byte((value & 0x7f) | 0x80);
      value >>= 7;
    }
    Byte(static_cast<uint32_t>(value));
  }
  void Signed(int64_t value) {
    while (value < -64 || value > 63) {
      Byte((value & 0x7f) | 0x80);
      value >>= 7;
    }
    Byte(value & 0x7f);
  }
  void Fixed(uint64_t value, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; ++i) {
      Byte((value >> (8 * i)) & 0xff);
    }
  }
  void Text(std::string_view text) {
    Unsigned(text.size());
    out_.insert(out_.end(), text.begin(), text.end());
  }
  void Append(const Bytes& other) { out_.insert(out_.end(), other.out_.begin(), other.out_.end()); }
  // Appends the bytes after their length.
  void Sized(const Bytes& other) {
    Unsigned(other.out_.size());
    Append(other);
  }
  void Section(uint32_t id, const Bytes& content) {
    Byte(id);
    Sized(content);
  }
  std::vector<uint8_t> Take() { return std::move(out_); }
  size_t size() const { return out_.size(); }

 private:
  std::vector<uint8_t> out_;
};

}  // namespace hpvm::diff

#endif  // HPVMD_TESTS_DIFF_BYTES_H_
