// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/transfer.h"

#include <algorithm>

namespace hpvm::vulkan {
namespace {

// Chunks that are filled before the queue gets them: the device starts early, and is told seldom.
constexpr size_t kChunksOfFlush = 2;

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

Status Transfers::Upload(const uint8_t* source, VulkanBuffer& target, uint64_t offset, uint64_t bytes) {
  CopyFlow flow = copier_.Flow(/*is_up=*/true, bytes, Staging::kChunks * Staging::kChunkBytes);
  while (bytes != 0) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(bytes, false));
    copier_.Copy(piece.data, source, piece.bytes);
    writer_.Writes(target, offset, piece.bytes);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    const VkBufferCopy region{piece.offset, offset, piece.bytes};
    context_.vk().CmdCopyBuffer(commands, piece.buffer, target.handle(), 1, &region);
    flow.Moved(piece.bytes);
    source += piece.bytes;
    offset += piece.bytes;
    bytes -= piece.bytes;
  }
  return absl::OkStatus();
}

Status Transfers::Download(VulkanBuffer& source, uint64_t offset, uint8_t* target, uint64_t bytes) {
  // Once the staging memory is full a piece is taken when another has arrived.
  CopyFlow flow = copier_.Flow(/*is_up=*/false, bytes, Staging::kChunks * Staging::kChunkBytes);
  while (bytes != 0) {
    HPVMD_ASSIGN_OR_RETURN(const Piece piece, Take(bytes, false));
    writer_.Reads(source, offset, piece.bytes);
    HPVMD_RETURN_IF_ERROR(writer_.Settle(Writer::Stage::kTransfer));
    HPVMD_ASSIGN_OR_RETURN(VkCommandBuffer commands, writer_.Open());
    const VkBufferCopy region{offset, piece.offset, piece.bytes};
    context_.vk().CmdCopyBuffer(commands, source.handle(), piece.buffer, 1, &region);
    held_.back().arrivals.push_back({piece.data, target, piece.bytes});
    flow.Moved(piece.bytes);
    target += piece.bytes;
    offset += piece.bytes;
    bytes -= piece.bytes;
  }
  return absl::OkStatus();
}

Status Transfers::Arrive(const uint8_t* data, uint64_t bytes) {
  const bool is_awaited = std::any_of(held_.begin(), held_.end(), [&](const Held& held) {
    return std::any_of(held.arrivals.begin(), held.arrivals.end(), [&](const Arrival& arrival) {
      return arrival.target < data + bytes && data < arrival.target + arrival.bytes;
    });
  });
  if (!is_awaited) {
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(FlushHeld());
  HPVMD_RETURN_IF_ERROR(context_.Wait({writer_.lane(), writer_.value()}));
  return Finish();
}

Status Transfers::Finish() {
  for (Held& held : held_) {
    HPVMD_RETURN_IF_ERROR(Empty(held));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::vulkan
