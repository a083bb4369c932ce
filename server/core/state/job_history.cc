// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/job_history.h"

#include <utility>

#include "base/status.h"

namespace hpvm::server {

void JobHistory::Keep() {
  if (!is_kept_) {
    is_kept_ = true;
    forgotten_ = ++last_number_;  // Cursors from before the gap are smaller.
  }
}

std::deque<JobHistory::Entry> JobHistory::Forget() {
  is_kept_ = false;
  forgotten_ = last_number_;
  bytes_ = 0;
  return std::exchange(entries_, {});
}

void JobHistory::Add(v1::JobChange change, v1::JobState before, uint64_t bytes_max) {
  HPVMD_CHECK(is_kept_);
  Entry entry;
  entry.number = ++last_number_;
  entry.before = before;
  entry.bytes = sizeof(Entry) + change.SpaceUsedLong();
  entry.change = std::make_shared<const v1::JobChange>(std::move(change));
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
  while (bytes_ > bytes_max) {
    bytes_ -= entries_.front().bytes;
    forgotten_ = entries_.front().number;
    entries_.pop_front();
  }
}

const JobHistory::Entry* JobHistory::After(uint64_t number) const {
  const uint64_t at = number - forgotten_;
  return at < entries_.size() ? &entries_[at] : nullptr;
}

}  // namespace hpvm::server
