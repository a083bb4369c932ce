// SPDX-License-Identifier: Apache-2.0
// BufferStore holds one tenant's buffers: names for versions of bytes.
//
// A version is a segment that, once published, only WriteBuffer changes. A run writes its outputs into fresh segments
// and publishes them all when it succeeds, so a failed run leaves the old contents and a running reader keeps the
// version it started with.
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
  uint8_t type = 0;  // An ElementType's value; 0 for raw bytes.
  std::vector<uint64_t> extents;
  friend bool operator==(const TensorShape&, const TensorShape&) = default;
};

// Returns the size of a tensor in bytes. kInvalidArgument for an unknown type, a rank above the limit, or a product
// beyond 64 bits; `place` names it.
StatusOr<uint64_t> CheckedTensorBytes(uint32_t type, std::span<const uint64_t> extents, std::string_view place);

struct BufferRecord {
  std::string id;
  uint64_t generation = 1;
  uint64_t last_generation = 1;  // Assigned, perhaps to a run that has not published it yet.
  uint64_t size_bytes = 0;
  TensorShape shape;
  std::map<std::string, std::string> labels;
  bool lost = false;
  Lendable<const Segment> segment;  // Lent to the runs and transfers that use it.
  int64_t created_unix_ns = 0;
  Time used{0};  // Time of the last call that named it.
};

struct BufferLimits {
  uint64_t buffer_bytes_max = 0;
  uint64_t bytes_max = 0;
  uint64_t count_max = 0;
};

// Guarded by the core's mutex. Bytes are read and written outside it, through the segments.
class BufferStore {
 public:
  // Borrows the clock, which records when buffers are used; may be null.
  explicit BufferStore(const BufferLimits& limits, const Clock* clock = nullptr) : limits_(limits), clock_(clock) {}

  // Returns OK when a further buffer of `size_bytes` may exist; kResourceExhausted with the limit otherwise.
  Status Admit(uint64_t size_bytes) const;
  // Takes the record; the id must be new. If the lock was released since Admit, call Admit again first.
  Status Insert(BufferRecord record);
  // Returns kNotFound for foreign and absent ids alike. The pointer is valid until the next change.
  StatusOr<BufferRecord*> Find(std::string_view id);
  // Returns kNotFound as Find does.
  Status Erase(std::string_view id);
  // Publishes new contents: `segment` becomes the buffer's memory, and a loan of it is returned. When a later
  // generation has been published already, the effect is as if that one had come after this one: nothing changes, and
  // `segment` is returned.
  SegmentRef Publish(BufferRecord& record, SegmentRef segment, TensorShape shape, uint64_t generation);
  void SetLimits(const BufferLimits& limits) { limits_ = limits; }
  // Removes buffers that were not used since `before` and are not in use now, the longest unused first, until a
  // buffer of `size_bytes` is admitted; all of them without a size. The caller releases the returned memory outside
  // of any lock.
  std::vector<SegmentRef> TakeIdle(Time before, std::optional<uint64_t> size_bytes);
  // Lists buffers in the order of their ids, after the given one.
  std::vector<const BufferRecord*> After(std::string_view id, size_t count_max) const;

  uint64_t bytes() const { return bytes_; }
  // Returns the capacity of all memory that buffers have now, each segment once. Linear.
  uint64_t SegmentBytes() const;
  size_t size() const { return buffers_.size(); }

 private:
  // Returns 0 when a new limit is smaller than the current size.
  uint64_t Left() const { return limits_.bytes_max > bytes_ ? limits_.bytes_max - bytes_ : 0; }

  BufferLimits limits_;
  const Clock* clock_;
  Time unused_from_{0};  // No idle buffer was used before this time, so none needs checking until then.
  uint64_t bytes_ = 0;
  std::map<std::string, BufferRecord, std::less<>> buffers_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_MEMORY_BUFFER_STORE_H_
