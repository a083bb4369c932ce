// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer.h"

#include <algorithm>

namespace hpvm::vulkan {
namespace {

// Chunks that are filled before the queue gets them: the device starts early, and is told seldom.
constexpr size_t kChunksOfFlush = 2;
// Copies between pinned memory and the device are cut into pieces, so many under way at a time, so that work that
// waits for the first pieces may begin.
constexpr uint64_t kPieceBytes = 16 * limits::kMiB;
constexpr size_t kPiecesAhead = 2;

}  // namespace

Transfers::~Transfers() {
  for (const Held& held : held_) {
    staging_.Give(held.chunk);
  }
}

Status Transfers::Empty(Held& held) {
  if (!held.arrivals.empty()) {
    HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
  }
  for (const Arrival& arrival : held.arrivals) {
    copier_.Copy(arrival.target, arrival.staged, arrival.bytes);
  }
  held.arrivals.clear();
  held.used = 0;
  held.value = 0;
  return absl::OkStatus();
}

Status Transfers::FlushHeld() {
  HPVMD_RETURN_IF_ERROR(writer_.FlushForHost());
  for (Held& held : held_) {
    held.value = held.value == 0 ? writer_.value() : held.value;
  }
  return absl::OkStatus();
}

Status Transfers::NextChunk() {
  const size_t open = std::count_if(held_.begin(), held_.end(), [](const Held& held) { return held.value == 0; });
  if (open >= kChunksOfFlush) {
    HPVMD_RETURN_IF_ERROR(FlushHeld());
  }
  HPVMD_ASSIGN_OR_RETURN(StagingChunk chunk, staging_.Take(/*waits=*/held_.empty()));
  if (chunk.data != nullptr) {
    held_.push_back({chunk, 0, 0, {}});
    return absl::OkStatus();
  }
  if (held_.front().value == 0) {
    HPVMD_RETURN_IF_ERROR(FlushHeld());
  }
  HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), held_.front().value}));
  held_.push_back(std::move(held_.front()));
  held_.pop_front();
  return Empty(held_.back());
}

StatusOr<Transfers::Piece> Transfers::Take(uint64_t bytes, bool is_whole) {
  const uint64_t alignment = context_.binding_alignment();
  const auto room = [&]() -> uint64_t {
    return held_.empty() || held_.back().value != 0 ? 0 : Staging::kChunkBytes - held_.back().used;
  };
  if (room() == 0 || (is_whole && room() < bytes)) {
    HPVMD_RETURN_IF_ERROR(NextChunk());
  }
  Held& held = held_.back();
  const Piece piece{held.chunk.buffer, held.chunk.offset + held.used, std::min(bytes, room()),
                    held.chunk.data + held.used};
  held.used = std::min(Staging::kChunkBytes, (held.used + piece.bytes + alignment - 1) / alignment * alignment);
  return piece;
}

// Only lanes for copies go by pins: whatever else a submission does may fail and leave host memory as it is.
const Pin* Transfers::PinOf(HostBlock* block, uint64_t bytes) const {
  if (block == nullptr || context_.pinner() == 0 || writer_.lane() == Lane::kCompute) {
    return nullptr;
  }
  const auto make = [&]() -> std::unique_ptr<HostPin> { return Pin::Make(context_.shared_from_this(), *block); };
  // Safety: only this makes pins by that number.
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
  // A client may write its memory while a device reads it, so indices go by staging memory.
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

Status Transfers::UploadNow(const HostCopy& copy) {
  CopyFlow flow = copier_.Flow(/*is_up=*/true, copy.bytes, Staging::kChunks * Staging::kChunkBytes);
  gpu::WordScan words;
  for (uint64_t at = 0; at != copy.bytes;) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copy.bytes - at, false));
    copier_.Copy(piece.data, copy.data + at, piece.bytes);
    if (copy.has_indices) {
      words.Add(piece.data, piece.bytes);
    }
    writer_.Writes(copy.buffer, copy.offset + at, piece.bytes);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    const VkBufferCopy region{piece.offset, copy.offset + at, piece.bytes};
    context_.vk().CmdCopyBuffer(commands, piece.buffer, copy.buffer.handle(), 1, &region);
    flow.Moved(piece.bytes);
    at += piece.bytes;
  }
  if (copy.has_indices) {
    copy.buffer.KeepWords(copy.offset, copy.bytes, words.range());
  }
  return absl::OkStatus();
}

