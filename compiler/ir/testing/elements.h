// SPDX-License-Identifier: Apache-2.0
// Contents of a buffer or scalar as text: "i32 1 2 3", "f32 0 * 16". "claim 4294967296" is a buffer that claims that
// size but holds no bytes: for launches that must not access it.
#ifndef HPVMD_COMPILER_IR_TESTING_ELEMENTS_H_
#define HPVMD_COMPILER_IR_TESTING_ELEMENTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::ir::testing {

enum class Element : uint8_t { kI8, kU8, kI16, kU16, kI32, kU32, kI64, kU64, kF32, kF64 };

class Elements {
 public:
  uint8_t* data() { return reinterpret_cast<uint8_t*>(words_.data()); }
  uint64_t bytes() const { return claimed_bytes_ != 0 ? claimed_bytes_ : bytes_; }
  // Returns the first element's bits, as a scalar argument carries them.
  uint64_t FirstBits() const { return words_.empty() ? 0 : words_[0]; }
  // Returns the text form, with runs of more than eight equal elements written "x * n" and every NaN "nan".
  std::string ToString() const;

 private:
  friend StatusOr<Elements> ParseElements(std::string_view text);

  void Append(uint64_t bits);
  uint64_t At(uint64_t index) const;

  Element element_ = Element::kU8;
  uint64_t bytes_ = 0;
  uint64_t claimed_bytes_ = 0;
  std::vector<uint64_t> words_;  // Words, so that the data is aligned for atomics.
};

StatusOr<Elements> ParseElements(std::string_view text);

}  // namespace hpvm::ir::testing

#endif  // HPVMD_COMPILER_IR_TESTING_ELEMENTS_H_
