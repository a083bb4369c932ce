// SPDX-License-Identifier: Apache-2.0
// Cancelling jobs and arrays.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_CANCELLER_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_CANCELLER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "hpvm/v1/job.pb.h"
#include "server/core/jobs/job_feed.h"
#include "server/core/jobs/job_lifecycle.h"
#include "server/core/jobs/job_reader.h"
#include "server/core/state/core_context.h"

namespace hpvm::server {

class JobCanceller : private CoreRoom {
 public:
  using Done = std::function<void(const Outcome&)>;
  JobCanceller(CoreContext& context, JobFeed& feed, JobLifecycle& lifecycle, JobReader& reader)
      : CoreRoom(context), feed_(feed), lifecycle_(lifecycle), reader_(reader) {}

  // --- For clients; these lock the mutex ---
  // Of a job or an array.
  void CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done);

 private:
  struct ArrayCancel;  // job_canceller.cc
  bool CancelElements(CoreScope& scope, const std::shared_ptr<ArrayCancel>& cancel);
  Outcome AnswerCancelOfEnded(Tenant& tenant, const std::string& name, v1::CancelJobResponse* response);

  JobFeed& feed_;
  JobLifecycle& lifecycle_;
  JobReader& reader_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_CANCELLER_H_
