// SPDX-License-Identifier: Apache-2.0
// KernelReport explains by source line what the compiler did with a kernel and why; `hpvmctl kernel explain` prints
// it.
#ifndef HPVMD_COMPILER_API_REPORT_H_
#define HPVMD_COMPILER_API_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace hpvm {

struct KernelRemark {
  enum class Kind : uint8_t {
    kShape = 1,    // A value is uniform, linear with a step, or varying.
    kControl = 2,  // Control is uniform, masked, or assumed uniform.
    kAccess = 3,   // An access is a single scalar, contiguous, strided, gathered, searched.
    kBounds = 4,   // The condition that a launch has to prove, or the reason why an access keeps its check.
    kBarrier = 5,  // A barrier is removed, or values are kept across it.
    kTile = 6,     // The shapes considered, with their costs, and the chosen shape.
    kRefused = 7,  // The reason why the kernel, or a part, runs one instance at a time.
    kCall = 8,     // Inlined, or called lane by lane.
  };
  Kind kind = Kind::kShape;
  uint32_t source = 0;  // Byte offset in the module's file; 0: the kernel as a whole.
  std::string text;     // A full sentence.
};

struct KernelReport {
  std::vector<KernelRemark> remarks;
  void Add(KernelRemark::Kind kind, uint32_t source, std::string text) {
    remarks.push_back({kind, source, std::move(text)});
  }
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_REPORT_H_
