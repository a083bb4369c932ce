// SPDX-License-Identifier: Apache-2.0
// Records which bytes of its shadow stack an instance has written since their frame was pushed; for the checker.
#ifndef HPVMD_COMPILER_IR_STACK_RECORD_H_
#define HPVMD_COMPILER_IR_STACK_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hpvm::ir {

// The stack lies in module memory at [pointer, top) and grows downwards.
class StackRecord {
 public:
  void Start(uint64_t top) {
    top_ = pointer_ = top;
    written_.clear();
  }

  // Sets the stack pointer. Bytes that become part of the stack are unwritten, whatever their content.
  void SetPointer(uint64_t pointer) {
    pointer = std::min(pointer, top_);
    // Bytes deeper than a limit count as written.
    const uint64_t from = std::min(top_ - pointer_, kDepthMax), to = std::min(top_ - pointer, kDepthMax);
    if (to > from) {
      written_.resize(std::max<uint64_t>(written_.size(), to));
      std::fill(written_.begin() + static_cast<ptrdiff_t>(from), written_.begin() + static_cast<ptrdiff_t>(to), false);
    }
    pointer_ = pointer;
  }

  bool IsUnwritten(uint64_t address) const {
    return address >= pointer_ && address < top_ && top_ - address <= kDepthMax && !written_[top_ - address - 1];
  }
  void Write(uint64_t address, bool is_written = true) {
    if (address >= pointer_ && address < top_ && top_ - address <= kDepthMax) {
      written_[top_ - address - 1] = is_written;
    }
  }
  // Computes the part of [address, address + bytes) that is on the stack: [*begin, *end).
  void Cut(uint64_t address, uint64_t bytes, uint64_t* begin, uint64_t* end) const {
    *begin = std::clamp(address, pointer_, top_);
    *end = std::clamp(address + bytes, *begin, top_);
  }

 private:
  static constexpr uint64_t kDepthMax = uint64_t{1} << 20;

  uint64_t top_ = 0, pointer_ = 0;
  std::vector<bool> written_;  // Indexed by distance from the top.
};

}  // namespace hpvm::ir

#endif  // HPVMD_COMPILER_IR_STACK_RECORD_H_
