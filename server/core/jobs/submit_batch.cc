// SPDX-License-Identifier: Apache-2.0
// Implements SubmitMany.
#include "server/core/jobs/submit_batch.h"

#include <utility>

#include "server/core/jobs/job_submitter.h"
#include "server/core/state/batch_limits.h"
#include "server/core/state/request_options.h"

namespace hpvm::server {

void SubmitBatch::FillBrief(const v1::Job& job, v1::Job* brief) {
  brief->set_id(job.id());
  brief->set_name(job.name());
  brief->set_idempotency_key(job.idempotency_key());
  brief->set_array_id(job.array_id());
  brief->set_state(job.state());
  brief->set_created_unix_ns(job.created_unix_ns());
  brief->set_deadline_unix_ns(job.deadline_unix_ns());
}

SubmitBatch::SubmitBatch(JobStore& store, const v1::SubmitManyRequest& request, v1::SubmitManyResponse* response,
                         Done done)
    : store_(store),
      request_(request),
      response_(response),
      done_(std::move(done)),
      count_(request.jobs_size()),
      undecided_(count_),
      unanswered_(count_) {
  for (int i = 0; i < count_; ++i) {
    response_->add_results();  // Each is filled by another thread; the list itself does not change.
  }
}

SubmitBatch::Piece SubmitBatch::Take() {
  Piece piece{.first = taken_, .count = CountAtOnce(taken_, count_, [this](int i) {
                                 const v1::SubmitRequest& job = request_.jobs(i);
                                 return job.inputs_size() + job.outputs_size() + job.after_size() + job.symbols_size();
                               })};
  taken_ += piece.count;
  return piece;
}

void SubmitBatch::Write(JobWrite write, JobStore::WriteDone done) {
  rows_.push_back({std::move(write), std::move(done)});
  GoWithout(1);
}

void SubmitBatch::GoWithout(int count) {
  undecided_ -= count;
  if (undecided_ == 0 && !rows_.empty()) {
    store_.WriteMany(std::exchange(rows_, {}));
  }
}

void SubmitBatch::Answer(int index, const Outcome& outcome) {
  v1::SubmitResponse& response = *response_->mutable_results(index);
  if (outcome.ok()) {
    if (response.existed()) {
      v1::Job brief;
      FillBrief(response.job(), &brief);
      *response.mutable_job() = std::move(brief);
    }
    response.clear_array_job_ids();
  } else {
    response.Clear();
    const std::optional<v1::Status> shortened = ShortenedForMetadata(outcome);
    *response.mutable_error() = shortened.has_value() ? *shortened : ToMessage(outcome);
  }
  if (--unanswered_ == 0) {
    done_(Outcome());
  }
}

void JobSubmitter::SubmitMany(const TenantRef& tenant, const v1::SubmitManyRequest& request,
                              v1::SubmitManyResponse* response, Done done, std::string who) {
  if (request.jobs_size() < 1 || request.jobs_size() > kSubmitsPerCallMax) {
    const Status refused = InvalidArgument("The call has " + std::to_string(request.jobs_size()) +
                                           " jobs; it needs 1 to " + std::to_string(kSubmitsPerCallMax) + ".");
    options_.observer->On(events::Rejected{tenant->name, "submit", refused});
    done(refused);
    return;
  }
  auto batch = std::make_shared<SubmitBatch>(*options_.jobs, request, response, std::move(done));
  options_.jobs->PostRead(tenant->name, [this, tenant, batch, who = std::move(who)] {
    return SubmitSome(tenant, batch, who) ? FairQueue::Step::kAgain : FairQueue::Step::kDone;
  });
}

// Submits some of the jobs: looks up their keys in the store before the mutex is locked once for all. Returns true
// when there are more.
bool JobSubmitter::SubmitSome(const TenantRef& tenant, const std::shared_ptr<SubmitBatch>& batch,
                              const std::string& who) {
  const auto [first, count] = batch->Take();
  std::vector<Entry> entries;
  for (int i = first; i < first + count; ++i) {
    Entry entry{.tenant = tenant,
                .request = &batch->request(i),
                .response = batch->response(i),
                .done = [batch, i](const Outcome& outcome) { batch->Answer(i, outcome); },
                .batch = batch,
                .who = who,
                .is_brief = true};
    // The call itself has been counted, as its first job.
    Outcome refused = i == 0 ? Outcome() : quotas_.meter().Begin(*tenant, 0);
    if (refused.ok() && entry.request->has_array()) {
      refused = InvalidArgument("An array of jobs must be submitted alone (Submit).");
    }
    refused = refused.ok() ? Examine(entry) : refused;
    if (refused.ok()) {
      entries.push_back(std::move(entry));
    } else {
      entry.done(refused);
    }
  }
  const bool has_more = batch->has_more();
  CoreScope scope(monitor_);
  int without = count - static_cast<int>(entries.size());
  for (Entry& entry : entries) {
    without += Enter(scope, std::move(entry)) ? 0 : 1;
  }
  batch->GoWithout(without);
  return has_more;
}

}  // namespace hpvm::server
