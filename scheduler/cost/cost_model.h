// SPDX-License-Identifier: Apache-2.0
// Predicts how long launches and transfers take: first an estimate from device facts (roofline), later measurements.
//
// CostModel is the interface used by placement. StaticCosts answers from the devices' facts alone; MeasuredCosts
// (scheduler/cost/cost_history.h) answers from history where there is one.
#ifndef HPVMD_SCHEDULER_COST_COST_MODEL_H_
#define HPVMD_SCHEDULER_COST_COST_MODEL_H_

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "scheduler/task.h"

namespace hpvm::scheduler {

enum class Tier : uint8_t { kReal, kEmulated, kReference, kNull };

struct DeviceFacts {
  std::string id;
  Tier tier = Tier::kReal;
  SpaceIndex space = kHostSpace;
  uint32_t compute_units = 1;
  bool is_gpu = false;               // Its units run hundreds of instances at once, and launches pass through a driver.
  double bytes_per_second = 0;       // Speed of its memory; 0: unknown.
  double operations_per_second = 0;  // 0: unknown.
  double launch_ns = 0;              // 0: unknown.
  // Number of launches of different nodes that run at once, each on a share of its units; 1: one after another. For the
  // processor, its threads. A launch that is long enough to be shared uses all of them.
  uint32_t lanes = 1;
  uint32_t silicon = 0;         // Devices with the same number are the same hardware: work on one slows the others.
  bool has_copy_lanes = false;  // Transfers run concurrently with launches.
};

// One launch, or a part of a launch, by one candidate.
struct Work {
  graph::NodeId leaf;
  uint32_t choice = 0;  // Index in the leaf's candidates.
  uint64_t instances = 0;
  uint64_t bytes = 0;     // Size of its ports' tensors, each counted once: approximately what it reads and writes.
  double operations = 0;  // Counted from the kernel's code; 0: unknown.
};

struct Cost {
  Duration time{0};
  bool is_estimate = true;  // Nothing similar has been measured yet.
  bool is_guess = false;    // Nothing of the kernel has been measured on the device: it may be off by a factor of ten.
  friend bool operator==(const Cost&, const Cost&) = default;
};

// Computes how much work a launch, or a part of one, is. Answers must not change during a placement. Thread-safe.
class WorkModel {
 public:
  virtual ~WorkModel() = default;
  virtual Work Of(graph::FlatNodeId node, uint32_t choice, const Box& box) const = 0;
};

// Work from the graph alone: the bytes of its ports' tensors, scaled by a part's share of the instances; operations are
// unknown.
class PortWork final : public WorkModel {
 public:
  explicit PortWork(const graph::FlatGraph& flat) : flat_(flat) {}
  Work Of(graph::FlatNodeId node, uint32_t choice, const Box& box) const override;

 private:
  const graph::FlatGraph& flat_;  // Borrowed.
};

// Answers must not change during a placement. Thread-safe.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // Time of a launch with all of the device, its data being present.
  virtual Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const = 0;
  // Time to move `bytes` between two different spaces.
  virtual Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const = 0;
  // Speed at which the host moves all transfers together to and from devices with copy lanes; 0: as fast as their
  // links.
  virtual double HostCopyBytesPerSecond() const { return 0; }
};

// Roofline prediction of a launch: its start, plus the larger of its bytes over the memory's speed and its operations
// over the arithmetic speed (Williams, Waterman, Patterson: Roofline, CACM 2009). When operations were not counted,
// each instance is assumed to take a typical time on one compute unit; this is a guess, as it may loop once or a
// million times. Finite and not negative.
struct Roofline {
  double launch_ns = 0, body_ns = 0;
};
Roofline RooflineOf(const Work& work, const DeviceFacts& device);

// The roofline from the devices' facts alone, used until there is history.
class StaticCosts final : public CostModel {
 public:
  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_COST_COST_MODEL_H_
