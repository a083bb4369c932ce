// SPDX-License-Identifier: Apache-2.0
// ForcedVariant, for tests, restricts every launch of a GPU device to one variant of its kernel, and counts the
// results.
//
// The process that creates the device owns the object and changes it between runs. No input from a tenant, a document
// or the environment reaches it. Thread-safe.
#ifndef HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_
#define HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_

#include <atomic>
#include <cstdint>

#include "backends/contract/device.h"

namespace hpvm::gpu {

class ForcedVariant {
 public:
  struct Request {
    // Index in GpuCode::variants; kAutoVariant: the device chooses as usual.
    uint32_t variant = kAutoVariant;
    // Index of the group shape, in the order in which the device tries them; a larger number means the last.
    uint32_t shape = 0;
    friend bool operator==(const Request&, const Request&) = default;
  };
  struct Counts {
    uint64_t obeyed = 0;  // Launches that ran the requested variant.
    uint64_t others =
        0;  // Launches that could not run it: it does not exist, its proof fails, or a buffer is misaligned.
  };

  explicit ForcedVariant(uint32_t variant = kAutoVariant) { Set({variant, 0}); }
  ForcedVariant(const ForcedVariant&) = delete;
  ForcedVariant& operator=(const ForcedVariant&) = delete;

  void Set(const Request& request) { packed_.store(uint64_t{request.shape} << 32 | request.variant); }
  Request request() const {
    const uint64_t packed = packed_.load();
    return {static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
  }
  // Returns the counts of launches under a request since the last call.
  Counts TakeCounts() { return {obeyed_.exchange(0), others_.exchange(0)}; }
  void Count(bool is_obeyed) { ++(is_obeyed ? obeyed_ : others_); }

 private:
  std::atomic<uint64_t> packed_{0}, obeyed_{0}, others_{0};
};

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_FORCED_VARIANT_H_
