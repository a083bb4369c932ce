// SPDX-License-Identifier: Apache-2.0
// JobCommands carries out requests to cancel, hold or release jobs and arrays that have not ended.
#ifndef HPVMD_SERVER_CORE_JOBS_JOB_COMMANDS_H_
#define HPVMD_SERVER_CORE_JOBS_JOB_COMMANDS_H_

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

class JobCommands : private CoreRoom {
 public:
  using Done = std::function<void(const Outcome&)>;
  // The name of the caller as in the audit, and its role.
  struct Caller {
    std::string who;
    bool is_admin = false;
  };
  JobCommands(CoreContext& context, JobFeed& feed, JobLifecycle& lifecycle, JobReader& reader)
      : CoreRoom(context), feed_(feed), lifecycle_(lifecycle), reader_(reader) {}

  // --- For clients; these lock the mutex ---
  // Each call is about a job or an array, borrows the response until `done`, and answers when the requests are on
  // disk.
  void CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done);
  void SetJobHold(const TenantRef& tenant, const v1::SetJobHoldRequest& request, const Caller& caller,
                  v1::SetJobHoldResponse* response, Done done);

 private:
  struct ArrayCommand;  // job_commands.cc
  void AskElements(CoreScope& scope, const TenantRef& tenant, std::shared_ptr<ArrayCommand> command);
  bool AskSome(CoreScope& scope, const std::shared_ptr<ArrayCommand>& command);
  // Returns the field for the job in the response; not called for an array.
  using ShownJob = std::function<v1::Job*()>;
  // The same calls for a store that hosts share (shared_commands.cc).
  struct SharedCommand;
  void CommandShared(const TenantRef& tenant, std::shared_ptr<SharedCommand> command);
  FairQueue::Step CommandElements(const TenantRef& tenant, const std::shared_ptr<SharedCommand>& command);
  void CancelShared(const TenantRef& tenant, std::string name, v1::CancelJobResponse* response, Done done);
  void SetHoldShared(const TenantRef& tenant, const v1::SetJobHoldRequest& request, const v1::JobHold& hold,
                     v1::SetJobHoldResponse* response, Done done);
  void AnswerWithoutLive(const TenantRef& tenant, std::string name, ShownJob job, const Outcome& ended, Done done);
  Outcome AnswerOfStored(Tenant& tenant, const std::string& name, const ShownJob& job, const Outcome& ended);

  JobFeed& feed_;
  JobLifecycle& lifecycle_;
  JobReader& reader_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_JOBS_JOB_COMMANDS_H_
