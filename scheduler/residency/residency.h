// SPDX-License-Identifier: Apache-2.0
// Where each value's bytes lie, and which copies keep every reader right: coherence decided once, when a plan is built.
// Pure.
//
// A storage is a piece of memory in one space; it holds one value after another. Reading shares: a value may have a
// copy in several spaces, each valid in some ranges of bytes; only ranges that a task needs are brought to it. Writing
// in place is allowed when nobody else reads the old value later and its memory may be written; otherwise the writer
// gets a copy (copy on write). Memory is reused after its value's last reader. Values that become a graph output are
// made in the output's own memory when the chain of in-place updates leads there, so that nothing is copied out.
//
// The result is a list of steps, in an order in which they could run one after another, cut into segments (runs of one
// lane of a device) with the segments each waits for. Segments stand in the order in which to submit them: work for
// drivers before work that occupies the submitting thread.
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
  // Inputs and outputs are the memory that a run binds, in host space; `port` is the root's. Carried ones hold what one
  // iteration hands to the next.
  enum class Kind : uint8_t { kTemporary, kInput, kOutput };
  Kind kind = Kind::kTemporary;
  SpaceIndex space = kHostSpace;
  uint32_t port = 0;
  uint64_t bytes = 0;
  // Temporaries: where in the space's arena; a multiple of kStorageAlignment. Storages of one arena may overlap where
  // their uses do not, which the order of steps and waits respects.
  uint64_t offset = 0;
  // Of a value that only passes through, the storage holds the bytes from here on; else 0. Steps and touches count
  // bytes of values: byte b of them is byte b - first of the storage.
  uint64_t first = 0;
};

// What drivers bind at least: code of tenants' own needs views at multiples of 512 bytes on some.
inline constexpr uint64_t kStorageAlignment = 512;

struct Step {
  enum class Kind : uint8_t { kCopy, kZero, kRun };
  Kind kind = Kind::kRun;
  DeviceIndex device = 0;        // Executes it.
  Lane lane = Lane::kCompute;    // Copies of devices with copy lanes have their own.
  uint32_t task = 0;             // kRun: in ResidencyInput::tasks.
  StorageId source{}, target{};  // kCopy; kZero: target.
  uint64_t offset = 0;           // kCopy, kZero: first byte of the values in source and target.
  uint64_t bytes = 0;            // kCopy, kZero.
  // kCopy from host memory: bytes of the target behind the value, which are nobody's; the step's touch has them.
  uint64_t room = 0;
  // kRun outside host space: its extent comes from Residency::late_extents; it begins a segment, which is submitted
  // when all that it waits for is done.
  bool has_late_extent = false;
};

struct SegmentWait {
  uint32_t segment = 0;
};

// What a step reads or writes: bytes of the value in a storage. Of kernels these are hulls.
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
  uint32_t first_wait = 0, wait_count = 0;  // In Residency::waits: earlier segments; at most one a lane, the latest.
  // Of its own lane it waits for the segment before it.
};

// What a space may hold of this graph's temporaries.
struct SpaceFacts {
  static constexpr SpaceIndex kNone = 0xffffffffu;
  uint64_t bytes_max = ~uint64_t{0};
  // Where values go that do not fit: of a GPU's memory the host's, of the host's the disk. kNone: nowhere.
  SpaceIndex overflow = kNone;
  // Who moves bytes between this space and the host's; for the disk a device of its own, in ResidencyInput::devices.
  DeviceIndex mover = 0;
  uint64_t piece_bytes_max = ~uint64_t{0};  // Arenas consist of pieces so large; no storage straddles two.
};

// A root output that becomes a root input of the next iteration; equal types and shapes.
struct Carry {
  uint32_t output = 0, input = 0;  // Of the root's ports.
};

struct ResidencyInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;  // At least one in host space.
  std::span<const SpaceFacts> spaces;    // By space. Empty: no limits.
  std::span<const Task> tasks;           // Placement::tasks.
  const AccessModel& accesses;
  std::span<const Carry> carries{};  // Not empty: the plan is for iterations.
  // Output ports of the root whose values the host reads after every body.
  std::span<const uint32_t> on_host{};
};

struct StepRange {
  uint32_t first_segment = 0, segment_count = 0;
};

// Where in host memory a launch elsewhere finds how many instances it has.
struct LateExtent {
  uint32_t task = 0, dimension = 0;
  StorageId storage;
};

struct Residency {
  std::vector<Storage> storages;
  // By task, then by port of its leaf: what the kernel sees, the whole buffer. Port p of task t has
  // port_storage[first_port[t] + p].
  std::vector<uint32_t> first_port;
  std::vector<StorageId> port_storage;
  std::vector<Step> steps;
  // Those of step i are [first_touch[i], first_touch[i + 1]).
  std::vector<uint32_t> first_touch;
  std::vector<Touch> touches;
  std::vector<Segment> segments;
  std::vector<SegmentWait> waits;
  // Once before the first iteration, for each iteration, once after the last. Without carries all is in `body`.
  // Segments of the body do not wait for those of the prologue, nor those of the epilogue for others: who runs them
  // waits for all in between.
  StepRange prologue, body, epilogue;
  // Storages that trade places between two iterations: equal size and space.
  std::vector<std::pair<StorageId, StorageId>> swaps;
  std::vector<StorageId> on_host;         // As ResidencyInput::on_host; in host space, holding the value after a body.
  std::vector<LateExtent> late_extents;   // In the order of tasks.
  std::vector<uint64_t> temporary_bytes;  // By space: the arena's size, within SpaceFacts::bytes_max.
  uint64_t copies = 0, in_place = 0;      // Copy steps; inout ports updated without one.
  std::vector<uint64_t> moved_bytes;      // By space: to it and from it, of one iteration.
  uint64_t evictions = 0, spills = 0;     // Values that left a space for want of room; those of them to disk.
};

// kResourceExhausted when one task's buffers do not fit a space together, or values that do not fit have nowhere to go,
// with the sizes; `*culprit` is then the task.
StatusOr<Residency> PlanResidency(const ResidencyInput& input, uint32_t* culprit = nullptr);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_RESIDENCY_H_
