// SPDX-License-Identifier: Apache-2.0
// One submission's uploads and downloads, and small data for commands, by way of staging memory. Between memory that is
// pinned for the device and its own, lanes for copies copy directly.
//
// Chunks are filled in order. When there are none left, the oldest is handed to the queue, waited for, emptied and used
// again, so a copy of any size flows through, the device copying one chunk while the host fills or reads another.
//
// Small copies in a row wait for each other, and are made by one command for each buffer (gpu/small_copies.h).
#ifndef HPVMD_BACKENDS_VULKAN_TRANSFER_H_
#define HPVMD_BACKENDS_VULKAN_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "backends/gpu/flight_board.h"
#include "backends/gpu/host_copy.h"
#include "backends/gpu/small_copies.h"
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

  // A copy between the host's memory at `data` and a buffer.
  struct HostCopy {
    HostBlock* block = nullptr;  // Where `data` lies; may be null.
    uint8_t* data = nullptr;     // Upwards it is only read.
    VulkanBuffer& buffer;
    uint64_t offset = 0, bytes = 0;
    bool has_indices = false;  // Upwards: notes the range of their words.
    uint64_t room = 0;         // Upwards: CopyCommand::room.
  };
  // Both may leave a small copy for Flush, until which `data` stays as it is.
  Status Upload(const HostCopy& copy);
  // The bytes arrive at the latest in Finish.
  Status Download(const HostCopy& copy);
  // Writes the small copies that wait for more of them; before any other command.
  Status Flush();
  // At once, by whatever `data` is good for the call.
  Status UploadNow(const HostCopy& copy);

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

  Status AddSmall(gpu::SmallCopies& copies, const HostCopy& copy);
  Status FlushSmall(gpu::SmallCopies& copies, bool is_up);
  Status WriteSpans(std::span<const gpu::CopySpan> spans, const Piece& piece, bool is_up);
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
  // At most one of them has copies.
  gpu::SmallCopies small_uploads_{/*is_up=*/true}, small_downloads_{/*is_up=*/false};
  std::vector<VkBufferCopy> regions_;  // Of the command being written; kept for its storage.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TRANSFER_H_
