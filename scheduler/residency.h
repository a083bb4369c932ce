// SPDX-License-Identifier: Apache-2.0
// Where each value's bytes lie, and which copies keep every reader right: coherence decided once, when a plan is built.
// Pure.
//
// A storage is a piece of memory in one space; it holds one value after another. Reading shares: a value may have a
// valid copy in several spaces. Writing in place is allowed when nobody else reads the old value later and its memory
// may be written; otherwise the writer gets a copy (copy on write). Storages are reused after their value's last
// reader. Values that become a graph output are made in the output's own memory when the chain of in-place updates
// leads there, so that nothing is copied out.
//
// The result is a list of steps in execution order, cut into segments (maximal runs on one device) with the segments
// each waits for.
#ifndef HPVMD_SCHEDULER_RESIDENCY_H_
#define HPVMD_SCHEDULER_RESIDENCY_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "graph/flatten.h"
#include "scheduler/placement.h"

namespace hpvm::scheduler {

using StorageId = Id<struct StorageTag>;

struct Storage {
  // Inputs and outputs are the memory that a run binds, in host space; `port` is the root's.
  enum class Kind : uint8_t { kTemporary, kInput, kOutput };
  Kind kind = Kind::kTemporary;
  SpaceIndex space = kHostSpace;
  uint32_t port = 0;
  uint64_t bytes = 0;
};

struct Step {
  enum class Kind : uint8_t { kCopy, kZero, kRun };
  Kind kind = Kind::kRun;
  DeviceIndex device = 0;        // Executes it.
  graph::FlatNodeId node{};      // kRun.
  StorageId source{}, target{};  // kCopy; kZero: target.
  uint64_t bytes = 0;            // kCopy, kZero.
};

struct SegmentWait {
  uint32_t segment = 0;
};

struct Segment {
  DeviceIndex device = 0;
  uint32_t first_step = 0, step_count = 0;
  uint32_t first_wait = 0, wait_count = 0;  // In Residency::waits: earlier segments; at most one a device, the latest.
};

struct ResidencyInput {
  const graph::FlatGraph& flat;
  std::span<const DeviceFacts> devices;    // At least one in host space.
  std::span<const DeviceIndex> device_of;  // By flat node.
};

struct Residency {
  std::vector<Storage> storages;
  std::vector<StorageId> port_storage;  // By FlatGraph::ports index: what the kernel sees.
  std::vector<Step> steps;
  std::vector<Segment> segments;
  std::vector<SegmentWait> waits;
  std::vector<uint64_t> temporary_bytes;  // By space.
  uint64_t copies = 0, in_place = 0;      // Copy steps; inout ports updated without one.
};

// kResourceExhausted when the temporaries of a space pass 2^63 bytes.
StatusOr<Residency> PlanResidency(const ResidencyInput& input);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_RESIDENCY_H_
