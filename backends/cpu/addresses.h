// SPDX-License-Identifier: Apache-2.0
// AddressCursor computes the virtual addresses of a launch's buffers in order. The result equals ir::AssignAddresses (a
// test compares them), without allocation.
#ifndef HPVMD_BACKENDS_CPU_ADDRESSES_H_
#define HPVMD_BACKENDS_CPU_ADDRESSES_H_

#include <cstdint>

#include "compiler/ir/launch.h"

namespace hpvm::cpu {

class AddressCursor {
 public:
  explicit AddressCursor(const ir::Module& module)
      : end_(module.memory_bytes_max), limit_(module.is_memory64 ? ~uint64_t{0} : uint64_t{1} << 32) {}

  // Returns the base of the next buffer. Once the address space is exhausted the results are meaningless.
  uint64_t Place(uint64_t bytes) {
    uint64_t sum;
    exhausted_ |= __builtin_add_overflow(end_, 2 * ir::kBaseAlignment - 1, &sum);
    const uint64_t base = sum & ~(ir::kBaseAlignment - 1);
    exhausted_ |= base >= limit_ || bytes >= limit_ - base;
    end_ = base + bytes;
    return base;
  }
  bool exhausted() const { return exhausted_; }

 private:
  uint64_t end_;
  const uint64_t limit_;
  bool exhausted_ = false;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_ADDRESSES_H_
