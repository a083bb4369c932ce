// SPDX-License-Identifier: Apache-2.0
// Clock records when the dispatches of one submission ran, by the device's timestamps: individually in short
// submissions, in stretches of several in long ones (backends/gpu/timed_groups.h), whose time is then divided evenly. A
// timestamp costs about as much as a small dispatch, and prevents commands before and after it from overlapping.
#ifndef HPVMD_BACKENDS_VULKAN_CLOCK_H_
#define HPVMD_BACKENDS_VULKAN_CLOCK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/timed_groups.h"
#include "backends/vulkan/context.h"

namespace hpvm::vulkan {

class Clock {
 public:
  // Maximum number of stretches into which a submission's dispatches are divided.
  static constexpr uint32_t kStretchesMax = 64;

  // `queries`: null when there are no timestamps, and then nothing is timed. `list`: the commands to come; may be null.
  Clock(Context& context, VkQueryPool queries, uint32_t count, const CommandList* list);

  // Call before and after each dispatch, in order; `dispatch` must stay valid until End. `alone` requests individual
  // timing; the result says whether the dispatch is timed individually.
  bool Before(VkCommandBuffer commands, const DispatchCommand& dispatch, bool alone);
  void After(VkCommandBuffer commands);
  // A command other than a dispatch is written: the next stretch begins with its own timestamp.
  void Interrupt() { is_adjacent_ = false; }
  // Ends the current stretch.
  void End(VkCommandBuffer commands);
  bool is_timing() const { return queries_ != VK_NULL_HANDLE && count_ != 0; }

  // Call after the device is done: returns times by node, and those of individually timed dispatches, in order.
  Status Read(std::span<NodeTiming> timings, std::vector<int64_t>* alone_ns);

 private:
  struct Stretch {
    uint32_t begin = 0, end = 0;  // Indices of queries.
    std::vector<uint32_t> nodes;
    bool alone = false;
    const DispatchCommand* like = nullptr;  // The first dispatch.
    bool is_mixed = false;                  // Some of the dispatches differ.
  };
  uint32_t Mark(VkCommandBuffer commands);

  Context& context_;
  const VkQueryPool queries_;
  const uint32_t count_;
  const gpu::TimedGroups groups_;
  size_t place_ = 0;  // Index of the dispatch among all.
  bool has_begun_ = false, is_open_ = false, is_adjacent_ = false;
  uint32_t next_ = 0;
  std::vector<Stretch> stretches_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_CLOCK_H_