Status Transfers::Download(const HostCopy& copy) {
  if (const Pin* pin = PinOf(copy.block, copy.bytes); pin != nullptr) {
    HPVMD_RETURN_IF_ERROR(Flush());
    HPVMD_RETURN_IF_ERROR(gpu::AwaitAll(behind_));
    direct_.push_back({nullptr, copy.data, copy.bytes});
    return CopyDirectly(*pin, copy.data, copy.buffer, copy.offset, copy.bytes, /*is_up=*/false);
  }
  if (gpu::SmallCopies::IsSmall(copy.bytes)) {
    HPVMD_RETURN_IF_ERROR(FlushSmall(small_uploads_, /*is_up=*/true));
    return AddSmall(small_downloads_, copy);
  }
  HPVMD_RETURN_IF_ERROR(Flush());
  // Once the staging memory is full a piece is taken when another has arrived.
  CopyFlow flow = copier_.Flow(/*is_up=*/false, copy.bytes, Staging::kChunks * Staging::kChunkBytes);
  for (uint64_t at = 0; at != copy.bytes;) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copy.bytes - at, false));
    writer_.Reads(copy.buffer, copy.offset + at, piece.bytes);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    const VkBufferCopy region{copy.offset + at, piece.offset, piece.bytes};
    context_.vk().CmdCopyBuffer(commands, copy.buffer.handle(), piece.buffer, 1, &region);
    held_.back().arrivals.push_back({piece.data, copy.data + at, piece.bytes});
    flow.Moved(piece.bytes);
    at += piece.bytes;
  }
  return absl::OkStatus();
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
  HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(copies.staged_bytes(), /*is_whole=*/true));
  if (is_up) {
    copies.Stage(piece.data);
  }
  std::span<const gpu::CopySpan> rest = copies.spans();
  while (!rest.empty()) {
    size_t count = 1;  // Spans of one buffer that one command may move.
    while (!copies.is_ordered() && count < rest.size() && rest[count].buffer == rest[0].buffer) {
      ++count;
    }
    HPVMD_RETURN_IF_ERROR(WriteSpans(rest.first(count), piece, is_up));
    rest = rest.subspan(count);
  }
  if (is_up) {
    copies.KeepWords();  // Writes forgot them.
  } else {
    copies.ForEachArrival(piece.data, [&](const uint8_t* staged, uint8_t* host, uint64_t bytes) {
      held_.back().arrivals.push_back({staged, host, bytes});
    });
  }
  copies.Clear();
  return absl::OkStatus();
}

// One command.
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

Status Transfers::Arrive(const uint8_t* data, uint64_t bytes) {
  HPVMD_RETURN_IF_ERROR(FlushSmall(small_downloads_, /*is_up=*/false));
  const auto touches = [&](const Arrival& arrival) {
    return arrival.target < data + bytes && data < arrival.target + arrival.bytes;
  };
  const bool is_awaited = std::ranges::any_of(direct_, touches) || std::ranges::any_of(held_, [&](const Held& held) {
                            return std::ranges::any_of(held.arrivals, touches);
                          });
  if (!is_awaited) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(FlushHeld());
  HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), writer_.value()}));
  return Finish();
}

Status Transfers::Finish() {
  direct_.clear();
  for (Held& held : held_) {
    HPVMD_RETURN_IF_ERROR(Empty(held));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::vulkan
