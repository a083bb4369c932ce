// SPDX-License-Identifier: Apache-2.0
// Buffers of one run between inaccessible pages.
#ifndef HPVMD_TESTS_SPMD_MEMORY_H_
#define HPVMD_TESTS_SPMD_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/launch.h"
#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// A buffer ends right before a page that faults (up to 7 bytes earlier, because data is aligned to 8), or begins
// right after one. The rest of its own pages holds a pattern.
class Buffers {
 public:
  Buffers(const Kernel& kernel, bool at_end);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::vector<ir::Argument> Arguments() const;
  // Returns a sentence if bytes around a buffer have changed, else an empty text.
  std::string FindStray() const;
  // Returns a sentence about the first difference from `expected`, else an empty text.
  std::string FindDifference(const Buffers& expected) const;

 private:
  struct Area {
    uint8_t* mapped = nullptr;  // Null for scalars.
    uint64_t mapped_bytes = 0;  // Includes the pages around it.
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };
  const Kernel& kernel_;
  std::vector<Area> areas_;
};

// Returns the kernel's launch on those buffers, which must outlive it.
ir::Launch LaunchOf(const Kernel& kernel, const Buffers& buffers);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_MEMORY_H_
