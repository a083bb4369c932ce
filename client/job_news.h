// SPDX-License-Identifier: Apache-2.0
// JobNews remembers what a watch of jobs has reported, so that a restarted watch reports nothing twice. Pure.
#ifndef HPVMD_CLIENT_JOB_NEWS_H_
#define HPVMD_CLIENT_JOB_NEWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm {

// Takes some 100 bytes per reported job that is still stored. Not thread-safe.
class JobNews {
 public:
  // Returns false to end the watch.
  using Tell = std::function<bool(const v1::JobChange&)>;

  // Reports the news in `response`: those of a list once it is complete, the oldest job first, then the jobs that are
  // gone. Returns false when `tell` did; the object must not be used afterwards.
  bool Take(v1::WatchJobsResponse& response, const Tell& tell);
  // Cursor where the watch resumes; empty for its beginning.
  const std::string& cursor() const { return cursor_; }
  // Called when the server does not accept the cursor.
  void DropCursor() { cursor_.clear(); }
  // Returns true once the first list has been reported.
  bool is_listed() const { return is_listed_; }

 private:
  // State of a job as last reported.
  struct Told {
    uint64_t change = 0;
    v1::JobState state = v1::JOB_STATE_UNSPECIFIED;
    uint32_t attempt = 0;
    bool cancel_requested = false;
    bool awaits_room = false;
  };
  static Told Of(const v1::Job& job);
  static bool LookAlike(const Told& one, const Told& other);
  bool TakeChange(const v1::JobChange& change, const Tell& tell);
  bool TakeList(const Tell& tell);

  std::string cursor_;
  std::unordered_map<std::string, Told> told_;  // Keyed by job id.
  std::vector<v1::JobChange> list_;             // The list as far as it has been received, newest first.
  bool is_listing_ = false, is_listed_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_JOB_NEWS_H_
