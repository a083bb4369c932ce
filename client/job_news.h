// SPDX-License-Identifier: Apache-2.0
// Remembers the news that a watch of jobs was told, so that nothing is told twice when it begins again. Pure.
#ifndef HPVMD_CLIENT_JOB_NEWS_H_
#define HPVMD_CLIENT_JOB_NEWS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "hpvm/v1/job.pb.h"

namespace hpvm {

// Some 100 bytes for each job that was told and is still stored. Not thread-safe.
class JobNews {
 public:
  // False: no more is wanted.
  using Tell = std::function<bool(const v1::JobChange&)>;

  // Tells what is new in `response`: of a list when it has ended, the oldest job first, and then what is gone. False
  // when `tell` said so; then this is of no use any more.
  bool Take(v1::WatchJobsResponse& response, const Tell& tell);
  // Where the watch goes on; empty: at its beginning.
  const std::string& cursor() const { return cursor_; }
  // The server does not take it.
  void DropCursor() { cursor_.clear(); }
  // The first list was told.
  bool is_listed() const { return is_listed_; }

 private:
  // Of a job, as it was told last.
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
  std::unordered_map<std::string, Told> told_;  // By id.
  std::vector<v1::JobChange> list_;             // As far as it has come, newest first.
  bool is_listing_ = false, is_listed_ = false;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_JOB_NEWS_H_
