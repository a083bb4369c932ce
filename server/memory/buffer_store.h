// SPDX-License-Identifier: Apache-2.0
// One tenant's buffers: names for versions of bytes.
//
// A version is a segment that, once published, only WriteBuffer changes. A run writes its outputs into fresh segments
// and publishes them all when it succeeds, so a failed run leaves the old contents and a run that reads keeps reading
// what it started with.
#ifndef HPVMD_SERVER_MEMORY_BUFFER_STORE_H_
#define HPVMD_SERVER_MEMORY_BUFFER_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/lendable.h"
#include "base/status.h"
#include "hpvm/element_type.h"
#include "server/memory/segment_pool.h"

namespace hpvm::server {

struct TensorShape {
  uint8_t type = 0;  // An ElementType's value; 0: raw bytes.
  std::vector<uint64_t> extents;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

// Bytes of a tensor. kInvalidArgument for an unknown type, a rank above the limit, or a product beyond 64 bits;
// `place` names it.
StatusOr<uint64_t> CheckedTensorBytes(uint32_t type, std::span<const uint64_t> extents, std::string_view place);

struct BufferRecord {
  std::string id;
  uint64_t generation = 1;
  uint64_t last_generation = 1;  // Given out, perhaps to a run that has not published it yet.
  uint64_t size_bytes = 0;
  TensorShape shape;
  std::map<std::string, std::string> labels;
  bool lost = false;
  Lendable<const Segment> segment;  // Lent to the runs and transfers that use it.
  int64_t created_unix_ns = 0;
  Time used{0};  // When somebody last named it.
};

struct BufferLimits {
  uint64_t buffer_bytes_max = 0;
  uint64_t bytes_max = 0;
  uint64_t count_max = 0;
};

// Guarded by the core's mutex. Bytes are read and written outside it, through the segments.
class BufferStore {
 public:
  // Borrows the clock, which says when buffers are used; null: never.
  explicit BufferStore(const BufferLimits& limits, const Clock* clock = nullptr) : limits_(limits), clock_(clock) {}

  // Whether `size_bytes` more in one buffer may exist; kResourceExhausted with the limit.
  Status Admit(uint64_t size_bytes) const;
  // Takes the record; the id must be new. Admit again first when the lock was released in between.
  Status Insert(BufferRecord record);
  // kNotFound for foreign and absent ids alike. The pointer is valid until the next change.
  StatusOr<BufferRecord*> Find(std::string_view id);
  // kNotFound as Find.
  Status Erase(std::string_view id);
  // New contents: `segment` becomes the buffer's memory, and the answer is a loan of it. When a later generation was
  // published already, it is as if that one had come after this one: nothing changes, and `segment` comes back.
  SegmentRef Publish(BufferRecord& record, SegmentRef segment, TensorShape shape, uint64_t generation);
  void SetLimits(const BufferLimits& limits) { limits_ = limits; }
  // Takes out what nobody has used since `before` and nobody uses now, the longest unused first, until one of that size
  // is admitted; without a size all of it. The memory is for the caller to let go of, outside of any lock.
  std::vector<SegmentRef> TakeIdle(Time before, std::optional<uint64_t> size_bytes);
  // By id, after that one.
  std::vector<const BufferRecord*> After(std::string_view id, size_t count_max) const;

  uint64_t bytes() const { return bytes_; }
  // Capacities of the memory that buffers have now, each piece once. Linear.
  uint64_t SegmentBytes() const;
  size_t size() const { return buffers_.size(); }

 private:
  // A new limit may be smaller than what there is.
  uint64_t Left() const { return limits_.bytes_max > bytes_ ? limits_.bytes_max - bytes_ : 0; }

  BufferLimits limits_;
  const Clock* clock_;
  Time unused_from_{0};  // No buffer that nobody uses was used before: until then nobody need look.
  uint64_t bytes_ = 0;
  std::map<std::string, BufferRecord, std::less<>> buffers_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_BUFFER_STORE_H_
