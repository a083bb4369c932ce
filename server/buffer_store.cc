// SPDX-License-Identifier: Apache-2.0
#include "server/buffer_store.h"

#include <unordered_set>
#include <utility>

#include "base/limits.h"

namespace hpvm {

StatusOr<uint64_t> CheckedTensorBytes(uint32_t type, std::span<const uint64_t> extents, std::string_view place) {
  if (type == 0 || type > kElementTypes.size()) {
    return InvalidArgument(std::string(place) + " has no known element type (" + std::to_string(type) + ").");
  }
  if (extents.size() > limits::kTensorRankMax) {
    return InvalidArgument(std::string(place) + "'s rank (" + std::to_string(extents.size()) +
                           ") is larger than the limit (" + std::to_string(limits::kTensorRankMax) + ").");
  }
  const std::optional<uint64_t> bytes = TensorBytes(static_cast<ElementType>(type), extents);
  if (!bytes.has_value()) {
    return InvalidArgument(std::string(place) + "'s shape needs more bytes than 2^63 - 1.");
  }
  return *bytes;
}

Status BufferStore::Admit(uint64_t size_bytes) const {
  if (size_bytes > limits_.buffer_bytes_max) {
    return ResourceExhausted("The buffer's size (" + std::to_string(size_bytes) + ") is larger than the limit (" +
                             std::to_string(limits_.buffer_bytes_max) + ").");
  }
  if (buffers_.size() >= limits_.count_max) {
    return ResourceExhausted("The tenant has as many buffers as it may (" + std::to_string(limits_.count_max) + ").");
  }
  if (size_bytes > Left()) {
    return ResourceExhausted(
        "The buffer's size (" + std::to_string(size_bytes) + ") is larger than what is left of the tenant's limit (" +
        std::to_string(Left()) + " of " + std::to_string(limits_.bytes_max) + ").");
  }
  return absl::OkStatus();
}

Status BufferStore::Insert(BufferRecord record) {
  HPVMD_RETURN_IF_ERROR(Admit(record.size_bytes));
  bytes_ += record.size_bytes;
  std::string id = record.id;
  buffers_.emplace(std::move(id), std::move(record));
  return absl::OkStatus();
}

uint64_t BufferStore::SegmentBytes() const {
  std::unordered_set<const Segment*> segments;
  uint64_t bytes = 0;
  for (const auto& [id, record] : buffers_) {
    if (record.segment != nullptr && segments.insert(record.segment.get()).second) {
      bytes += record.segment->capacity_bytes;
    }
  }
  return bytes;
}

StatusOr<BufferRecord*> BufferStore::Find(std::string_view id) {
  const auto found = buffers_.find(std::string(id));
  if (found == buffers_.end()) {
    return NotFound("There is no buffer \"" + std::string(id.substr(0, 80)) + "\".");
  }
  return &found->second;
}

Status BufferStore::Erase(std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, Find(id));
  bytes_ -= record->size_bytes;
  buffers_.erase(std::string(id));
  return absl::OkStatus();
}

void BufferStore::Publish(BufferRecord& record, SegmentRef segment, TensorShape shape, uint64_t generation) {
  if (generation <= record.generation) {
    return;
  }
  record.segment = std::move(segment);
  record.shape = std::move(shape);
  record.lost = false;
  record.generation = generation;
}

}  // namespace hpvm
