// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/clock.h"

#include <algorithm>

namespace hpvm::vulkan {

Clock::Clock(Context& context, VkQueryPool queries, uint32_t count, const CommandList* list)
    : context_(context),
      queries_(queries),
      count_(count),
      groups_(list, std::max<size_t>(1, (gpu::CountLaunches(list) + kStretchesMax - 1) / kStretchesMax)) {}

uint32_t Clock::Mark(VkCommandBuffer commands) {
  if (!has_begun_) {
    context_.vk().CmdResetQueryPool(commands, queries_, 0, count_);
    has_begun_ = true;
  }
  context_.vk().CmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, queries_, next_);
  return next_++;
}

bool Clock::Before(VkCommandBuffer commands, const DispatchCommand& dispatch, bool alone) {
  if (!is_timing()) {
    return false;
  }
  const size_t place = place_++;
  if (alone || groups_.Begins(place)) {
    End(commands);
  }
  if (!is_open_) {
    if (next_ + 2 > count_) {  // Its two timestamps.
      return false;
    }
    Stretch stretch;
    stretch.alone = alone;
    stretch.like = &dispatch;
    stretch.begin = is_adjacent_ ? stretches_.back().end : Mark(commands);
    stretches_.push_back(std::move(stretch));
    is_open_ = true;
  }
  stretches_.back().nodes.push_back(dispatch.node);
  stretches_.back().is_mixed |= !gpu::AreAlike(*stretches_.back().like, dispatch);
  return alone;
}

void Clock::After(VkCommandBuffer commands) {
  if (is_open_ && (stretches_.back().alone || groups_.Ends(place_ - 1))) {
    End(commands);
  }
}

void Clock::End(VkCommandBuffer commands) {
  if (is_open_) {
    is_open_ = false;
    is_adjacent_ = true;
    stretches_.back().end = Mark(commands);
  }
}

Status Clock::Read(std::span<NodeTiming> timings, std::vector<int64_t>* alone_ns) {
  if (next_ == 0) {
    return absl::OkStatus();
  }
  std::vector<uint64_t> ticks(next_);
  HPVMD_RETURN_IF_ERROR(
      context_.Check(context_.vk().GetQueryPoolResults(context_.device(), queries_, 0, next_,
                                                       ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
                                                       VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT),
                     "Reading timestamps"));
  const uint32_t bits = context_.physical().timestamp_bits;
  const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  const double period_ns = context_.limits().timestampPeriod;
  const auto to_ns = [&](uint32_t query) {
    // Clocks that count nanoseconds from 1970 need more bits than a double has.
    return static_cast<int64_t>(static_cast<long double>(ticks[query] & mask) * period_ns);
  };
  for (const Stretch& stretch : stretches_) {
    const int64_t begin = to_ns(stretch.begin);
    const int64_t took = std::max<int64_t>(0, to_ns(stretch.end) - begin);
    const int64_t count = static_cast<int64_t>(stretch.nodes.size());
    for (int64_t i = 0; i < count; ++i) {
      if (stretch.nodes[i] < timings.size()) {
        NodeTiming& timing = timings[stretch.nodes[i]];
        timing.start_ns = begin + took * i / count;
        timing.end_ns = begin + took * (i + 1) / count;
        timing.is_shared = stretch.is_mixed;
      }
    }
    if (stretch.alone) {
      alone_ns->push_back(took);
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::vulkan
