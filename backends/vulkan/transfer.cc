// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer.h"

#include <algorithm>
#include <cstring>

namespace hpvm::vulkan {
namespace {

// Copies between pinned memory and the device are cut into pieces, kPiecesAhead of which are in progress at a time, so
// that work waiting for the first pieces may begin.
constexpr uint64_t kPieceBytes = 16 * limits::kMiB;
constexpr size_t kPiecesAhead = 2;

bool Touches(const auto& arrival, const uint8_t* data, uint64_t bytes) {
  return arrival.target < data + bytes && data < arrival.target + arrival.bytes;
}

}  // namespace

Transfers::~Transfers() {
  for (Held& held : held_) {
    Release(held);
  }
}

void Transfers::Release(Held& held) {
  staging_.Sent(*held.slot, writer_.value());
  staging_.ring().Release(*held.slot);
}

// Precondition: all of it has been submitted to the queue.
Status Transfers::EmptyOldest() {
  Held& held = held_.front();
  if (!held.arrivals.empty()) {
    HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), held.value}));
    HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
  }
  for (const Arrival& arrival : held.arrivals) {
    std::memcpy(arrival.target, arrival.staged, arrival.bytes);
  }
  Release(held);
  held_.pop_front();
  return absl::OkStatus();
}

// Full slots that hold nothing for the host are released to the ring.
Status Transfers::FlushHeld() {
  HPVMD_RETURN_IF_ERROR(writer_.FlushForHost());
  for (Held& held : held_) {
    held.value = held.value == 0 ? writer_.value() : held.value;
  }
  const auto is_done = [&](Held& held) {
    if (!held.arrivals.empty() || &held == &held_.back()) {
      return false;
    }
    Release(held);
    return true;
  };
  std::erase_if(held_, is_done);
  return absl::OkStatus();
}

Status Transfers::FreeOldest() {
  if (held_.front().value == 0) {
    return FlushHeld();
  }
  return EmptyOldest();
}

// The submission frees its own slots before it waits for others', which may wait for its slots.
StatusOr<gpu::StagingSlot*> Transfers::NextSlot() {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(gpu::StagingSlot* const slot, staging_.ring().TryTake());
    if (slot != nullptr) {
      return slot;
    }
    if (held_.empty()) {
      return arrivals_.Take();
    }
    HPVMD_RETURN_IF_ERROR(FreeOldest());
  }
}

StatusOr<Transfers::Piece> Transfers::Take(uint64_t bytes) {
  HPVMD_CHECK(bytes <= gpu::StagingRing::kSharedBytesMax);
  const uint64_t slot_bytes = staging_.ring().slot_bytes();
  if (held_.empty() || bytes > slot_bytes - held_.back().slot->used) {
    if (!held_.empty()) {
      HPVMD_RETURN_IF_ERROR(FlushHeld());
    }
    HPVMD_ASSIGN_OR_RETURN(gpu::StagingSlot* const slot, NextSlot());
    held_.push_back({slot, 0, {}});
  }
  Held& held = held_.back();
  gpu::StagingSlot& slot = *held.slot;
  const Piece piece{staging_.BufferOf(slot), slot.used, bytes, slot.data + slot.used};
  const uint64_t alignment = context_.binding_alignment();
  slot.used = std::min(slot_bytes, (slot.used + bytes + alignment - 1) / alignment * alignment);
  held.value = 0;
  return piece;
}

// Only copy lanes use pins: other work of a submission may fail and must then leave host memory unchanged.
const Pin* Transfers::PinOf(HostBlock* block, uint64_t bytes) const {
  if (block == nullptr || context_.pinner() == 0 || writer_.lane() == Lane::kCompute) {
    return nullptr;
  }
  const auto make = [&]() -> std::unique_ptr<HostPin> { return Pin::Make(context_.shared_from_this(), *block); };
  // Safety: only this function makes pins with that number.
  return static_cast<const Pin*>(block->PinFor({context_.pinner(), Pin::kPaysAfter}, bytes, make));
}

Status Transfers::CopyDirectly(const Pin& pin, uint8_t* data, VulkanBuffer& buffer, uint64_t offset, uint64_t bytes,
                               bool is_up) {
  CopyFlow flow = copier_.PinnedFlow(is_up, bytes, kPiecesAhead * kPieceBytes);
  std::deque<std::pair<uint64_t, uint64_t>> ahead;  // The queue's value, and bytes.
  const auto land = [&]() -> Status {
    HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), ahead.front().first}));
    flow.Moved(ahead.front().second);
    ahead.pop_front();
    return absl::OkStatus();
  };
  for (uint64_t at = 0; at < bytes;) {
    if (ahead.size() == kPiecesAhead) {
      HPVMD_RETURN_IF_ERROR(land());
    }
    const uint64_t piece = std::min(kPieceBytes, bytes - at);
    is_up ? writer_.Writes(buffer, offset + at, piece) : writer_.Reads(buffer, offset + at, piece);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    const uint64_t in_pin = pin.OffsetOf(data + at);
    const VkBufferCopy region{is_up ? in_pin : offset + at, is_up ? offset + at : in_pin, piece};
    context_.vk().CmdCopyBuffer(commands, is_up ? pin.buffer() : buffer.handle(),
                                is_up ? buffer.handle() : pin.buffer(), 1, &region);
    at += piece;
    if (bytes > kPieceBytes) {
      HPVMD_RETURN_IF_ERROR(FlushHeld());
      ahead.emplace_back(writer_.value(), piece);
    }
  }
  while (!ahead.empty()) {
    HPVMD_RETURN_IF_ERROR(land());
  }
  return absl::OkStatus();
}

