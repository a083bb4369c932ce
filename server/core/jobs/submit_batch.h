// SPDX-License-Identifier: Apache-2.0
// SubmitBatch holds the jobs of one SubmitMany until its answer: the rows wait for each other, so that one commit has
// all of them, and the answer waits for each job.
//
// Each job is a submission of its own. A job that is refused, or waits for another request with its key, does not
// delay the others: otherwise two calls could wait for each other.
#ifndef HPVMD_SERVER_CORE_JOBS_SUBMIT_BATCH_H_
#define HPVMD_SERVER_CORE_JOBS_SUBMIT_BATCH_H_

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "hpvm/v1/many.pb.h"
#include "server/core/state/outcome.h"
#include "server/jobs/job_store.h"

namespace hpvm::server {

class SubmitBatch {
 public:
  using Done = std::function<void(const Outcome&)>;
  // Borrows request and response until `done`, which is called once, when each job is on disk or refused. The store is
  // borrowed and must outlive the batch.
  SubmitBatch(JobStore& store, const v1::SubmitManyRequest& request, v1::SubmitManyResponse* response, Done done);

  // Copies the fields of a job that the answer has: all jobs go into one message, however long their labels and notes
  // are.
  static void FillBrief(const v1::Job& job, v1::Job* brief);

  // A range of the next jobs, at most as many as one hold of the core's mutex may take. Take removes them from the
  // batch.
  struct Piece {
    int first = 0, count = 0;
  };
  Piece Take();
  bool has_more() const { return taken_ < count_; }
  const v1::SubmitRequest& request(int index) const { return request_.jobs(index); }
  // For jobs that have none of their own.
  const std::string& traceparent() const { return request_.options().traceparent(); }
  v1::SubmitResponse* response(int index) const { return response_->mutable_results(index); }

  // --- The caller holds the core's mutex ---
  // Adds the row of an accepted job.
  void Write(JobWrite write, JobStore::WriteDone done);
  // Reports that `count` jobs have no row, or write it by themselves.
  void GoWithout(int count);

  // --- Thread-safe ---
  // Answers one job: its response is filled, unless it is refused.
  void Answer(int index, const Outcome& outcome);

 private:
  JobStore& store_;
  const v1::SubmitManyRequest& request_;
  v1::SubmitManyResponse* const response_;
  const Done done_;
  const int count_;
  int taken_ = 0;                        // Used by one thread at a time.
  int undecided_;                        // Number of jobs whose rows may still come.
  std::vector<JobStore::Pending> rows_;  // Rows of the decided jobs.
  std::atomic<int> unanswered_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_SUBMIT_BATCH_H_
