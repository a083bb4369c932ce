// SPDX-License-Identifier: Apache-2.0
// JobReader reads jobs: the rows on disk, overlaid with the core's state of those that have not ended.
//
// The store is read without the mutex. A job that the core has is shown as the core has it, so that no client sees an
// end before it was announced, or a job that goes back to an earlier state.
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
#include "server/core/rooms/tenants.h"
#include "server/core/state/core_context.h"
#include "server/core/state/job_events.h"
#include "server/core/state/page_token.h"

namespace hpvm::server {

class JobReader : private CoreRoom {
 public:
  // Each call does a part of the work, and waits for no more than a short read; returns true when all is done.
  using Steps = std::function<StatusOr<bool>()>;
  struct EventBatch {
    std::vector<v1::JobEvent> events;
    bool last = false;  // The job has ended, and there are no more events.
  };
  // The bytes of one output of a succeeded job.
  struct StoredBytes {
    v1::StoredOutput header;
    std::string inline_bytes;
    std::unique_ptr<DiskFile> file;  // Set instead of inline_bytes; header.size_bytes long.
  };
  JobReader(CoreContext& context, Tenants& tenants, Watchers& watchers, JobTable& table, JobFeed& feed)
      : CoreRoom(context), tenants_(tenants), watchers_(watchers), table_(table), feed_(feed) {}

  // --- For clients; these lock the mutex ---
  // Returns true when WatchJob and ReadEvents need not read the store: the job has not ended, or has ended a moment
  // ago.
  bool IsAtHand(Tenant& tenant, std::string_view id);
  // Returns the key for Unwatch; 0 when there is nothing to wait for; kResourceExhausted at jobs.watchers_max and
  // jobs.watchers_per_tenant_max. Sets `past`, when given, to the sequence of the last existing event, or to
  // UINT64_MAX when the job has ended: then all of its events are past.
  StatusOr<uint64_t> WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake, uint64_t* past = nullptr);
  void Unwatch(Tenant& tenant, std::string_view id, uint64_t key);
  Status GetJob(Tenant& tenant, std::string_view id, v1::Job* job, bool to_admin = false);
  // Lists the jobs of all tenants if the request asks for them; the caller checks the permission to do so.
  Steps ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response,
                 bool to_admin = false) {
    return ListJobs(tenant, request, response, kPageBytesMax, "", to_admin);
  }
  // Lists pages of at most `page_bytes_max` bytes, or one job. If `end` is not empty, it is a page token, and the list
  // ends before that page.
  Steps ListJobs(const TenantRef& tenant, const v1::ListJobsRequest& request, v1::ListJobsResponse* response,
                 size_t page_bytes_max, const std::string& end, bool to_admin = false);
  // Returns true when ListJobs would accept the token for that tenant; "" is valid.
  bool IsPageToken(const Tenant& tenant, std::string_view token) const;
  // Returns true when a job has not ended that is older than the jobs before that page.
  StatusOr<bool> HasLiveFrom(const Tenant& tenant, const std::string& page_token);
  // Returns only one event, the job itself, for a job that ended a while ago.
  StatusOr<EventBatch> ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max);
  // Returns the request of a job when `part` is empty, otherwise the part with that SHA-256, which the request's
  // header names.
  struct ExportedPart {
    v1::ExportJobResponse::Header header;
    std::string inline_bytes;
    std::unique_ptr<DiskFile> file;  // Set instead of inline_bytes; header.size_bytes long.
  };
  StatusOr<ExportedPart> Export(Tenant& tenant, std::string_view id, std::string_view part);
  StatusOr<StoredBytes> FindOutput(Tenant& tenant, std::string_view id, std::string_view name);

  // --- For other rooms; the caller holds the mutex ---
  // Wakes all watchers.
  void WakeAll(CoreScope& scope);
  // Returns any job, without its log. Reads the store; called without the mutex.
  StatusOr<v1::Job> FindJob(Tenant& tenant, std::string_view id, bool to_admin = false);

 private:
  // Jobs with many labels and lost attempts are large: a page occupies a thread that serves all tenants for the few
  // milliseconds of sending it.
  static constexpr size_t kPageBytesMax = 512 * limits::kKiB;
  struct JobList;  // job_list.cc
  uint64_t WatchEvents(Tenant& tenant, const std::shared_ptr<JobEvents>& events, JobEvents::Wake wake);
  Status StartPage(JobList& list);
  bool TakeNextTenant(JobList& list);
  bool PutOnPage(JobList& list, uint64_t sequence, v1::Job job);
  StatusOr<bool> ListStored(JobList& list);
  StatusOr<bool> ListLive(JobList& list);

  Tenants& tenants_;
  Watchers& watchers_;
  JobTable& table_;
  JobFeed& feed_;
  const PageTokens page_tokens_{options_.page_key};
  struct Watcher {
    std::shared_ptr<JobEvents> events;
    uint64_t key = 0;
    Tenant* tenant = nullptr;
  };
  std::map<uint64_t, Watcher> watching_;  // Keyed by the key of WatchJob.
  uint64_t next_watcher_ = 1;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_READER_H_