Status Transfers::Upload(const HostCopy& copy) {
  // A client may write its memory while a device reads it, so indices go through staging memory.
  if (const Pin* pin = copy.has_indices ? nullptr : PinOf(copy.block, copy.bytes); pin != nullptr) {
    HPVMD_RETURN_IF_ERROR(Flush());
    return CopyDirectly(*pin, copy.data, copy.buffer, copy.offset, copy.bytes, /*is_up=*/true);
  }
  if (gpu::SmallCopies::IsSmall(copy.bytes)) {
    HPVMD_RETURN_IF_ERROR(FlushSmall(small_downloads_, /*is_up=*/false));
    return AddSmall(small_uploads_, copy);
  }
  HPVMD_RETURN_IF_ERROR(Flush());
  return UploadNow(copy);
}

Status Transfers::RecordUpload(const HostCopy& copy, VkBuffer staged, const VkBufferCopy& region) {
  writer_.Writes(copy.buffer, region.dstOffset, region.size);
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  context_.vk().CmdCopyBuffer(commands, staged, copy.buffer.handle(), 1, &region);
  return absl::OkStatus();
}

Status Transfers::UploadNow(const HostCopy& copy) {
  gpu::WordScan words;
  if (copy.bytes <= gpu::StagingRing::kSharedBytesMax) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copy.bytes));
    std::memcpy(piece.data, copy.data, copy.bytes);
    if (copy.has_indices) {
      words.Add(piece.data, copy.bytes);
    }
    HPVMD_RETURN_IF_ERROR(RecordUpload(copy, piece.buffer, {piece.offset, copy.offset, copy.bytes}));
  } else {
    const auto submit = [&](const gpu::StagingSlot& slot, uint64_t at, uint64_t bytes) -> Status {
      HPVMD_RETURN_IF_ERROR(RecordUpload(copy, staging_.BufferOf(slot), {0, copy.offset + at, bytes}));
      const Status flushed = FlushHeld();
      staging_.Sent(slot, writer_.value());
      return flushed;
    };
    HPVMD_RETURN_IF_ERROR(staging_.ring().Upload(
        {copy.data, copy.bytes, copy.has_indices ? &words : nullptr}, [&] { return NextSlot(); }, submit));
  }
  if (copy.has_indices) {
    copy.buffer.KeepWords(copy.offset, copy.bytes, words.range());
  }
  return absl::OkStatus();
}

Status Transfers::Download(const HostCopy& copy) {
  const Pin* const pin = PinOf(copy.block, copy.bytes);
  if (pin == nullptr && gpu::SmallCopies::IsSmall(copy.bytes)) {
    HPVMD_RETURN_IF_ERROR(FlushSmall(small_uploads_, /*is_up=*/true));
    // The last of several copies to the same bytes takes effect; small ones are ordered among themselves.
    HPVMD_RETURN_IF_ERROR(IsLargeAwaited(copy.data, copy.bytes) ? Land() : absl::OkStatus());
    return AddSmall(small_downloads_, copy);
  }
  HPVMD_RETURN_IF_ERROR(Flush());
  HPVMD_RETURN_IF_ERROR(IsAwaited(copy.data, copy.bytes) ? Land() : absl::OkStatus());
  if (pin != nullptr) {
    HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
    direct_.push_back({nullptr, copy.data, copy.bytes});
    return CopyDirectly(*pin, copy.data, copy.buffer, copy.offset, copy.bytes, /*is_up=*/false);
  }
  const auto record = [&](VkBuffer staged, const VkBufferCopy& region) -> Status {
    writer_.Reads(copy.buffer, region.srcOffset, region.size);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    context_.vk().CmdCopyBuffer(commands, copy.buffer.handle(), staged, 1, &region);
    return absl::OkStatus();
  };
  if (copy.bytes <= gpu::StagingRing::kSharedBytesMax) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copy.bytes));
    held_.back().arrivals.push_back({piece.data, copy.data, copy.bytes});
    return record(piece.buffer, {copy.offset, piece.offset, copy.bytes});
  }
  const auto submit = [&](const gpu::StagingSlot& slot, uint64_t at, uint64_t bytes) -> Status {
    HPVMD_RETURN_IF_ERROR(record(staging_.BufferOf(slot), {copy.offset + at, 0, bytes}));
    const Status flushed = FlushHeld();
    staging_.Sent(slot, writer_.value());
    return flushed;
  };
  return arrivals_.Download(
      copy.data, copy.bytes, [&] { return NextSlot(); }, submit);
}

