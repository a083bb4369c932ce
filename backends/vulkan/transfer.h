// SPDX-License-Identifier: Apache-2.0
// One submission's uploads and downloads, and small data for commands, by way of staging memory. Between memory that is
// pinned for the device and its own, lanes for copies copy directly.
//
// Copies of more than a megabyte take slots of the lane's ring (gpu/staging_ring.h), one after the other, and hand each
// to the queue by itself, so a copy of any size flows through. Smaller ones share slots that the submission holds until
// they are full, or others need them.
//
// Small copies in a row wait for each other, and are made by one command for each buffer (gpu/small_copies.h).
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
  // All borrowed. Nothing reaches the host's memory before `behind` have ended, and nothing if one has failed.
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
  // Staging memory for the commands written next; at most StagingRing::kSharedBytesMax.
  StatusOr<Piece> Take(uint64_t bytes);

  // Has everything been handed to the queue and done that the host memory at `data` depends on.
  Status Arrive(const uint8_t* data, uint64_t bytes);
  // Hands what is written to the queue, after which nothing more is written.
  Status Close();
  // Behind Close: waits until all bytes have arrived.
  Status Finish();

 private:
  struct Arrival {
    const uint8_t* staged;
    uint8_t* target;
    uint64_t bytes;
  };
  // A slot that pieces share.
  struct Held {
    gpu::StagingSlot* slot = nullptr;
    uint64_t value = 0;  // The queue's that frees it; 0 while something of it is not flushed.
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
  gpu::Arrivals arrivals_;       // Large downloads; none to bytes that others are to arrive at.
  std::vector<Arrival> direct_;  // Downloads to pinned memory; nothing is staged.
  // At most one of them has copies.
  gpu::SmallCopies small_uploads_{/*is_up=*/true}, small_downloads_{/*is_up=*/false};
  std::vector<VkBufferCopy> regions_;  // Of the command being written; kept for its storage.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_TRANSFER_H_
