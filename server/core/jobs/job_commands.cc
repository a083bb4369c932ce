// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_commands.h"

#include <utility>

#include "base/failpoint.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

constexpr size_t kReasonBytesMax = 255;

}  // namespace

// ArrayCommand is one call about an array until its answer.
struct JobCommands::ArrayCommand {
  using Then = JobLifecycle::CommandDone;
  std::shared_ptr<LiveArray> array;
  std::function<void(CoreScope&, const ExecutionRef&, Then)> ask;
  std::function<void(const Status&)> done;
  uint64_t next = 0;   // Elements with this sequence and later ones are still to be asked.
  uint64_t waits = 1;  // Number of requests that are not on disk yet, plus one while elements are being asked.
  Status failed;
};

void JobCommands::CancelJob(const TenantRef& tenant, std::string_view id, v1::CancelJobResponse* response, Done done) {
  const std::string name(id);
  if (options_.shared != nullptr) {
    CancelShared(tenant, name, response, std::move(done));
    return;
  }
  {
    CoreScope scope(monitor_);
    if (const auto array = tenant->arrays.find(name); array != tenant->arrays.end() && array->second->joining == 0) {
      auto command = std::make_shared<ArrayCommand>();
      command->array = array->second;
      command->done = std::move(done);
      command->ask = [this, response](CoreScope& inner, const ExecutionRef& job, ArrayCommand::Then then) {
        response->set_cancelled(response->cancelled() + 1);
        lifecycle_.AskCancel(inner, job, std::move(then));
      };
      AskElements(scope, tenant, std::move(command));
      return;
    }
    if (const auto job = tenant->jobs.find(name); job != tenant->jobs.end()) {
      response->set_cancelled(1);
      lifecycle_.AskCancel(scope, job->second,
                           [this, job = job->second, response, done](CoreScope& inner, const Status& status) {
                             *response->mutable_job() = feed_.Describe(*job);
                             inner.Defer([done, status] { done(status); });
                           });
      return;
    }
  }
  AnswerWithoutLive(
      tenant, name, [response] { return response->mutable_job(); }, Outcome(), std::move(done));
}

void JobCommands::SetJobHold(const TenantRef& tenant, const v1::SetJobHoldRequest& request, const Caller& caller,
                             v1::SetJobHoldResponse* response, Done done) {
  const std::string& name = request.job_id();
  if (request.reason().size() > kReasonBytesMax) {
    done(InvalidArgument("The reason has " + std::to_string(request.reason().size()) + " bytes; the limit is 255."));
    return;
  }
  HoldCommand command{.held = request.held(),
                      .hold = {},
                      .changed = [response] { response->set_changed(response->changed() + 1); },
                      .then = nullptr};
  command.hold.set_reason(request.reason());
  command.hold.set_by(caller.who);
  command.hold.set_by_admin(caller.is_admin);
  command.hold.set_since_unix_ns(options_.clock->WallNs());
  if (options_.shared != nullptr) {
    SetHoldShared(tenant, request, command.hold, response, std::move(done));
    return;
  }
  {
    CoreScope scope(monitor_);
    if (const auto found = tenant->arrays.find(name); found != tenant->arrays.end() && found->second->joining == 0) {
      auto all = std::make_shared<ArrayCommand>();
      all->array = found->second;
      all->done = std::move(done);
      all->ask = [this, command = std::move(command)](CoreScope& inner, const ExecutionRef& job,
                                                      ArrayCommand::Then then) {
        HoldCommand one = command;
        one.then = [then = std::move(then)](CoreScope& answered, const Status& status) {
          // Elements that have started, or are being started, are left alone.
          then(answered, absl::IsFailedPrecondition(status) ? absl::OkStatus() : status);
        };
        lifecycle_.AskHold(inner, job, std::move(one));
      };
      AskElements(scope, tenant, std::move(all));
      return;
    }
    if (const auto job = tenant->jobs.find(name); job != tenant->jobs.end()) {
      command.then = [this, job = job->second, response, done, is_admin = caller.is_admin](CoreScope& inner,
                                                                                           const Status& status) {
        *response->mutable_job() = feed_.Describe(*job, is_admin);
        inner.Defer([done, status] { done(status); });
      };
      lifecycle_.AskHold(scope, job->second, std::move(command));
      return;
    }
  }
  const Outcome ended =
      FailedPrecondition(name.substr(0, 80) + " has ended; only a job that has not started can be held or released.");
  AnswerWithoutLive(
      tenant, name, [response] { return response->mutable_job(); }, ended, std::move(done));
}

void JobCommands::AskElements(CoreScope& scope, const TenantRef& tenant, std::shared_ptr<ArrayCommand> command) {
  monitor_.InSlices(scope, tenant,
                    [this, command = std::move(command)](CoreScope& inner) { return AskSome(inner, command); });
}

// Asks some elements; returns true when none is left to ask. The answer comes with the last of their requests.
bool JobCommands::AskSome(CoreScope& scope, const std::shared_ptr<ArrayCommand>& command) {
  const auto answered = [command](CoreScope& inner, const Status& status) {
    command->failed.Update(status);
    if (--command->waits == 0) {
      inner.Defer([command] { command->done(command->failed); });
    }
  };
  for (int i = 0; i < Monitor::kJobsAtOnce; ++i) {
    const auto found = command->array->live.lower_bound(command->next);
    if (found == command->array->live.end()) {
      answered(scope, absl::OkStatus());
      return true;
    }
    const ExecutionRef job = found->second;
    command->next = found->first + 1;
    ++command->waits;
    command->ask(scope, job, answered);
  }
  return false;
}

void JobCommands::AnswerWithoutLive(const TenantRef& tenant, std::string name, ShownJob job, const Outcome& ended,
                                    Done done) {
  CoreScope scope(monitor_);
  monitor_.Read(scope, tenant->name,
                [this, tenant, name = std::move(name), job = std::move(job), ended, done = std::move(done)] {
                  HPVMD_FAILPOINT("core.cancel.read").IgnoreError();
                  done(AnswerOfStored(*tenant, name, job, ended));
                  return FairQueue::Step::kDone;
                });
}

// Answers for a job that has ended, with `ended`, or that does not exist. Called in the tenant's turn and without the
// mutex: reads the store.
Outcome JobCommands::AnswerOfStored(Tenant& tenant, const std::string& name, const ShownJob& job,
                                    const Outcome& ended) {
  bool has_ended = true;
  if (name.starts_with("array-")) {
    JobFilter one;
    one.array_id = name;
    one.count_max = 1;
    HPVMD_ASSIGN_OR_RETURN(const std::vector<StoredJob> rows, options_.jobs->database().List(tenant.name, one));
    if (rows.empty()) {
      return NotFound("There is no array \"" + name.substr(0, 80) + "\".");
    }
    has_ended = IsTerminal(rows.front().job().state());
  } else {
    HPVMD_ASSIGN_OR_RETURN(*job(), reader_.FindJob(tenant, name));
    has_ended = IsTerminal(job()->state());
  }
  if (has_ended) {
    return ended;
  }
  // The job is between its commit and the answer to its submission, or its row differs from what the core knew.
  return Later(Unavailable("The state of " + name.substr(0, 80) + " is not known at this moment; ask again."));
}

}  // namespace hpvm::server
