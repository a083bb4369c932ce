// SPDX-License-Identifier: Apache-2.0
// The buffers of one run between pages that cannot be touched.
#ifndef HPVMD_TESTS_SPMD_MEMORY_H_
#define HPVMD_TESTS_SPMD_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/launch.h"
#include "tests/spmd/kernel.h"

namespace hpvm::spmd {

// A buffer ends right at a page that faults (up to 7 bytes before it, since data is aligned to 8), or begins right
// behind one. What is left of its own pages holds a pattern.
class Buffers {
 public:
  Buffers(const Kernel& kernel, bool at_end);
  ~Buffers();
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  std::vector<ir::Argument> Arguments() const;
  // A sentence if bytes around a buffer have changed, else empty.
  std::string FindStray() const;
  // A sentence on the first difference from `expected`, else empty.
  std::string FindDifference(const Buffers& expected) const;

 private:
  struct Area {
    uint8_t* mapped = nullptr;  // Null for scalars.
    uint64_t mapped_bytes = 0;  // With the pages around.
    uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };
  const Kernel& kernel_;
  std::vector<Area> areas_;
};

// The kernel's launch on those buffers, which must outlive it.
ir::Launch LaunchOf(const Kernel& kernel, const Buffers& buffers);

}  // namespace hpvm::spmd

#endif  // HPVMD_TESTS_SPMD_MEMORY_H_
