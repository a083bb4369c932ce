// SPDX-License-Identifier: Apache-2.0
// Watches of a tenant's jobs: a list, then every change.
//
// A watch is behind its last change by number. While the tenant's history reaches back to there it goes on; else it
// begins again with a list. So a watch has no memory that grows: a slow reader is told of the list instead of what it
// missed, and a tenant's flood costs nobody but that tenant's own slow readers.
//
// A cursor holds the daemon's incarnation, the number, and where the first list ended (JobWatch::Place::end), which a
// later list does not go beyond: jobs further back had ended before, and were not told.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_reader.h"
#include "server/core/rooms/watchers.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class JobWatch : private CoreRoom {
 public:
  // One call's; its threads take turns.
  struct Place {
    TenantRef tenant;
    v1::WatchJobsRequest request;
    Watchers::Place watcher;
    bool is_new = true;        // Nothing was told yet.
    uint64_t number = 0;       // All changes up to it were told, or are in the list.
    uint64_t told_number = 0;  // By a cursor.
    std::string end;           // Jobs from that page on are in no list; empty: all are.
    // A list that is being made:
    bool is_listing = false;
    std::string reason;        // Why, if the watch had begun before.
    uint64_t list_number = 0;  // Later changes follow the list.
    uint64_t listed = 0;
    v1::ListJobsRequest page_request;
    v1::ListJobsResponse page;
    JobReader::Steps steps;  // Of the page; none: it is to be begun.
  };
  enum class Found : uint8_t {
    kAnswer,
    kMore,     // Nothing yet; another step is to follow, in the tenant's turn.
    kNothing,  // Until `wake`.
  };

  JobWatch(CoreContext& context, Watchers& watchers, const JobTable& table, JobReader& reader)
      : CoreRoom(context), watchers_(watchers), table_(table), reader_(reader) {}

  // --- For clients; these lock the mutex ---
  // Each has to be closed. kInvalidArgument for a cursor that is none; what Watchers::Add says.
  StatusOr<std::unique_ptr<Place>> Open(const TenantRef& tenant, const v1::WatchJobsRequest& request,
                                        Watchers::Wake wake);
  void Close(const Place& place);
  // What is new, or some of the work for it: for the tenant's turn. At most 64 KiB and a job.
  StatusOr<Found> Next(Place& place, v1::WatchJobsResponse* response);

 private:
  uint64_t Incarnation() const;
  Status ReadCursor(Place& place) const;
  std::string CursorOf(const Place& place) const;
  void BeginList(Place& place, std::string reason);
  StatusOr<Found> NextOfList(Place& place, v1::WatchJobsResponse* response);
  StatusOr<bool> EndsList(Place& place);
  Found NextChanges(Place& place, v1::WatchJobsResponse* response);

  Watchers& watchers_;
  const JobTable& table_;
  JobReader& reader_;
  const uint64_t started_ = static_cast<uint64_t>(options_.clock->WallNs());
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_WATCH_H_
