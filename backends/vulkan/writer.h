// SPDX-License-Identifier: Apache-2.0
// Writer writes the command buffers of one submission: it opens them when there is something to write, inserts barriers
// only between dependent commands, as determined by the bytes that they access, and submits them to the lane's queue.
//
// Commands between two barriers form an epoch; the device may run them in any order and concurrently. A barrier between
// dispatches alone covers only dispatches, which is a quarter cheaper in long chains on the GPUs measured; copies then
// still have to wait for commands before the last full barrier.
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
  // All are borrowed.
  Writer(Context& context, CommandSlot& slot, Lane lane) : context_(context), slot_(slot), lane_(lane) {}

  Lane lane() const { return lane_; }
  // The next flush, and all later ones, begin when the point is reached.
  void WaitFor(const LanePoint& point);
  // Returns the open command buffer; the first of a submission waits for everything submitted before.
  StatusOr<VkCommandBuffer> Open();
  enum class Stage : uint8_t { kDispatch, kTransfer };
  // Declare one command's accesses; then Settle inserts a barrier before it if necessary.
  void Reads(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes) {
    Declare({&buffer, offset, offset + bytes, false});
  }
  void Writes(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes) {
    buffer.words().Forget(offset, bytes);
    Declare({&buffer, offset, offset + bytes, true});
  }
  Status Settle(Stage stage);
  // Inserts a barrier, for accesses that are not to VulkanBuffers.
  Status Barrier();
  // Submits the written commands to the queue.
  Status Flush();
  // Likewise; the device's writes are visible to the host once value() is reached.
  Status FlushForHost();
  bool has_begun() const { return has_begun_; }
  // The queue's value of the last flush; 0 without one.
  uint64_t value() const { return value_; }
  // Buffers used so far are available to the host after value().
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
  CommandSlot& slot_;
  const Lane lane_;
  VkCommandBuffer open_ = VK_NULL_HANDLE;
  bool has_begun_ = false;
  uint64_t value_ = 0;
  std::vector<LanePoint> waits_;     // For the next flush.
  uint64_t epoch_ = 0;               // Counts barriers.
  uint64_t settled_dispatches_ = 0;  // Lower epochs are over for dispatches.
  bool has_transfers_ = false;       // Since the last full barrier.
  // Since the last full barrier: past_ lacks accesses that are over for dispatches.
  bool has_forgotten_ = false;
  std::vector<Access> past_;           // Since the last full barrier; sorted by epoch.
  std::vector<Access> accesses_;       // Accesses of the command being declared.
  std::vector<VulkanBuffer*> in_use_;  // Those with kUseOpen.
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_WRITER_H_
