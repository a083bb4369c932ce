// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/timed_groups.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace hpvm::gpu {
namespace {

// Each submission's window is at another position: multiples of the golden ratio, modulo one, leave no gap for long,
// even when submissions of several lists alternate.
size_t NextWindow(size_t places) {
  static std::atomic<uint32_t> submissions{0};
  constexpr uint32_t kGoldenRatio = 0x9e3779b9u;
  const uint32_t place = submissions.fetch_add(1, std::memory_order_relaxed) * kGoldenRatio;
  return static_cast<size_t>(uint64_t{place} * places >> 32);
}

bool HasDifferentLaunches(const CommandList& list) {
  const DispatchCommand* first = nullptr;
  for (const Command& command : list.commands) {
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    if (dispatch != nullptr && first != nullptr && !AreAlike(*first, *dispatch)) {
      return true;
    }
    first = first == nullptr ? dispatch : first;
  }
  return false;
}

}  // namespace

bool AreAlike(const DispatchCommand& a, const DispatchCommand& b) {
  return a.executable == b.executable && a.extent == b.extent && a.group == b.group && a.first == b.first &&
         a.count == b.count;
}

size_t CountLaunches(const CommandList* commands) {
  return commands == nullptr
             ? 0
             : static_cast<size_t>(std::ranges::count_if(commands->commands, [](const Command& command) {
                 return std::holds_alternative<DispatchCommand>(command);
               }));
}

TimedGroups::TimedGroups(const CommandList* commands, size_t length)
    : length_(length), launches_(CountLaunches(commands)) {
  if (length_ > 1 && commands != nullptr && HasDifferentLaunches(*commands)) {
    // The window may extend past an end, so that every launch is covered equally often.
    const size_t last = NextWindow(launches_ + kSampled - 1);
    sampled_begin_ = std::max(last, kSampled - 1) - (kSampled - 1);
    sampled_end_ = std::min(last + 1, launches_);
  }
}

bool TimedGroups::Ends(size_t index) const {
  if (index + 1 >= launches_ || IsSampled(index) || IsSampled(index + 1)) {
    return true;
  }
  const size_t first = index < sampled_begin_ ? 0 : sampled_end_;
  return (index - first + 1) % length_ == 0;
}

}  // namespace hpvm::gpu
