// SPDX-License-Identifier: Apache-2.0
// JobHistory holds the last changes of one tenant's jobs, for WatchJobs. It does no I/O.
//
// Each change has a number, which grows for as long as the tenant exists. Changes are numbered only while the history
// is kept; a time in which it was not kept is a gap that no cursor reaches across.
#ifndef HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_
#define HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

// Guarded by the core's mutex. Changes are shared, because readers copy them after they have released the mutex.
class JobHistory {
 public:
  struct Entry {
    uint64_t number = 0;
    // State that was reported before; unspecified: the job is new, or removed.
    v1::JobState before = v1::JOB_STATE_UNSPECIFIED;
    std::shared_ptr<const v1::JobChange> change;
    size_t bytes = 0;  // Memory of the entry, in bytes.
  };

  bool is_kept() const { return is_kept_; }
  // Begins to keep changes.
  void Keep();
  // Stops keeping changes and returns the entries so far, which the caller destroys without holding the mutex.
  std::deque<Entry> Forget();

  // Returns the number of the change that is added next.
  uint64_t next_number() const { return last_number_ + 1; }
  uint64_t last_number() const { return last_number_; }
  // Adds a change; the history must be kept. Drops the oldest entries, and this one if necessary, until at most
  // `bytes_max` bytes are left.
  void Add(v1::JobChange change, v1::JobState before, uint64_t bytes_max);

  // Returns true when every change after `number` is still held.
  bool ReachesBackTo(uint64_t number) const { return is_kept_ && number >= forgotten_ && number <= last_number_; }
  // Returns the first entry after `number`, to which ReachesBackTo must apply; null when there is none.
  const Entry* After(uint64_t number) const;

  size_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  bool is_kept_ = false;
  uint64_t last_number_ = 0;
  uint64_t forgotten_ = 0;     // Number of the last change that is no longer held.
  std::deque<Entry> entries_;  // The entries with the numbers forgotten_ + 1 to last_number_.
  size_t bytes_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_
