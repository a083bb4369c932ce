// SPDX-License-Identifier: Apache-2.0
#include "server/memory/buffer_store.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/limits.h"

namespace hpvm::server {

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
    return ResourceExhausted("The tenant has " + std::to_string(limits_.count_max) +
                             " buffers, which is the limit (limits.buffers_max).");
  }
  if (size_bytes > Left()) {
    return ResourceExhausted("The buffer's size (" + std::to_string(size_bytes) +
                             ") is larger than the rest of the tenant's limit (" + std::to_string(Left()) + " of " +
                             std::to_string(limits_.bytes_max) + ").");
  }
  return absl::OkStatus();
}

Status BufferStore::Insert(BufferRecord record) {
  HPVMD_RETURN_IF_ERROR(Admit(record.size_bytes));
  bytes_ += record.size_bytes;
  if (clock_ != nullptr) {
    record.created_unix_ns = clock_->WallNs();
    record.used = clock_->Now();
  }
  std::string id = record.id;
  buffers_.emplace(std::move(id), std::move(record));
  return absl::OkStatus();
}

uint64_t BufferStore::SegmentBytes() const {
  std::unordered_set<const Segment*> segments;
  uint64_t bytes = 0;
  for (const auto& [id, record] : buffers_) {
    if (record.segment.get() != nullptr && segments.insert(record.segment.get()).second) {
      bytes += record.segment->capacity_bytes;
    }
  }
  return bytes;
}

StatusOr<BufferRecord*> BufferStore::Find(std::string_view id) {
  const auto found = buffers_.find(id);
  if (found == buffers_.end()) {
    return NotFound("There is no buffer \"" + std::string(id.substr(0, 80)) + "\".");
  }
  if (clock_ != nullptr) {
    found->second.used = clock_->Now();
  }
  return &found->second;
}

Status BufferStore::Erase(std::string_view id) {
  HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, Find(id));
  bytes_ -= record->size_bytes;
  buffers_.erase(std::string(id));
  return absl::OkStatus();
}

std::vector<SegmentRef> BufferStore::TakeIdle(Time before, std::optional<uint64_t> size_bytes) {
  std::vector<SegmentRef> taken;
  if (size_bytes.has_value() && (*size_bytes > limits_.buffer_bytes_max || Admit(*size_bytes).ok())) {
    return taken;  // The buffer can never fit, or fits already.
  }
  if (before < unused_from_) {
    return taken;  // A tenant at its limit may ask as often as it likes.
  }
  std::vector<std::pair<Time, std::string_view>> idle;
  unused_from_ = clock_ != nullptr ? clock_->Now() : Time{0};
  for (auto& [id, record] : buffers_) {
    if (record.segment.is_lent() && clock_ != nullptr) {
      record.used = clock_->Now();  // Runs and transfers hold a buffer's memory, and count as use all the while.
    }
    if (record.used <= before) {
      idle.emplace_back(record.used, id);
    } else {
      unused_from_ = std::min(unused_from_, record.used);
    }
  }
  uint64_t idle_bytes = 0;
  for (const auto& [used, id] : idle) {
    idle_bytes += buffers_.find(id)->second.size_bytes;
  }
  if (size_bytes.has_value() && *size_bytes > Left() + idle_bytes) {
    unused_from_ = before + std::chrono::seconds(1);
    return taken;  // Even all of them together would not suffice.
  }
  std::sort(idle.begin(), idle.end());
  for (const auto& [used, id] : idle) {
    const auto found = buffers_.find(id);
    bytes_ -= found->second.size_bytes;
    taken.push_back(found->second.segment.Lend());
    buffers_.erase(found);
    if (size_bytes.has_value() && Admit(*size_bytes).ok()) {
      unused_from_ = Time{0};  // Other buffers are as old.
      break;
    }
  }
  return taken;
}

std::vector<const BufferRecord*> BufferStore::After(std::string_view id, size_t count_max) const {
  std::vector<const BufferRecord*> found;
  for (auto at = buffers_.upper_bound(id); at != buffers_.end() && found.size() < count_max; ++at) {
    found.push_back(&at->second);
  }
  return found;
}

SegmentRef BufferStore::Publish(BufferRecord& record, SegmentRef segment, TensorShape shape, uint64_t generation) {
  if (generation <= record.generation) {
    return segment;
  }
  if (record.segment.get() != segment.get()) {  // A run writes registered memory in place.
    record.segment = Lendable(std::move(segment));
  }
  record.shape = std::move(shape);
  record.lost = false;
  record.generation = generation;
  return record.segment.Lend();
}

}  // namespace hpvm::server
