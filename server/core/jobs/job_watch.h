// SPDX-License-Identifier: Apache-2.0
// JobWatch serves watches of a tenant's jobs: a list, then every change.
//
// A watch stands at the number of the last change that it reported. While the tenant's history reaches back to that
// number, the watch continues; otherwise it begins again with a list. So a watch needs no memory that grows: a slow
// reader gets the list instead of the changes that it missed, and a burst of changes in one tenant affects only that
// tenant's own slow readers.
//
// A cursor holds the daemon's incarnation, the number, and the end of the first list (WatchState::end), which a later
// list does not exceed: jobs beyond it had ended before, and were not reported.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_reader.h"
#include "server/core/rooms/watchers.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class JobWatch : private CoreRoom {
 public:
  // The state of one call, whose threads take turns.
  struct WatchState {
    TenantRef tenant;
    v1::WatchJobsRequest request;
    Watchers::Registration watcher;
    bool is_new = true;        // No answer was given yet.
    uint64_t number = 0;       // All changes up to this number were reported, or are in the list.
    uint64_t told_number = 0;  // Number in the last cursor.
    std::string end;           // Lists end before this page; empty: they have all jobs.
    // A list in progress:
    bool is_listing = false;
    std::string reason;        // Why the list was begun, if the watch had begun before.
    uint64_t list_number = 0;  // Changes after this number follow the list.
    uint64_t listed = 0;
    v1::ListJobsRequest page_request;
    v1::ListJobsResponse page;
    JobReader::Steps steps;  // Reads the page; null: the page has not been begun.
  };
  enum class Found : uint8_t {
    kAnswer,
    kMore,     // No answer yet; another step must follow, in the tenant's turn.
    kNothing,  // No answer until `wake`.
  };

  JobWatch(CoreContext& context, Watchers& watchers, const JobTable& table, JobFeed& feed, JobReader& reader)
      : CoreRoom(context), watchers_(watchers), table_(table), feed_(feed), reader_(reader) {}

  // --- For clients; these lock the mutex ---
  // Every state must be closed. Returns kInvalidArgument for an invalid cursor, and the errors of Watchers::Add.
  StatusOr<std::unique_ptr<WatchState>> Open(const TenantRef& tenant, const v1::WatchJobsRequest& request,
                                             Watchers::Wake wake);
  void Close(const WatchState& place);
  // Returns the next changes, or does a part of the work for them; called in the tenant's turn. An answer has at most
  // 64 KiB and one job.
  StatusOr<Found> Next(WatchState& place, v1::WatchJobsResponse* response);

 private:
  uint64_t Incarnation() const;
  Status ReadCursor(WatchState& place) const;
  std::string CursorOf(const WatchState& place) const;
  void BeginList(WatchState& place, std::string reason);
  StatusOr<Found> NextOfList(WatchState& place, v1::WatchJobsResponse* response);
  StatusOr<bool> EndsList(WatchState& place);
  Found NextChanges(WatchState& place, v1::WatchJobsResponse* response);

  Watchers& watchers_;
  const JobTable& table_;
  JobFeed& feed_;
  JobReader& reader_;
  const uint64_t started_ = static_cast<uint64_t>(options_.clock->WallNs());
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_
