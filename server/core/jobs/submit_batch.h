// SPDX-License-Identifier: Apache-2.0
// The jobs of one SubmitMany until its answer: their rows wait for each other, so that one commit has all of them, and
// the answer waits for each.
//
// Each job is a submission of its own. What is refused, or waits for another request with its key, goes without the
// others: else two calls could wait for each other.
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
  // Request and response are borrowed until `done`, which comes once, when each job is on disk or refused. The store is
  // borrowed and lives longer.
  SubmitBatch(JobStore& store, const v1::SubmitManyRequest& request, v1::SubmitManyResponse* response, Done done);

  // What the answer has of a job: all of them go into one message, however long their labels and notes are.
  static void FillBrief(const v1::Job& job, v1::Job* brief);

  // The jobs that come next, which the caller has then taken: as many as one hold of the core's mutex may have.
  struct Piece {
    int first = 0, count = 0;
  };
  Piece Take();
  bool has_more() const { return taken_ < count_; }
  const v1::SubmitRequest& request(int index) const { return request_.jobs(index); }
  // For jobs that have none of their own.
  const std::string& traceparent() const { return request_.options().traceparent(); }
  v1::SubmitResponse* response(int index) const { return response_->mutable_results(index); }

  // --- With the core's mutex ---
  // The row of one that is accepted.
  void Write(JobWrite write, JobStore::WriteDone done);
  // So many have no row, or write it by themselves.
  void GoWithout(int count);

  // --- Any thread ---
  // One is answered: its response is there, unless it is refused.
  void Answer(int index, const Outcome& outcome);

 private:
  JobStore& store_;
  const v1::SubmitManyRequest& request_;
  v1::SubmitManyResponse* const response_;
  const Done done_;
  const int count_;
  int taken_ = 0;                        // One thread at a time.
  int undecided_;                        // Whose rows may still come.
  std::vector<JobStore::Pending> rows_;  // Of those that are decided.
  std::atomic<int> unanswered_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_SUBMIT_BATCH_H_
