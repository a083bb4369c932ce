// SPDX-License-Identifier: Apache-2.0
// What a launch shows of a kernel's accesses (ir::ProveBounds), remembered for the launches that look alike.
//
// A key holds the values the answer depends on, and is compared whole: a wrong answer would let code without checks
// run.
#ifndef HPVMD_BACKENDS_CPU_PROOF_CACHE_H_
#define HPVMD_BACKENDS_CPU_PROOF_CACHE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu/variants.h"
#include "compiler/artifact.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

struct LaunchClass;

class ProofCache {
 public:
  // Keeps what it needs of `artifact`.
  explicit ProofCache(const Artifact& artifact);

  struct Launch {
    Extent extent{1, 1, 1}, group{1, 1, 1};
    std::span<const ir::CpuArgument> arguments;  // One a parameter of the artifact.
  };
  // Whether accesses in the bounds program stay inside and no buffer passes 2^31 bytes.
  bool Prove(const Launch& launch) const;
  // The class remembered for launches like this; null when there is none, or when another thread is here. Allocates
  // nothing.
  LaunchClass* Find(const Launch& launch);
  void Remember(const Launch& launch, LaunchClass* launch_class);

 private:
  static constexpr size_t kEntries = 8;  // A kernel that several nodes use is launched with as many sizes.
  static constexpr size_t kShape = 7;    // Words before the parameters': extent, group, whether a buffer is large.
  struct Entry {
    LaunchClass* launch_class = nullptr;
    std::vector<uint64_t> key;
  };
  bool Matches(const Entry& entry, const Launch& launch, bool has_large) const;
  bool HasLargeBuffer(const Launch& launch) const;
  bool TryLock() { return !is_busy_.test_and_set(std::memory_order_acquire); }
  void Unlock() { is_busy_.clear(std::memory_order_release); }

  const ir::BoundsProgram bounds_;
  const std::vector<ir::KernelParam> params_;
  std::vector<uint32_t> used_;     // Parameters that the program names.
  std::vector<uint32_t> buffers_;  // Parameters that are buffers.
  std::atomic_flag is_busy_ = ATOMIC_FLAG_INIT;
  std::array<Entry, kEntries> entries_;  // Guarded by is_busy_.
  size_t next_ = 0;                      // Guarded by is_busy_.
  size_t last_ = 0;                      // Guarded by is_busy_; where the last one was found.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_PROOF_CACHE_H_
