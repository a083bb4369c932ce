// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/flight.h"

#include <algorithm>
#include <cstring>

namespace hpvm::vulkan {
namespace {

bool IsStopped(const Submission& submission) {
  return submission.stop != nullptr && submission.stop->load(std::memory_order_relaxed) != 0;
}

}  // namespace

VulkanFlight::VulkanFlight(FlightDeck& deck, const Submission& submission, std::unique_ptr<CommandSlot> slot)
    : deck_(deck),
      context_(deck.context),
      submission_(submission),
      slot_(std::move(slot)),
      writer_(context_, *slot_, deck.lane),
      transfers_(context_, deck.staging, writer_, behind_),
      clock_(context_, slot_->timestamps(), CommandSlot::kTimestamps, submission.commands) {}

VulkanFlight::~VulkanFlight() { deck_.slots.Give(std::move(slot_)); }

void VulkanFlight::Record(const gpu::Milestones& behind) {
  behind_ = behind;
  for (const std::shared_ptr<const gpu::Milestone>& milestone : behind) {
    // Safety: milestones come from flights of this device.
    writer_.WaitFor(static_cast<const QueueMilestone&>(*milestone).point);
  }
  status_ = RecordCommands();
  if (!status_.ok() && submission_.failure != nullptr) {
    *submission_.failure = {node_, {}};
  }
  // Commands recorded before a failure run: some of them may already have been submitted to the queue.
  const Status ended = EndRecording();
  if (status_.ok()) {
    status_ = ended;
  }
  if (!status_.ok()) {
    gpu::ForgetWords(submission_);
  }
  writer_.EndUse();
}

// Downloads have to be finished by the host.
gpu::Behind VulkanFlight::behind() const {
  const bool is_empty = writer_.value() == 0;
  if (!status_.ok() || has_downloads_ || (is_empty && !behind_.empty())) {
    return {};
  }
  const uint64_t value = is_empty ? context_.submitted(deck_.lane) : writer_.value();
  return {std::make_shared<const QueueMilestone>(LanePoint{deck_.lane, value}), can_trap_};
}

Status VulkanFlight::RecordCommands() {
  if (submission_.commands == nullptr) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(context_.lost());
  const size_t dispatches = gpu::CountLaunches(submission_.commands);
  if (dispatches != 0) {
    HPVMD_RETURN_IF_ERROR(PrepareTraps(dispatches));
  }
  for (const Command& command : submission_.commands->commands) {
    if (IsStopped(submission_)) {
      return Cancelled("The submission was stopped.");
    }
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    node_ = dispatch == nullptr ? 0xffffffffu : dispatch->node;
    HPVMD_RETURN_IF_ERROR(RecordCommand(command));
  }
  return transfers_.Flush();
}

Status VulkanFlight::PrepareTraps(size_t dispatches) {
  HPVMD_RETURN_IF_ERROR(slot_->GrowTraps(static_cast<uint32_t>(dispatches)));
  if (!slot_->must_zero_traps) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  context_.vk().CmdFillBuffer(commands, slot_->traps(), 0, slot_->trap_bytes(), 0);
  HPVMD_RETURN_IF_ERROR(writer_.Barrier());
  slot_->must_zero_traps = false;
  return absl::OkStatus();
}

Status VulkanFlight::RecordCommand(const Command& command) {
  if (const auto* copy = std::get_if<CopyCommand>(&command)) {
    clock_.Interrupt();
    return RecordCopy(*copy);
  }
  HPVMD_RETURN_IF_ERROR(transfers_.Flush());
  if (const auto* dispatch = std::get_if<DispatchCommand>(&command)) {
    return RecordDispatch(*dispatch);
  }
  clock_.Interrupt();
  return RecordFill(std::get<FillCommand>(command));
}

Status VulkanFlight::RecordCopy(const CopyCommand& copy) {
  HPVMD_ASSIGN_OR_RETURN(Buffer * from, gpu::ViewedBuffer(submission_, copy.source, copy.source_offset, copy.bytes));
  HPVMD_ASSIGN_OR_RETURN(Buffer * to, gpu::ViewedBuffer(submission_, copy.target, copy.target_offset, copy.bytes));
  auto* source = dynamic_cast<VulkanBuffer*>(from);
  auto* target = dynamic_cast<VulkanBuffer*>(to);
  if (copy.bytes == 0) {
    return absl::OkStatus();
  }
  if ((source == nullptr && from->host() == nullptr) || (target == nullptr && to->host() == nullptr) ||
      (source == nullptr && target == nullptr)) {
    return Internal("A copy on " + context_.name() +
                    " is between two buffers, neither of which belongs to the device.");
  }
  if (source == nullptr) {
    const uint8_t* data = from->host() + copy.source_offset;
    HPVMD_RETURN_IF_ERROR(transfers_.Arrive(data, copy.bytes));
    const bool is_idle =
        target->used_until != VulkanBuffer::kUseOpen && context_.IsReached({deck_.lane, target->used_until});
    if (target->mapped() != nullptr && is_idle && !copy.has_indices) {
      target->words().Forget(copy.target_offset, copy.bytes);
      deck_.copier.Copy(target->mapped() + copy.target_offset, data, copy.bytes);
      return absl::OkStatus();
    }
    // The source is only read.
    const Transfers::HostCopy up{.block = from->block(),
                                 .data = const_cast<uint8_t*>(data),
                                 .buffer = *target,
                                 .offset = copy.target_offset,
                                 .bytes = copy.bytes,
                                 .has_indices = copy.has_indices,
                                 .room = copy.room};
    // Writes to mapped memory must not overtake it.
    return target->mapped() == nullptr ? transfers_.Upload(up) : transfers_.UploadNow(up);
  }
  if (target == nullptr) {
    has_downloads_ = true;
    return transfers_.Download({.block = to->block(),
                                .data = to->host() + copy.target_offset,
                                .buffer = *source,
                                .offset = copy.source_offset,
                                .bytes = copy.bytes});
  }
  HPVMD_RETURN_IF_ERROR(transfers_.Flush());
  const VkBufferCopy region{copy.source_offset, copy.target_offset, copy.bytes};
  if (source == target) {
    return RecordCopyWithin(*source, region);
  }
  VkBufferCopy rest = region;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const uint64_t copied, RecordKernelCopy(*source, *target, rest));
    rest = {rest.srcOffset + copied, rest.dstOffset + copied, rest.size - copied};
    if (copied == 0 || rest.size == 0) {
      break;
    }
  }
  if (rest.size == 0) {
    return absl::OkStatus();
  }
  writer_.Reads(*source, rest.srcOffset, rest.size);
  writer_.Writes(*target, rest.dstOffset, rest.size);
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  context_.vk().CmdCopyBuffer(commands, source->handle(), target->handle(), 1, &rest);
  return absl::OkStatus();
}

