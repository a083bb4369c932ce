// SPDX-License-Identifier: Apache-2.0
// One submission's uploads and downloads, and small data for commands, by way of staging memory. Between memory that is
// pinned for the device and its own, lanes for copies copy directly.
//
// Chunks are filled in order. When there are none left, the oldest is handed to the queue, waited for, emptied and used
// again, so a copy of any size flows through, the device copying one chunk while the host fills or reads another.
#ifndef HPVMD_BACKENDS_VULKAN_TRANSFER_H_
#define HPVMD_BACKENDS_VULKAN_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "backends/gpu/flight_board.h"
#include "backends/gpu/host_copy.h"
#include "backends/vulkan/buffer.h"
#include "backends/vulkan/pin.h"
#include "backends/vulkan/staging.h"
#include "backends/vulkan/writer.h"

namespace hpvm::vulkan {

class Transfers {
 public:
  // All borrowed. Nothing reaches the host's memory before `behind` have ended, and nothing if one has failed.
  Transfers(Context& context, Staging& staging, gpu::HostCopier& copier, Writer& writer, const gpu::Milestones& behind)
      : context_(context), staging_(staging), copier_(copier), writer_(writer), behind_(behind) {}
  // Gives the chunks back; the device must be done with them.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // `block`: where the host's bytes lie; may be null. `has_indices`: notes the range of their words.
  Status Upload(HostBlock* block, const uint8_t* source, VulkanBuffer& target, uint64_t offset, uint64_t bytes,
                bool has_indices = false);
  // The bytes arrive at the latest in Finish.
  Status Download(VulkanBuffer& source, uint64_t offset, HostBlock* block, uint8_t* target, uint64_t bytes);

  struct Piece {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0, bytes = 0;
    uint8_t* data = nullptr;
  };
  // At most `bytes` (and no more than a chunk) of staging memory for the commands written next; all of them if
  // `is_whole`, which is for small ones.
  StatusOr<Piece> Take(uint64_t bytes, bool is_whole);

  // Has everything been handed to the queue and done that the host memory at `data` depends on.
  Status Arrive(const uint8_t* data, uint64_t bytes);
  // After the writer's last flush was waited for.
  Status Finish();

 private:
  struct Arrival {
    const uint8_t* staged;
    uint8_t* target;
    uint64_t bytes;
  };
  struct Held {
    StagingChunk chunk;
    uint64_t used = 0;
    uint64_t value = 0;  // The queue's that frees it; 0 while something of it is not flushed.
    std::vector<Arrival> arrivals;
  };

  const Pin* PinOf(HostBlock* block, uint64_t bytes) const;
  Status CopyDirectly(const Pin& pin, uint8_t* data, VulkanBuffer& buffer, uint64_t offset, uint64_t bytes, bool is_up);
  Status NextChunk();
  Status FlushHeld();
  Status Empty(Held& held);

  Context& context_;
  Staging& staging_;
  gpu::HostCopier& copier_;
  Writer& writer_;
  const gpu::Milestones& behind_;
  std::deque<Held> held_;        // The last one is being filled.
  std::vector<Arrival> direct_;  // Downloads to pinned memory; nothing is staged.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TRANSFER_H_
