// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/job_events.h"

#include <algorithm>
#include <utility>

namespace hpvm::server {

void JobEvents::Add(v1::JobEvent event, int64_t now_unix_ns) {
  event.set_sequence(next_sequence_++);
  event.set_time_unix_ns(now_unix_ns);
  const bool placement = event.has_placement();
  std::deque<v1::JobEvent>& into = placement ? placements_ : others_;
  into.push_back(std::move(event));
  if (into.size() > (placement ? kPlacementsKeptMax : kOtherEventsKeptMax)) {
    into.pop_front();
  }
}

std::vector<v1::JobEvent> JobEvents::After(uint64_t sequence, size_t count_max) const {
  const auto first = [&](const std::deque<v1::JobEvent>& events) {
    return std::partition_point(events.begin(), events.end(),
                                [&](const v1::JobEvent& e) { return e.sequence() <= sequence; });
  };
  auto placement = first(placements_), other = first(others_);
  std::vector<v1::JobEvent> found;
  while (found.size() < count_max && (placement != placements_.end() || other != others_.end())) {
    const bool take_placement =
        other == others_.end() || (placement != placements_.end() && placement->sequence() < other->sequence());
    found.push_back(take_placement ? *placement++ : *other++);
  }
  return found;
}

uint64_t JobEvents::Watch(Wake wake) {
  watchers_.emplace(next_watcher_, std::move(wake));
  return next_watcher_++;
}

}  // namespace hpvm::server
