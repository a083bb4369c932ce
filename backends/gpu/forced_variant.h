// SPDX-License-Identifier: Apache-2.0
// For tests: holds every launch of a GPU device to one variant of its kernel, and counts what came of it.
//
// The process that creates the device owns the object and changes it between runs. Nothing that a tenant, a document or
// the environment says leads here. Any thread.
#ifndef HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_
#define HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_

#include <atomic>
#include <cstdint>

#include "backends/contract/device.h"

namespace hpvm::gpu {

class ForcedVariant {
 public:
  struct Wish {
    uint32_t variant = kAutoVariant;  // In GpuCode::variants; kAutoVariant: the device chooses as it always does.
    uint32_t shape = 0;  // Of groups, in the order in which the device tries them; beyond the last one: the last.
    friend bool operator==(const Wish&, const Wish&) = default;
  };
  struct Counts {
    uint64_t obeyed = 0;  // Launches that ran the wanted variant.
    uint64_t others =
        0;  // Launches for which it does not exist, or does not hold: its proof fails, or a buffer lies badly.
  };

  explicit ForcedVariant(uint32_t variant = kAutoVariant) { Set({variant, 0}); }
  ForcedVariant(const ForcedVariant&) = delete;
  ForcedVariant& operator=(const ForcedVariant&) = delete;

  void Set(const Wish& wish) { packed_.store(uint64_t{wish.shape} << 32 | wish.variant); }
  Wish wish() const {
    const uint64_t packed = packed_.load();
    return {static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
  }
  // Of launches under a wish since the last call.
  Counts TakeCounts() { return {obeyed_.exchange(0), others_.exchange(0)}; }
  void Count(bool is_obeyed) { ++(is_obeyed ? obeyed_ : others_); }

 private:
  std::atomic<uint64_t> packed_{0}, obeyed_{0}, others_{0};
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_
