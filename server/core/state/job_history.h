// SPDX-License-Identifier: Apache-2.0
// The last changes of one tenant's jobs, for WatchJobs. Pure.
//
// Each change has a number, which grows for as long as the tenant is there. Changes are counted while the history is
// kept; whatever happens between two times is a gap that no cursor reaches across.
#ifndef HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_
#define HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "hpvm/v1/job.pb.h"

namespace hpvm::server {

// Guarded by the core's mutex. What it lends is shared, because readers copy it when they have let go of the mutex.
class JobHistory {
 public:
  struct Entry {
    uint64_t number = 0;
    // As it was told before; unspecified: it is new, or gone.
    v1::JobState before = v1::JOB_STATE_UNSPECIFIED;
    std::shared_ptr<const v1::JobChange> change;
    size_t bytes = 0;  // Of memory.
  };

  bool is_kept() const { return is_kept_; }
  // Changes are kept from now on.
  void Keep();
  // Nor is what there was: it is the caller's to destroy, without the mutex.
  std::deque<Entry> Forget();

  // The number of the change that is added next.
  uint64_t next_number() const { return last_number_ + 1; }
  uint64_t last_number() const { return last_number_; }
  // Only while it is kept. The oldest go until no more than `bytes_max` are left, perhaps with this one.
  void Add(v1::JobChange change, v1::JobState before, uint64_t bytes_max);

  // Whether all that came after that number is here.
  bool ReachesBackTo(uint64_t number) const { return is_kept_ && number >= forgotten_ && number <= last_number_; }
  // The first entry behind a number that it reaches back to; null: there is none.
  const Entry* After(uint64_t number) const;

  size_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }

 private:
  bool is_kept_ = false;
  uint64_t last_number_ = 0;
  uint64_t forgotten_ = 0;     // The last number that is not here any more.
  std::deque<Entry> entries_;  // Of the numbers forgotten_ + 1 to last_number_.
  size_t bytes_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_JOB_HISTORY_H_
