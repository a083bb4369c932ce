// SPDX-License-Identifier: Apache-2.0
// How long launches and transfers take: an estimate from facts at first (roofline), then what was measured.
//
// CostModel is what placement asks. StaticCosts answers from the devices' facts alone; MeasuredCosts
// (scheduler/cost/cost_history.h) from history where there is one.
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
  double bytes_per_second = 0;       // Of its memory; 0: unknown.
  double operations_per_second = 0;  // 0: unknown.
  double launch_ns = 0;              // 0: unknown.
  // Launches of different nodes that run at once, each on a share of its units; 1: one after another. The processor:
  // its threads. A launch that is long enough to be shared has all of them.
  uint32_t lanes = 1;
  uint32_t silicon = 0;  // Devices with the same number are the same hardware: what runs on one slows the others.
  bool has_copy_lanes = false;  // Transfers run beside launches.
};

// One launch, or a part of one, by one candidate.
struct Work {
  graph::NodeId leaf;
  uint32_t choice = 0;  // In the candidates of the leaf.
  uint64_t instances = 0;
  uint64_t bytes = 0;     // Of its ports' tensors, each once: what it reads and writes, about.
  double operations = 0;  // Counted on the kernel's code; 0: unknown.
};

struct Cost {
  Duration time{0};
  bool is_estimate = true;  // Nothing like it was measured yet.
  bool is_guess = false;    // Nothing at all of its kernel was measured there: it may be off by a factor of ten.
  friend bool operator==(const Cost&, const Cost&) = default;
};

// How much work a launch, or a part of one, is. Answers must not change while a placement is made. Any thread.
class WorkModel {
 public:
  virtual ~WorkModel() = default;
  virtual Work Of(graph::FlatNodeId node, uint32_t choice, const Box& box) const = 0;
};

// From the graph alone: the bytes of its ports' tensors, of a part as many as its share of the instances; operations
// unknown.
class PortWork final : public WorkModel {
 public:
  explicit PortWork(const graph::FlatGraph& flat) : flat_(flat) {}
  Work Of(graph::FlatNodeId node, uint32_t choice, const Box& box) const override;

 private:
  const graph::FlatGraph& flat_;  // Borrowed.
};

// Answers must not change while a placement is made. Any thread.
class CostModel {
 public:
  virtual ~CostModel() = default;
  // How long a launch takes there with all of the device, its data being there.
  virtual Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const = 0;
  // How long `bytes` take between two different spaces.
  virtual Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const = 0;
  // What the host moves for all transfers together that go to devices with copy lanes or come from them; 0: as much as
  // their links carry.
  virtual double HostCopyBytesPerSecond() const { return 0; }
};

// What the facts say of a launch: its start, and the larger of what its bytes take at the memory's speed and what its
// operations take at the arithmetic's (Williams, Waterman, Patterson: Roofline, CACM 2009). Where operations were not
// counted, an instance takes what a typical one does, on one compute unit each: a guess, it may loop once or a million
// times. Finite and not negative.
struct Roofline {
  double launch_ns = 0, body_ns = 0;
};
Roofline RooflineOf(const Work& work, const DeviceFacts& device);

// From the devices' facts alone, what is used until there is history: the roofline.
class StaticCosts final : public CostModel {
 public:
  Cost Run(const Work& work, DeviceIndex index, const DeviceFacts& device) const override;
  Duration Transfer(uint64_t bytes, SpaceIndex from, SpaceIndex to) const override;
};

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_COST_COST_MODEL_H_
