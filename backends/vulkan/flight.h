// SPDX-License-Identifier: Apache-2.0
// One submission on its way through the device: recorded on the submit thread, finished on the completion thread.
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

// Where a flight's work ends on the device.
class QueueMilestone final : public gpu::Milestone {
 public:
  explicit QueueMilestone(const LanePoint& at) : point(at) {}
  const LanePoint point;
};

// What flights of one lane of a device share; borrowed.
struct FlightDeck {
  Context& context;
  Memory& memory;
  Staging& staging;
  Slots& slots;
  gpu::HostCopier& copier;
  Lane lane = Lane::kCompute;
  bool copies_by_kernel = false;
  // The submit thread's:
  std::unique_ptr<Pipelines> copy_kernel = nullptr;  // Once it is needed.
};

class VulkanFlight final : public gpu::Flight {
 public:
  VulkanFlight(FlightDeck& deck, const Submission& submission, std::unique_ptr<Slot> slot);
  ~VulkanFlight() override;
  VulkanFlight(const VulkanFlight&) = delete;
  VulkanFlight& operator=(const VulkanFlight&) = delete;

  // Records the commands and hands them to the queue. What fails is Finish's to return.
  void Record(const gpu::Milestones& behind);
  Status Finish() override;
  gpu::Behind behind() const override;

 private:
  using LaunchFacts = gpu::LaunchFacts;
  // A dispatch that the chooser learns from.
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
  // `record`: the one that alone is bound, as the tenant's own code takes it.
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
  std::unique_ptr<Slot> slot_;
  Writer writer_;
  Transfers transfers_;
  Clock clock_;
  gpu::TrapSlots traps_;
  bool can_trap_ = false, has_downloads_ = false;
  Status status_;
  std::vector<Storage> scratch_;
  std::vector<Tuned> tuned_;
  size_t dispatches_ = 0;
  uint32_t node_ = 0xffffffffu;  // Of the command being recorded.

  // Of the dispatch being recorded; kept for their storage.
  gpu::LaunchInputs inputs_;
  gpu::Chosen chosen_;
  std::vector<VkDescriptorBufferInfo> views_;  // By parameter.
  std::vector<VkDescriptorBufferInfo> infos_;
  std::vector<VkWriteDescriptorSet> writes_;
  std::vector<uint8_t> values_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_FLIGHT_H_
