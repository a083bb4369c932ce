// SPDX-License-Identifier: Apache-2.0
// One submission in progress on the device: recorded on the submit thread, finished on the completion thread.
#ifndef HPVMD_BACKENDS_VULKAN_FLIGHT_H_
#define HPVMD_BACKENDS_VULKAN_FLIGHT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/gpu/submit_thread.h"
#include "backends/gpu/trap_records.h"
#include "backends/vulkan/clock.h"
#include "backends/vulkan/executable.h"
#include "backends/vulkan/transfer.h"

namespace hpvm::vulkan {

// The point at which a flight's work ends on the device.
class QueueMilestone final : public gpu::Milestone {
 public:
  explicit QueueMilestone(const LanePoint& at) : point(at) {}
  const LanePoint point;
};

// State shared by flights of one lane of a device; borrowed.
struct FlightDeck {
  Context& context;
  Memory& memory;
  Staging& staging;
  CommandSlots& slots;
  gpu::HostCopier& copier;
  Lane lane = Lane::kCompute;
  bool copies_by_kernel = false;
  // Belongs to the submit thread:
  std::unique_ptr<Pipelines> copy_kernel = nullptr;  // Created when needed.
};

class VulkanFlight final : public gpu::Flight {
 public:
  VulkanFlight(FlightDeck& deck, const Submission& submission, std::unique_ptr<CommandSlot> slot);
  ~VulkanFlight() override;
  VulkanFlight(const VulkanFlight&) = delete;
  VulkanFlight& operator=(const VulkanFlight&) = delete;

  // Records the commands and submits them to the queue. Finish returns failures.
  void Record(const gpu::Milestones& behind);
  Status Finish() override;
  gpu::Behind behind() const override;

 private:
  using LaunchFacts = gpu::LaunchFacts;
  // A dispatch from which the chooser learns.
  struct Tuned {
    gpu::Chooser* chooser = nullptr;
    LaunchFacts facts;
    std::vector<gpu::Part> parts;
  };
  Status RecordCommands();
  Status RecordCommand(const Command& command);
  Status RecordCopy(const CopyCommand& copy);
  StatusOr<uint64_t> RecordKernelCopy(VulkanBuffer& source, VulkanBuffer& target, const VkBufferCopy& region);
  Status RecordCopyWithin(VulkanBuffer& buffer, const VkBufferCopy& region);
  Status RecordFill(const FillCommand& fill);
  Status FillEdge(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes, uint8_t value);
  Status RecordDispatch(const DispatchCommand& dispatch);
  Status PrepareTraps(size_t dispatches);
  Status PlaceViews(const VulkanExecutable& executable, bool is_native);
  Status RecordPart(VulkanExecutable& executable, const gpu::Part& part, uint32_t trap_index);
  // `record`: the only record to be bound, as a tenant's own code expects.
  Status FindBuffers(const VariantLayout& layout, const VkDescriptorBufferInfo& facts_buffer, uint32_t record);
  Status BindBuffers(const VariantLayout& layout);
  Status BindSets(const VariantLayout& layout);
  void FillValues(const VulkanExecutable& executable, const gpu::Part& part, uint32_t trap_index);
  Status EndRecording();
  Status Complete();

  FlightDeck& deck_;
  Context& context_;
  const Submission submission_;
  gpu::Milestones behind_;
  std::unique_ptr<CommandSlot> slot_;
  Writer writer_;
  Transfers transfers_;
  Clock clock_;
  gpu::TrapSlots traps_;
  bool can_trap_ = false, has_downloads_ = false;
  Status status_;
  std::vector<Storage> scratch_;
  std::vector<Tuned> tuned_;
  size_t dispatches_ = 0;
  uint32_t node_ = 0xffffffffu;  // Node of the command being recorded.

  // For the dispatch being recorded; kept to reuse their storage.
  gpu::LaunchInputs inputs_;
  gpu::Chosen chosen_;
  std::vector<VkDescriptorBufferInfo> views_;  // Indexed by parameter.
  std::vector<VkDescriptorBufferInfo> infos_;
  std::vector<VkWriteDescriptorSet> writes_;
  std::vector<uint8_t> values_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_FLIGHT_H_
