// SPDX-License-Identifier: Apache-2.0
// Reading jobs: what is on disk, and over it what the core knows of those that have not ended.
//
// The store is read without the mutex. A job that the core has is shown as the core has it, so that nobody sees an end
// before it was announced, or a job go back to an earlier state.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_READER_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_READER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_table.h"
#include "server/core/state/core_context.h"
#include "server/core/state/job_events.h"
#include "server/core/state/page_token.h"

namespace hpvm::server {

class JobReader : private CoreRoom {
 public:
  // Each call does some of the work, without waiting for more than a short read; true: it is done.
  using Steps = std::function<StatusOr<bool>()>;
  struct EventBatch {
    std::vector<v1::JobEvent> events;
    bool last = false;  // The job has ended and these are all.
  };
  // The bytes of one output of a succeeded job.
  struct StoredBytes {
    v1::StoredOutput header;
    std::string inline_bytes;
    std::unique_ptr<DiskFile> file;  // Instead; header.size_bytes long.
  };
  JobReader(CoreContext& context, Watchers& watchers, JobTable& table, JobFeed& feed)
      : CoreRoom(context), watchers_(watchers), table_(table), feed_(feed) {}

  // --- For clients; these lock the mutex ---
  // Whether WatchJob and ReadEvents need not ask the store: the job has not ended, or did so a moment ago.
  bool IsAtHand(Tenant& tenant, std::string_view id);
  // The key is for Unwatch; 0 when there is nothing to wait for. kResourceExhausted at jobs.watchers_max, and
  // jobs.watchers_per_tenant_max.
  StatusOr<uint64_t> WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake);
  void Unwatch(Tenant& tenant, std::string_view id, uint64_t key);
  Status GetJob(Tenant& tenant, std::string_view id, v1::Job* job);
  Steps ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response) {
    return ListJobs(tenant, request, response, kPageBytesMax, "");
  }
  // With pages of no more than these bytes, or one job. `end`, when it is not empty, is a page token: the list ends
  // before what that page would begin with.
  Steps ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response,
                 size_t page_bytes_max, const std::string& end);
  // Whether ListJobs would take it, of that tenant; "" is one.
  bool IsPageToken(const Tenant& tenant, std::string_view token) const;
  // Whether a job has not ended that is older than those before that page.
  StatusOr<bool> HasLiveFrom(const Tenant& tenant, const std::string& page_token);
  // Of jobs that ended a while ago: one event, the job.
  StatusOr<EventBatch> ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max);
  StatusOr<StoredBytes> FindOutput(Tenant& tenant, std::string_view id, std::string_view name);

  // --- For other rooms, with the mutex ---
  // All who watch look again.
  void WakeAll(CoreScope& scope);
  // Of any job; without its log. Reads the store.
  StatusOr<v1::Job> FindJob(Tenant& tenant, std::string_view id);

 private:
  // Jobs with many labels and lost attempts are large: a page takes a thread that serves all a few milliseconds to
  // send.
  static constexpr size_t kPageBytesMax = 512 * limits::kKiB;
  struct JobList;  // job_list.cc
  bool PutOnPage(JobList& list, uint64_t sequence, v1::Job job);
  StatusOr<bool> ListStored(JobList& list);
  StatusOr<bool> ListLive(JobList& list);

  Watchers& watchers_;
  JobTable& table_;
  JobFeed& feed_;
  const PageTokens page_tokens_{options_.page_key};
  struct Watcher {
    std::shared_ptr<JobEvents> events;
    uint64_t key = 0;
    Tenant* tenant = nullptr;
  };
  std::map<uint64_t, Watcher> watching_;  // By the key of WatchJob.
  uint64_t next_watcher_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_READER_H_