// Vulkan's copies may not overlap.
Status VulkanFlight::RecordCopyWithin(VulkanBuffer& buffer, const VkBufferCopy& region) {
  const uint64_t apart = std::max(region.srcOffset, region.dstOffset) - std::min(region.srcOffset, region.dstOffset);
  if (apart == 0) {
    return absl::OkStatus();
  }
  writer_.Reads(buffer, region.srcOffset, region.size);
  writer_.Writes(buffer, region.dstOffset, region.size);
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  if (apart >= region.size) {
    context_.vk().CmdCopyBuffer(commands, buffer.handle(), buffer.handle(), 1, &region);
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(Storage scratch, deck_.memory.Allocate(region.size, MemoryClass::kDevice));
  const VkBufferCopy away{region.srcOffset, 0, region.size}, back{0, region.dstOffset, region.size};
  context_.vk().CmdCopyBuffer(commands, buffer.handle(), scratch.buffer(), 1, &away);
  HPVMD_RETURN_IF_ERROR(writer_.Barrier());
  writer_.Writes(buffer, region.dstOffset, region.size);
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
  context_.vk().CmdCopyBuffer(commands, scratch.buffer(), buffer.handle(), 1, &back);
  scratch_.push_back(std::move(scratch));
  return absl::OkStatus();
}

Status VulkanFlight::RecordFill(const FillCommand& fill) {
  HPVMD_ASSIGN_OR_RETURN(Buffer * filled, gpu::ViewedBuffer(submission_, fill.target, fill.offset, fill.bytes));
  auto* target = dynamic_cast<VulkanBuffer*>(filled);
  if (target == nullptr) {
    return Internal("A fill on " + context_.name() + " is of a buffer that does not belong to the device.");
  }
  // Vulkan fills whole words; the other bytes are copied.
  const uint64_t end = fill.offset + fill.bytes;
  const uint64_t first = std::min(end, (fill.offset + 3) / 4 * 4), last = std::max(first, end / 4 * 4);
  HPVMD_RETURN_IF_ERROR(FillEdge(*target, fill.offset, first - fill.offset, fill.value));
  if (last != first) {
    writer_.Writes(*target, first, last - first);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    context_.vk().CmdFillBuffer(commands, target->handle(), first, last - first, fill.value * 0x01010101u);
  }
  return FillEdge(*target, last, end - last, fill.value);
}

Status VulkanFlight::FillEdge(VulkanBuffer& buffer, uint64_t offset, uint64_t bytes, uint8_t value) {
  static constexpr size_t kEdgeMax = 3;
  uint8_t pattern[kEdgeMax];
  std::memset(pattern, value, kEdgeMax);
  HPVMD_CHECK(bytes <= kEdgeMax);
  if (bytes == 0) {
    return absl::OkStatus();
  }
  return transfers_.UploadNow({.data = pattern, .buffer = buffer, .offset = offset, .bytes = bytes});
}

Status VulkanFlight::EndRecording() {
  HPVMD_RETURN_IF_ERROR(context_.lost());
  if (!writer_.has_begun()) {
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  clock_.End(commands);
  if (can_trap_) {
    HPVMD_RETURN_IF_ERROR(writer_.Barrier());
    const VkBufferCopy region{0, 0, traps_.bytes()};
    context_.vk().CmdCopyBuffer(commands, slot_->traps(), slot_->read_traps(), 1, &region);
  }
  return transfers_.Close();
}

Status VulkanFlight::Finish() {
  if (status_.ok() && has_downloads_ && !can_trap_) {
    // Some bytes arrive while the device copies others. None may arrive behind kernels that may trap.
    status_ = transfers_.Finish();
  }
  // Even after a failure the device may still be working on earlier commands.
  const Status waited = context_.Wait({deck_.lane, writer_.value()});
  const Status status = !status_.ok() ? status_ : !waited.ok() ? waited : Complete();
  // Some record may be claimed; finding out which is unnecessary.
  slot_->must_zero_traps |= !status.ok();
  return status;
}

Status VulkanFlight::Complete() {
  if (can_trap_) {
    HPVMD_RETURN_IF_ERROR(traps_.Check(slot_->trap_records(traps_.count()), submission_.failure));
  }
  HPVMD_RETURN_IF_ERROR(transfers_.Finish());
  std::vector<int64_t> alone_ns;
  HPVMD_RETURN_IF_ERROR(clock_.Read(submission_.timings, &alone_ns));
  for (size_t i = 0; i < std::min(alone_ns.size(), tuned_.size()); ++i) {
    tuned_[i].chooser->Took(tuned_[i].facts, tuned_[i].parts, alone_ns[i]);
  }
  return absl::OkStatus();
}

}  // namespace hpvm::vulkan
