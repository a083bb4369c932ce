// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/staging.h"

namespace hpvm::vulkan {

StatusOr<StagingChunk> Staging::Take(bool waits) {
  std::unique_lock lock(mutex_);
  if (!is_allocated_) {
    HPVMD_ASSIGN_OR_RETURN(storage_, memory_.Allocate(kChunks * kChunkBytes, Place::kHost));
    is_allocated_ = true;
    for (size_t i = kChunks; i-- > 0;) {
      free_.push_back({storage_.buffer(), i * kChunkBytes, storage_.mapped() + i * kChunkBytes});
    }
  }
  if (free_.empty() && !waits) {
    return StagingChunk{};
  }
  given_.wait(lock, [&] { return !free_.empty(); });
  const StagingChunk chunk = free_.back();
  free_.pop_back();
  return chunk;
}

void Staging::Give(const StagingChunk& chunk) {
  {
    std::lock_guard lock(mutex_);
    free_.push_back(chunk);
  }
  given_.notify_one();
}

}  // namespace hpvm::vulkan
