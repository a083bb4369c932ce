// SPDX-License-Identifier: Apache-2.0
// What placement hands to memory planning: launches, or parts of launches, with a device each, in an order.
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

// Why a long launch that several devices could run was not split over them.
enum class Whole : uint8_t { kNotAsked, kSizeUnknown, kBytesUnknown, kPartsMeet, kNotMeasured, kNoGain };
// For people: "its parts would write bytes of each other". Empty for kNotAsked.
std::string_view Name(Whole why);

// A launch, or a part of one.
struct Task {
  graph::FlatNodeId node;
  uint32_t choice = 0;     // Index in the candidates of the node's leaf.
  DeviceIndex device = 0;  // That candidate's.
  Box box;                 // Of a whole launch: everything.
  bool is_part = false;    // Other tasks run the rest of the node's instances; they stand side by side in the order.
  // As planned, from the run's start.
  Duration start{0}, end{0};
  bool is_estimate = false;  // The time it takes was never measured.
  bool is_guess = false;     // Nothing at all of its kernel was measured there (Cost::is_guess).
  Whole whole = Whole::kNotAsked;
};

// What a task does to the buffer of one port. Hulls: outside of them it touches nothing.
struct PortAccess {
  ByteRange read, written;
  bool overwrites = false;  // All of `written` is stored to, and none of it is read before.
};

// Which bytes tasks touch. Answers must not change while a plan is made.
class AccessModel {
 public:
  virtual ~AccessModel() = default;
  // Of port `port` (an index in FlatGraph::ports) when the node's box runs by that candidate. What is not understood is
  // the whole buffer, for every direction of the port's access.
  virtual PortAccess Of(graph::FlatNodeId node, uint32_t choice, const Box& box, uint32_t port) const = 0;
  // Whether parts of the launch may run by these candidates: on dimension `dimension` in multiples of `*grain`
  // instances. That the parts' written ranges are apart is for the caller to check (SplitIsSafe).
  virtual bool MayCut(graph::FlatNodeId node, uint32_t choice, uint32_t* dimension, uint64_t* grain) const = 0;
};

// Every access is the whole buffer and nothing may be cut. `out` ports whose FlatPort::in is invalid are not read.
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

// Whether what each part writes is apart from what every other part reads or writes, for every port of the node.
bool SplitIsSafe(const graph::FlatGraph& flat, const AccessModel& accesses, const std::vector<Task>& parts);

}  // namespace hpvm::scheduler

#endif  // HPVMD_SCHEDULER_TASK_H_
