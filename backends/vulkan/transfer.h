// SPDX-License-Identifier: Apache-2.0
// Transfers handles one submission's uploads and downloads, and small data for commands, through staging memory. Copy
// lanes copy directly between memory pinned for the device and the device's own.
//
// Copies of more than a megabyte take slots of the lane's ring (gpu/staging_ring.h), one after the other, and submit
// each to the queue by itself, so a copy of any size flows through. Smaller ones share slots that the submission holds
// until they are full, or others need them.
//
// Consecutive small copies are batched, and made by one command for each buffer (gpu/small_copies.h).
#ifndef HPVMD_BACKENDS_VULKAN_TRANSFER_H_
#define HPVMD_BACKENDS_VULKAN_TRANSFER_H_

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "backends/gpu/arrivals.h"
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
  // All are borrowed. Nothing reaches the host's memory before `behind` have ended, and nothing if one has failed.
  Transfers(Context& context, Staging& staging, Writer& writer, const gpu::Milestones& behind)
      : context_(context),
        staging_(staging),
        copier_(staging.ring().copier()),
        writer_(writer),
        behind_(behind),
        arrivals_(staging.ring(), [this] { return gpu::AwaitAll(behind_); }) {}
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // A copy between the host's memory at `data` and a buffer.
  struct HostCopy {
    HostBlock* block = nullptr;  // The block that contains `data`; may be null.
    uint8_t* data = nullptr;     // Only read by uploads.
    VulkanBuffer& buffer;
    uint64_t offset = 0, bytes = 0;
    bool has_indices = false;  // Upload: records the range of their words.
    uint64_t room = 0;         // Upload: CopyCommand::room.
  };
  // Both may leave a small copy for Flush; until then `data` must stay valid.
  Status Upload(const HostCopy& copy);
  // The bytes arrive at the latest in Finish.
  Status Download(const HostCopy& copy);
  // Writes the batched small copies; call before any other command.
  Status Flush();
  // Writes the copy at once; `data` must be valid only during the call.
  Status UploadNow(const HostCopy& copy);

  struct Piece {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0, bytes = 0;
    uint8_t* data = nullptr;
  };
  // Returns staging memory for the commands written next; at most StagingRing::kSharedBytesMax.
  StatusOr<Piece> Take(uint64_t bytes);

  // Submits and completes everything on which the host memory at `data` depends.
  Status Arrive(const uint8_t* data, uint64_t bytes);
  // Submits all written commands to the queue; nothing more is written afterwards.
  Status Close();
  // After Close: waits until all bytes have arrived.
  Status Finish();

 private:
  struct Arrival {
    const uint8_t* staged;
    uint8_t* target;
    uint64_t bytes;
  };
  // A slot shared by pieces.
  struct Held {
    gpu::StagingSlot* slot = nullptr;
    // The queue's value that frees it; 0 while part of it is not flushed.
    uint64_t value = 0;
    std::vector<Arrival> arrivals;
  };

  Status AddSmall(gpu::SmallCopies& copies, const HostCopy& copy);
  Status FlushSmall(gpu::SmallCopies& copies, bool is_up);
  Status WriteSpans(std::span<const gpu::CopySpan> spans, const Piece& piece, bool is_up);
  const Pin* PinOf(HostBlock* block, uint64_t bytes) const;
  Status CopyDirectly(const Pin& pin, uint8_t* data, VulkanBuffer& buffer, uint64_t offset, uint64_t bytes, bool is_up);
  bool IsAwaited(const uint8_t* data, uint64_t bytes) const;
  bool IsLargeAwaited(const uint8_t* data, uint64_t bytes) const;
  Status Land();
  StatusOr<gpu::StagingSlot*> NextSlot();
  Status FlushHeld();
  Status FreeOldest();
  Status EmptyOldest();
  void Release(Held& held);
  Status RecordUpload(const HostCopy& copy, VkBuffer staged, const VkBufferCopy& region);

  Context& context_;
  Staging& staging_;
  gpu::HostCopier& copier_;
  Writer& writer_;
  const gpu::Milestones& behind_;
  std::deque<Held> held_;        // The last one may have room.
  gpu::Arrivals arrivals_;       // Large downloads; none to bytes at which others are to arrive.
  std::vector<Arrival> direct_;  // Downloads to pinned memory, without staging.
  // At most one of them has copies.
  gpu::SmallCopies small_uploads_{/*is_up=*/true}, small_downloads_{/*is_up=*/false};
  std::vector<VkBufferCopy> regions_;  // For the command being written; kept to reuse its storage.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TRANSFER_H_
