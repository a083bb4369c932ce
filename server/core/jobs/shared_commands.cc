// SPDX-License-Identifier: Apache-2.0
// Requests to cancel, hold and release jobs of a store that hosts share: the store decides, whichever host has the job.
#include <utility>

#include "server/core/jobs/job_commands.h"
#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

// Elements of an array that are asked in one turn.
constexpr size_t kElementsAtOnce = 64;

}  // namespace

// SharedCommand is one call until its answer.
struct JobCommands::SharedCommand {
  std::string name;  // A job's id, or an array's.
  // Asks the store about one job.
  std::function<void(const std::string& id, SharedJobs::Done)> ask;
  // Takes the job that the store answers with; `is_element` says that it is one of an array.
  std::function<Status(const StatusOr<StoredJob>& job, bool is_element)> take;
  Done done;

  JobFilter filter;  // The elements of the array that are left.
  std::mutex mutex;
  uint64_t waits = 1;     // Number of unanswered requests, plus one while elements are being read.
  bool has_some = false;  // The array has elements.
  Status failed;

  void Answered(const Status& status) {
    std::unique_lock lock(mutex);
    failed.Update(status);
    if (--waits == 0) {
      const Status all = failed;
      lock.unlock();
      done(all);
    }
  }
};

void JobCommands::CommandShared(const TenantRef& tenant, std::shared_ptr<SharedCommand> command) {
  if (!command->name.starts_with("array-")) {
    command->ask(command->name, [command](const StatusOr<StoredJob>& job) {
      const bool is_missing = absl::IsNotFound(job.status());
      command->Answered(is_missing ? NoSuchJob(command->name) : command->take(job, /*is_element=*/false));
    });
    return;
  }
  command->filter.array_id = command->name;
  command->filter.count_max = command->filter.rows_max = kElementsAtOnce;
  CoreScope scope(monitor_);
  monitor_.Read(scope, tenant->name, [this, tenant, command] { return CommandElements(tenant, command); });
}

FairQueue::Step JobCommands::CommandElements(const TenantRef& tenant, const std::shared_ptr<SharedCommand>& command) {
  const StatusOr<std::vector<StoredJob>> rows = options_.jobs->database().ListSome(tenant->name, &command->filter);
  if (!rows.ok()) {
    command->Answered(rows.status());
    return FairQueue::Step::kDone;
  }
  for (const StoredJob& row : *rows) {
    command->has_some = true;
    if (!IsTerminal(row.job().state())) {
      {
        std::lock_guard lock(command->mutex);
        ++command->waits;
      }
      command->ask(row.job().id(), [command](const StatusOr<StoredJob>& job) {
        command->Answered(command->take(job, /*is_element=*/true));
      });
    }
  }
  if (command->filter.before_sequence > 0) {
    return FairQueue::Step::kAgain;
  }
  command->Answered(command->has_some ? absl::OkStatus()
                                      : NotFound("There is no array \"" + command->name.substr(0, 80) + "\"."));
  return FairQueue::Step::kDone;
}

void JobCommands::CancelShared(const TenantRef& tenant, std::string name, v1::CancelJobResponse* response, Done done) {
  auto command = std::make_shared<SharedCommand>();
  command->name = std::move(name);
  command->done = std::move(done);
  command->ask = [this, tenant](const std::string& id, SharedJobs::Done answer) {
    options_.shared->Cancel(tenant->name, id, std::move(answer));
  };
  command->take = [response, &mutex = command->mutex](const StatusOr<StoredJob>& job, bool is_element) -> Status {
    HPVMD_RETURN_IF_ERROR(job.status());
    // A job that had ended before does not say that its cancellation was asked for.
    std::lock_guard lock(mutex);
    response->set_cancelled(response->cancelled() + (job->job().cancel_requested() ? 1 : 0));
    if (!is_element) {
      *response->mutable_job() = job->job();
    }
    return absl::OkStatus();
  };
  CommandShared(tenant, std::move(command));
}

void JobCommands::SetHoldShared(const TenantRef& tenant, const v1::SetJobHoldRequest& request, const v1::JobHold& hold,
                                v1::SetJobHoldResponse* response, Done done) {
  auto command = std::make_shared<SharedCommand>();
  command->name = request.job_id();
  command->done = std::move(done);
  command->ask = [this, tenant, hold, held = request.held()](const std::string& id, SharedJobs::Done answer) {
    options_.shared->SetHold(tenant->name, id, held, hold, std::move(answer));
  };
  command->take = [response, &mutex = command->mutex](const StatusOr<StoredJob>& job, bool is_element) -> Status {
    if (is_element && absl::IsFailedPrecondition(job.status())) {
      return absl::OkStatus();  // Elements that have started are left alone.
    }
    HPVMD_RETURN_IF_ERROR(job.status());
    std::lock_guard lock(mutex);
    response->set_changed(response->changed() + 1);
    if (!is_element) {
      *response->mutable_job() = job->job();
    }
    return absl::OkStatus();
  };
  CommandShared(tenant, std::move(command));
}

}  // namespace hpvm::server
