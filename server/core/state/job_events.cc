// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/job_events.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hpvm::server {

void JobEvents::Add(v1::JobEvent event, int64_t now_unix_ns) {
  event.set_sequence(next_sequence_++);
  event.set_time_unix_ns(now_unix_ns);
  if (event.has_log()) {
    log_bytes_ += event.ByteSizeLong();
    logs_.push_back(std::move(event));
    while (logs_.size() > 1 && (log_bytes_ > kLiveLogBytesKeptMax || logs_.size() > kLiveLogsKeptMax)) {
      log_bytes_ -= logs_.front().ByteSizeLong();
      logs_.pop_front();
    }
    return;
  }
  const bool placement = event.has_placement();
  std::deque<v1::JobEvent>& into = placement ? placements_ : others_;
  into.push_back(std::move(event));
  if (into.size() > (placement ? kPlacementsKeptMax : kOtherEventsKeptMax)) {
    into.pop_front();
  }
}

void JobEvents::DropLogs() {
  logs_.clear();
  log_bytes_ = 0;
}

std::vector<v1::JobEvent> JobEvents::After(uint64_t sequence, size_t count_max) const {
  const std::deque<v1::JobEvent>* const kinds[] = {&placements_, &others_, &logs_};
  std::deque<v1::JobEvent>::const_iterator next[std::size(kinds)];
  for (size_t i = 0; i < std::size(kinds); ++i) {
    next[i] = std::partition_point(kinds[i]->begin(), kinds[i]->end(),
                                   [&](const v1::JobEvent& e) { return e.sequence() <= sequence; });
  }
  std::vector<v1::JobEvent> found;
  while (found.size() < count_max) {
    size_t first = std::size(kinds);
    for (size_t i = 0; i < std::size(kinds); ++i) {
      if (next[i] != kinds[i]->end() && (first == std::size(kinds) || next[i]->sequence() < next[first]->sequence())) {
        first = i;
      }
    }
    if (first == std::size(kinds)) {
      break;
    }
    found.push_back(*next[first]++);
  }
  return found;
}

uint64_t JobEvents::Watch(Wake wake) {
  watchers_.emplace(next_watcher_, std::move(wake));
  return next_watcher_++;
}

}  // namespace hpvm::server
