// SPDX-License-Identifier: Apache-2.0
// The virtual addresses of a launch, one buffer after the other: what ir::AssignAddresses gives (a test compares them), without allocating.
#ifndef HPVMD_BACKENDS_CPU_ADDRESSES_H_
#define HPVMD_BACKENDS_CPU_ADDRESSES_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "compiler/ir/launch.h"

namespace hpvm::cpu {

class AddressCursor {
 public:
  explicit AddressCursor(const ir::Module& module)
      : end_(module.memory_bytes_max), space_(module.is_memory64 ? uint64_t{1} << 63 : uint64_t{1} << 32) {}

  // The base of the next buffer. After the space is exhausted the results mean nothing and Check fails.
  uint64_t Place(uint64_t bytes) {
    const uint64_t base = (end_ + ir::kBaseAlignment - 1) / ir::kBaseAlignment * ir::kBaseAlignment + ir::kBaseAlignment;
    if (base > space_ || bytes > space_ - base) {
      exhausted_ = true;
      return 0;
    }
    end_ = base + bytes;
    return base;
  }

  Status Check() const {
    if (!exhausted_) {
      return absl::OkStatus();
    }
    return ResourceExhausted("The buffers of a launch do not fit the kernel's address space (" + std::to_string(space_) +
                             " bytes).");
  }

 private:
  uint64_t end_;
  const uint64_t space_;
  bool exhausted_ = false;
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_ADDRESSES_H_
