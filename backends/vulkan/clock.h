// SPDX-License-Identifier: Apache-2.0
// When the dispatches of one submission ran, by the device's timestamps: each dispatch by itself in short submissions,
// stretches of several in long ones (backends/gpu/timed_groups.h), whose time is then divided evenly. A timestamp costs
// about as much as a small dispatch, and keeps what is before it from overlapping with what is behind.
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
  // Stretches that a submission's dispatches are divided into, at most.
  static constexpr uint32_t kStretchesMax = 64;

  // `queries`: null where there are no timestamps, and then nothing is timed. `list`: what will come; may be null.
  Clock(Context& context, VkQueryPool queries, uint32_t count, const CommandList* list);

  // Around each dispatch, in order; `dispatch` stays where it is until End. `alone`: it is to be timed by itself; the
  // result says whether it is.
  bool Before(VkCommandBuffer commands, const DispatchCommand& dispatch, bool alone);
  void After(VkCommandBuffer commands);
  // Another command than a dispatch is written: the next stretch begins with a timestamp of its own.
  void Interrupt() { is_adjacent_ = false; }
  // Ends the stretch that is open.
  void End(VkCommandBuffer commands);
  bool is_timing() const { return queries_ != VK_NULL_HANDLE && count_ != 0; }

  // After the device is done: by node, and how long the dispatches timed alone took, in order.
  Status Read(std::span<NodeTiming> timings, std::vector<int64_t>* alone_ns);

 private:
  struct Stretch {
    uint32_t begin = 0, end = 0;  // Queries.
    std::vector<uint32_t> nodes;
    bool alone = false;
    const DispatchCommand* like = nullptr;  // The first of them.
    bool is_mixed = false;                  // Others are different.
  };
  uint32_t Mark(VkCommandBuffer commands);

  Context& context_;
  const VkQueryPool queries_;
  const uint32_t count_;
  const gpu::TimedGroups groups_;
  size_t place_ = 0;  // Of the dispatch, among all.
  bool has_begun_ = false, is_open_ = false, is_adjacent_ = false;
  uint32_t next_ = 0;
  std::vector<Stretch> stretches_;
};

}  // namespace hpvm::vulkan

#endif  // HPVMD_BACKENDS_VULKAN_CLOCK_H_
