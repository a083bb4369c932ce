// SPDX-License-Identifier: Apache-2.0
// Decides where each value's bytes are, and which copies keep every reader correct: coherence is decided once, when a
// plan is built. Pure.
//
// A storage is a piece of memory in one space; it holds one value after another. Reads share: a value may have copies
// in several spaces, each valid in some ranges of bytes, and only the ranges that a task needs are copied to it.
// Writing in place is allowed when no other task reads the old value later and its memory is writable; otherwise the
// writer gets a copy (copy on write). Memory is reused after its value's last reader. A value that becomes a graph
// output is made in the output's own memory when the chain of in-place updates leads there, so that no final copy is
// needed.
//
// The result is a list of steps, in an order in which they could run one after another, cut into segments (sequences of
// one lane of a device), each with the segments that it waits for. Segments are in the order of submission: work for
// drivers comes before work that occupies the submitting thread.
#ifndef HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_H_
#define HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/lane.h"
#include "base/status.h"
#include "graph/flatten.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

using StorageId = Id<struct StorageTag>;

struct Storage {
  // Inputs and outputs are memory that a run binds, in host space; `port` is the root's port. Carried storages hold
  // values that one iteration hands to the next.
  enum class Kind : uint8_t { kTemporary, kInput, kOutput };
  Kind kind = Kind::kTemporary;
  SpaceIndex space = kHostSpace;
  uint32_t port = 0;
  uint64_t bytes = 0;
  // For temporaries: offset in the space's arena, a multiple of kStorageAlignment. Storages of one arena may overlap
  // when their uses do not, which the order of steps and waits respects.
  uint64_t offset = 0;
  // For a value that only passes through: the first byte of the value that the storage holds; otherwise 0. Steps and
  // touches use byte numbers of values: byte b of the value is byte b - first of the storage.
  uint64_t first = 0;
};

// Minimum alignment required by drivers; on some devices tenants' own code needs views at multiples of 512 bytes.
inline constexpr uint64_t kStorageAlignment = 512;

struct Step {
  enum class Kind : uint8_t { kCopy, kZero, kRun };
  Kind kind = Kind::kRun;
  DeviceIndex device = 0;        // The device that executes it.
  Lane lane = Lane::kCompute;    // Copies of devices with copy lanes have their own lanes.
  uint32_t task = 0;             // kRun: index in ResidencyInput::tasks.
  StorageId source{}, target{};  // kCopy; kZero: target.
  uint64_t offset = 0;           // kCopy, kZero: first byte of the value, in source and target.
  uint64_t bytes = 0;            // kCopy, kZero.
  // kCopy from host memory: number of unused bytes in the target after the value; the step's touch includes them.
  uint64_t room = 0;
  // kRun outside host space: its extent comes from Residency::late_extents. It begins a segment, which is submitted
  // when all segments that it waits for are done.
  bool has_late_extent = false;
};

struct SegmentWait {
  uint32_t segment = 0;
};

// Bytes of the value in a storage that a step reads or writes. For kernels these are hulls.
struct Touch {
  StorageId storage;
  bool writes = false;
  ByteRange range;
};

// Consecutive steps of one lane of a device.
struct Segment {
  DeviceIndex device = 0;
  Lane lane = Lane::kCompute;
  uint32_t first_step = 0, step_count = 0;
  // Range in Residency::waits: earlier segments, at most one per lane, the latest. The preceding segment of its own
  // lane is an implicit wait.
  uint32_t first_wait = 0, wait_count = 0;
};

// Limits of the graph's temporaries in a space.
struct SpaceFacts {
  static constexpr SpaceIndex kNone = 0xffffffffu;
  uint64_t bytes_max = ~uint64_t{0};
  // Space that receives values that do not fit: host memory for a GPU's memory, disk for host memory. kNone: no such
  // space.
  SpaceIndex overflow = kNone;
  // Device that moves bytes between this space and the host's; for the disk a separate device in
  // ResidencyInput::devices.
  DeviceIndex mover = 0;
  uint64_t piece_bytes_max = ~uint64_t{0};  // Arenas consist of pieces of this size; no storage straddles two.
};

// A root output that becomes a root input of the next iteration; types and shapes are equal.
struct Carry {
  uint32_t output = 0, input = 0;  // Indices of the root's ports.
};

struct ResidencyInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;  // At least one in host space.
  std::span<const SpaceFacts> spaces;    // Indexed by space. Empty: no limits.
  std::span<const Task> tasks;           // Placement::tasks.
  const AccessModel& accesses;
  std::span<const Carry> carries{};  // When not empty, the plan is for iterations.
  // Output ports of the root whose values the host reads after every body.
  std::span<const uint32_t> on_host{};
};

struct StepRange {
  uint32_t first_segment = 0, segment_count = 0;
};

// Location in host memory where a launch on another device finds its number of instances.
struct LateExtent {
  uint32_t task = 0, dimension = 0;
  StorageId storage;
};

struct Residency {
  std::vector<Storage> storages;
  // Indexed by task, then by port of its leaf: the whole buffer, as seen by the kernel. Port p of task t has
  // port_storage[first_port[t] + p].
  std::vector<uint32_t> first_port;
  std::vector<StorageId> port_storage;
  std::vector<Step> steps;
  // The touches of step i are [first_touch[i], first_touch[i + 1]).
  std::vector<uint32_t> first_touch;
  std::vector<Touch> touches;
  std::vector<Segment> segments;
  std::vector<SegmentWait> waits;
  // Run once before the first iteration, for each iteration, and once after the last. Without carries everything is in
  // `body`. Segments of the body do not wait for those of the prologue, nor those of the epilogue for any others: the
  // caller waits for all work in between.
  StepRange prologue, body, epilogue;
  // Storages that are exchanged between two iterations; equal size and space.
  std::vector<std::pair<StorageId, StorageId>> swaps;
  std::vector<StorageId> on_host;         // As ResidencyInput::on_host; in host space, holding the value after a body.
  std::vector<LateExtent> late_extents;   // In the order of tasks.
  std::vector<uint64_t> temporary_bytes;  // Indexed by space: the arena's size, at most SpaceFacts::bytes_max.
  uint64_t copies = 0, in_place = 0;      // Copy steps; inout ports updated without a copy.
  std::vector<uint64_t> moved_bytes;      // Indexed by space: bytes moved to it and from it in one iteration.
  uint64_t evictions = 0, spills = 0;  // Values that left a space for lack of room; the part of them that went to disk.
};

// Returns kResourceExhausted, with the sizes, when one task's buffers do not fit in a space together, or values that do
// not fit have no overflow space; `*culprit` is then the task.
StatusOr<Residency> PlanResidency(const ResidencyInput& input, uint32_t* culprit = nullptr);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_H_
