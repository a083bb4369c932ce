// SPDX-License-Identifier: Apache-2.0
// JobSubmitter turns a request into a job on disk: checks it, has the executor validate the graph, makes its parts
// durable, and then its row.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_SUBMITTER_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_SUBMITTER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_reader.h"
#include "server/core/jobs/job_table.h"
#include "server/core/jobs/submission.h"
#include "server/core/jobs/submit_batch.h"
#include "server/core/rooms/graphs.h"
#include "server/core/rooms/quotas.h"
#include "server/core/rooms/runs.h"
#include "server/core/state/core_context.h"
#include "server/jobs/unit_reader.h"

namespace hpvm::server {

class JobSubmitter : private CoreRoom {
 public:
  using Done = std::function<void(const Outcome&)>;
  JobSubmitter(CoreContext& context, Quotas& quotas, Graphs& graphs, Runs& runs, JobTable& table, JobFeed& feed,
               JobLifecycle& lifecycle, JobReader& reader)
      : CoreRoom(context),
        quotas_(quotas),
        graphs_(graphs),
        runs_(runs),
        table_(table),
        feed_(feed),
        lifecycle_(lifecycle),
        reader_(reader) {}

  // --- For clients; these lock the mutex ---
  // Borrows requests and responses until `done`, which is called once, perhaps before these return, and never before
  // the data that it acknowledges is on disk. Reads the store on the caller's thread: for the job of a known key, and
  // for a job that is retried. `who` is the submitter's name as in the audit, and the holder of a job that is
  // submitted held.
  void Submit(const TenantRef& tenant, const v1::SubmitRequest& request, v1::SubmitResponse* response, Done done,
              std::string who = "its submitter");
  void RetryJob(const TenantRef& tenant, const v1::RetryJobRequest& request, v1::SubmitResponse* response, Done done);
  // Does the work of as many Submits, in the tenant's turns, so that it may be called on threads that must not wait
  // for the store.
  void SubmitMany(const TenantRef& tenant, const v1::SubmitManyRequest& request, v1::SubmitManyResponse* response,
                  Done done, std::string who = "its submitter");

 private:
  using SubmissionRef = std::shared_ptr<Submission>;
  // An incoming request.
  struct Entry {
    TenantRef tenant;
    const v1::SubmitRequest* request = nullptr;  // Borrowed from the caller until `done`, as is the response.
    v1::SubmitResponse* response = nullptr;
    Done done;
    std::shared_ptr<SubmitBatch> batch;  // The batch with whose rows its own are written; null: none.
    std::string who;
    bool is_brief = false;
    uint64_t count = 1;  // Number of jobs.
    std::optional<KeyRecord> known;
  };
  void Submit(Entry entry);
  Outcome Examine(Entry& entry);
  bool Enter(CoreScope& scope, Entry entry);
  bool SubmitSome(const TenantRef& tenant, const std::shared_ptr<SubmitBatch>& batch, const std::string& who);
  using Waits = JobTable::Waits;
  Outcome StoreRefusal(const Status& status) const;
  Outcome AdmitJobs(Tenant& tenant, uint64_t count, scheduler::Lease* queued);
  bool JoinPending(Tenant& tenant, const std::string& key, std::function<void()> again);
  void BeginSubmission(CoreScope& scope, const SubmissionRef& submission);
  StatusOr<PreparationRef> PreparationOf(CoreScope& scope, Tenant& tenant, const v1::SubmitRequest& request);
  Status Accept(CoreScope& scope, const SubmissionRef& submission);
  Status Normalise(Submission& submission);
  static void StoreGraph(Submission& submission);
  static void StoreInputs(Submission& submission, const Execution& run);
  void FillRow(Submission& submission, const Execution& run);
  void Put(CoreScope& scope, const SubmissionRef& submission);
  Status PrepareRetry(Submission& submission, const v1::RetryJobRequest& request);
  Status PinBlobs(Submission& submission, const StoredJob& from);
  void OnBlobs(const SubmissionRef& submission, StatusOr<std::vector<PinnedBlob>> blobs);
  void SettleDependencies(const SubmissionRef& submission);
  FairQueue::Step ReadUnits(const SubmissionRef& submission, UnitReader& reader);
  void Insert(CoreScope& scope, const SubmissionRef& submission);
  bool MakeRows(const SubmissionRef& submission, const v1::JobArray* array, int64_t now);
  void OnInserted(const SubmissionRef& submission, const WriteResult& result);
  void AnswerShared(CoreScope& scope, const SubmissionRef& submission);
  bool JoinJobs(CoreScope& scope, const SubmissionRef& submission, const std::vector<uint64_t>& sequences);
  void EndInserting(Submission& submission);
  void AnswerKnown(const SubmissionRef& submission, const KeyRecord& known);
  FairQueue::Step AddElements(const SubmissionRef& submission, const KeyRecord& known, JobFilter* filter);
  void AnswerExisting(const SubmissionRef& submission, const KeyRecord& known);
  void Answer(CoreScope& scope, const SubmissionRef& submission, Outcome outcome);

  Quotas& quotas_;
  Graphs& graphs_;
  Runs& runs_;
  JobTable& table_;
  JobFeed& feed_;
  JobLifecycle& lifecycle_;
  JobReader& reader_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_SUBMITTER_H_
