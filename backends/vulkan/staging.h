// SPDX-License-Identifier: Apache-2.0
// Host memory that the device copies from and to, cut into chunks that submissions take and give back whole. Its
// memory is allocated when the first chunk is taken.
#ifndef HPVMD_BACKENDS_VULKAN_STAGING_H_
#define HPVMD_BACKENDS_VULKAN_STAGING_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/vulkan/memory.h"
#include "base/limits.h"

namespace hpvm::vulkan {

struct StagingChunk {
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t offset = 0;
  uint8_t* data = nullptr;
};

class Staging {
 public:
  // Large enough that a copy of a chunk outlasts what handing it to the queue costs; enough of them for one submission
  // to be filled while another's are read.
  static constexpr uint64_t kChunkBytes = 4 * limits::kMiB;
  static constexpr size_t kChunks = 16;

  explicit Staging(Memory& memory) : memory_(memory) {}

  // Waits until a chunk is free when `waits`; else returns no data when none is.
  StatusOr<StagingChunk> Take(bool waits);
  void Give(const StagingChunk& chunk);

 private:
  Memory& memory_;
  std::mutex mutex_;
  std::condition_variable given_;
  Storage storage_;                 // Guarded by mutex_.
  bool is_allocated_ = false;       // Guarded by mutex_.
  std::vector<StagingChunk> free_;  // Guarded by mutex_.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_STAGING_H_
