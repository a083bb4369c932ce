// SPDX-License-Identifier: Apache-2.0
// Writes the command buffers of one submission: opens them when there is something to write, puts barriers only
// between commands of which one needs what another did, by the bytes that they touch, and hands them to the lane's
// queue.
//
// Commands between two barriers form an epoch; the device may run them in any order and at once. Between dispatches
// alone a barrier speaks of nothing but dispatches, which is a quarter cheaper in long chains on the GPUs measured;
// copies then still have to wait for what came before the last full one.
#ifndef HPVMD_BACKENDS_VULKAN_WRITER_H_
#define HPVMD_BACKENDS_VULKAN_WRITER_H_

#include <cstdint>
#include <vector>

#include "backends/vulkan/buffer.h"
#include "backends/vulkan/context.h"
#include "backends/vulkan/slot.h"

namespace hpvm::vulkan {

class Writer {
 public:
  // All borrowed.
  Writer(Context& context, Slot& slot, Lane lane) : context_(context), slot_(slot), lane_(lane) {}

  Lane lane() const { return lane_; }
  // What is flushed next, and all behind it, begins when the point is reached.
  void WaitFor(const LanePoint& point);
  // The open command buffer; the first of a submission waits for all that was submitted before.
  StatusOr<VkCommandBuffer> Open();
  enum class Stage : uint8_t { kDispatch, kTransfer };
  // Declares one command's accesses, then Settle puts a barrier before it if one is due.
  void Reads(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes) {
    Declare({&buffer, offset, offset + bytes, false});
  }
  void Writes(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes) {
    buffer.words().Forget(offset, bytes);
    Declare({&buffer, offset, offset + bytes, true});
  }
  Status Settle(Stage stage);
  // A barrier, for accesses that are not to VulkanBuffers.
  Status Barrier();
  // Hands what is written to the queue.
  Status Flush();
  // The same, and what the device has written is there for the host to read once value() is reached.
  Status FlushForHost();
  bool has_begun() const { return has_begun_; }
  // The queue's value of the last flush; 0 without one.
  uint64_t value() const { return value_; }
  // Buffers used from now on are free for the host behind value().
  void EndUse();

 private:
  struct Access {
    VulkanBuffer* buffer;
    uint64_t begin, end;
    bool writes;
    uint64_t epoch = 0;
  };
  void Declare(const Access& access) { accesses_.push_back(access); }
  bool IsBarrierDue(Stage stage) const;
  void Remember();
  void Wait(VkPipelineStageFlags from, VkPipelineStageFlags to, VkAccessFlags accesses);

  Context& context_;
  Slot& slot_;
  const Lane lane_;
  VkCommandBuffer open_ = VK_NULL_HANDLE;
  bool has_begun_ = false;
  uint64_t value_ = 0;
  std::vector<LanePoint> waits_;       // Of the next flush.
  uint64_t epoch_ = 0;                 // Counts barriers.
  uint64_t settled_dispatches_ = 0;    // Epochs below are over for dispatches.
  bool has_transfers_ = false;         // Since the last full barrier.
  bool has_forgotten_ = false;         // The same: past_ lacks accesses that are over for dispatches.
  std::vector<Access> past_;           // Since the last full barrier; by rising epoch.
  std::vector<Access> accesses_;       // Of the command that is being declared.
  std::vector<VulkanBuffer*> in_use_;  // With kUseOpen.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_WRITER_H_