Status Transfers::AddSmall(gpu::SmallCopies& copies, const HostCopy& copy) {
  const uint64_t room = std::min(copy.room, copy.buffer.bytes() - copy.offset - copy.bytes);
  const gpu::SmallCopy small{&copy.buffer, copy.offset, copy.bytes, room, copy.data, copy.has_indices};
  if (!copies.Takes(small)) {
    HPVMD_RETURN_IF_ERROR(Flush());
  }
  copies.Add(small);
  return absl::OkStatus();
}

Status Transfers::Flush() {
  HPVMD_RETURN_IF_ERROR(FlushSmall(small_uploads_, /*is_up=*/true));
  return FlushSmall(small_downloads_, /*is_up=*/false);
}

Status Transfers::FlushSmall(gpu::SmallCopies& copies, bool is_up) {
  if (copies.is_empty()) {
    return absl::OkStatus();
  }
  copies.Plan();
  HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copies.staged_bytes()));
  if (is_up) {
    copies.Stage(piece.data);
  }
  std::span<const gpu::CopySpan> rest = copies.spans();
  while (!rest.empty()) {
    size_t count = 1;  // Number of spans of one buffer that one command may move.
    while (!copies.is_ordered() && count < rest.size() && rest[count].buffer == rest[0].buffer) {
      ++count;
    }
    HPVMD_RETURN_IF_ERROR(WriteSpans(rest.first(count), piece, is_up));
    rest = rest.subspan(count);
  }
  if (is_up) {
    copies.KeepWords();  // Writes invalidated them.
  } else {
    copies.ForEachArrival(piece.data, [&](const uint8_t* staged, uint8_t* host, uint64_t bytes) {
      held_.back().arrivals.push_back({staged, host, bytes});
    });
  }
  copies.Clear();
  return absl::OkStatus();
}

// Writes one command.
Status Transfers::WriteSpans(std::span<const gpu::CopySpan> spans, const Piece& piece, bool is_up) {
  // Safety: only this device's buffers are copied.
  auto& buffer = static_cast<VulkanBuffer&>(*spans[0].buffer);
  regions_.clear();
  for (const gpu::CopySpan& span : spans) {
    is_up ? writer_.Writes(buffer, span.offset, span.bytes) : writer_.Reads(buffer, span.offset, span.bytes);
    const uint64_t staged = piece.offset + span.staged;
    regions_.push_back({is_up ? staged : span.offset, is_up ? span.offset : staged, span.bytes});
  }
  HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
  HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
  context_.vk().CmdCopyBuffer(commands, is_up ? piece.buffer : buffer.handle(), is_up ? buffer.handle() : piece.buffer,
                              static_cast<uint32_t>(regions_.size()), regions_.data());
  return absl::OkStatus();
}

bool Transfers::IsLargeAwaited(const uint8_t* data, uint64_t bytes) const {
  return arrivals_.Touches(data, bytes) ||
         std::ranges::any_of(direct_, [&](const Arrival& arrival) { return Touches(arrival, data, bytes); });
}

bool Transfers::IsAwaited(const uint8_t* data, uint64_t bytes) const {
  const auto touches = [&](const Arrival& arrival) { return Touches(arrival, data, bytes); };
  return IsLargeAwaited(data, bytes) ||
         std::ranges::any_of(held_, [&](const Held& held) { return std::ranges::any_of(held.arrivals, touches); });
}

Status Transfers::Land() {
  HPVMD_RETURN_IF_ERROR(FlushHeld());
  HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), writer_.value()}));
  return Finish();
}

Status Transfers::Arrive(const uint8_t* data, uint64_t bytes) {
  HPVMD_RETURN_IF_ERROR(FlushSmall(small_downloads_, /*is_up=*/false));
  return IsAwaited(data, bytes) ? Land() : absl::OkStatus();
}

Status Transfers::Close() {
  HPVMD_RETURN_IF_ERROR(FlushHeld());
  if (!held_.empty() && held_.back().arrivals.empty()) {
    Release(held_.back());
    held_.pop_back();
  }
  return absl::OkStatus();
}

Status Transfers::Finish() {
  direct_.clear();
  while (!held_.empty()) {
    HPVMD_RETURN_IF_ERROR(EmptyOldest());
  }
  return arrivals_.Finish();
}

}  // namespace hpvm::vulkan
