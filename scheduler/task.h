// SPDX-License-Identifier: Apache-2.0
// Input of memory planning from placement: launches, or parts of launches, each with a device, in an order.
#ifndef HPVMD_SCHEDULER_TASK_H_
#define HPVMD_SCHEDULER_TASK_H_

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "graph/flatten.h"

namespace hpvm::scheduler {

using DeviceIndex = uint32_t;
// Devices of one space read each other's buffers without a copy. Space 0 is host memory.
using SpaceIndex = uint32_t;
inline constexpr SpaceIndex kHostSpace = 0;

// Bytes [begin, end); empty when end <= begin.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  bool is_empty() const { return end <= begin; }
  uint64_t bytes() const { return is_empty() ? 0 : end - begin; }
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

// Instances [first, first + count) in each dimension.
struct Box {
  std::array<uint64_t, 3> first{0, 0, 0};
  std::array<uint64_t, 3> count{1, 1, 1};
  friend bool operator==(const Box&, const Box&) = default;
};

// Reasons why a long launch that several devices could run was not split over them.
enum class Whole : uint8_t { kNotAsked, kSizeUnknown, kBytesUnknown, kPartsMeet, kNotMeasured, kNoGain };
// Returns a text for people, such as "its parts would write bytes of each other"; empty for kNotAsked.
std::string_view Name(Whole why);

// A launch, or a part of one.
struct Task {
  graph::FlatNodeId node;
  uint32_t choice = 0;     // Index in the candidates of the node's leaf.
  DeviceIndex device = 0;  // The candidate's device.
  Box box;                 // For a whole launch, all instances.
  bool is_part = false;    // Other tasks run the rest of the node's instances; they are adjacent in the order.
  // Planned times, from the run's start.
  Duration start{0}, end{0};
  bool is_estimate = false;  // Its time was never measured.
  bool is_guess = false;     // Nothing of its kernel was measured on the device (Cost::is_guess).
  Whole whole = Whole::kNotAsked;
};

// Accesses of a task to the buffer of one port. The ranges are hulls: the task touches nothing outside them.
struct PortAccess {
  ByteRange read, written;
  bool overwrites = false;  // All of `written` is stored to, and none of it is read before.
};

// Tells which bytes tasks access. Answers must not change while a plan is made.
class AccessModel {
 public:
  virtual ~AccessModel() = default;
  // Returns the access to port `port` (an index in FlatGraph::ports) when the candidate runs the node's box. If the
  // access is not understood, the answer is the whole buffer, for every direction of the port's access.
  virtual PortAccess Of(graph::FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const = 0;
  // Returns true when these candidates may run parts of the launch, cut along `dimension` in multiples of `*grain`
  // instances. The caller has to check that the parts' written ranges are disjoint (SplitIsSafe).
  virtual bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const = 0;
};

// Every access is the whole buffer, and nothing may be cut. `out` ports whose FlatPort::in is invalid are not read.
class WholeBuffers final : public AccessModel {
 public:
  explicit WholeBuffers(const graph::FlatGraph& flat) : flat_(flat) {}
  PortAccess Of(graph::FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const override;
  bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const override {
    return false;
  }

 private:
  const graph::FlatGraph& flat_;  // Borrowed.
};

// Returns true when, for every port of the node, each part's writes are disjoint from all accesses of every other part.
bool SplitIsSafe(const graph::FlatGraph& flat, const AccessModel& accesses, const std::vector<Task>& parts);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TASK_H_
