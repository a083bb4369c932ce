// SPDX-License-Identifier: Apache-2.0
// Reading jobs: what is on disk, and over it what the core knows of those that have not ended.
//
// The store is read without the mutex. A job that the core has is shown as the core has it, so that nobody sees an end
// before it was announced, or a job go back to an earlier state.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "server/core/core.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/rows/job_state_name.h"
#include "supervisor/run_log_message.h"

namespace hpvm {
namespace {

constexpr size_t kRecentJobsMax = 1'000, kRecentEventsMax = 50'000;

v1::JobEvent PhaseEvent(v1::JobEvent::Phase phase, Duration duration) {
  v1::JobEvent event;
  event.mutable_phase()->set_phase(phase);
  event.mutable_phase()->set_duration_ns(static_cast<uint64_t>(duration.count()));
  return event;
}

v1::JobEvent JobEventOf(v1::Job job) {
  v1::JobEvent event;
  *event.mutable_job() = std::move(job);
  return event;
}

}  // namespace

LiveJob* Core::FindLive(Tenant& tenant, std::string_view id) {
  const auto found = tenant.jobs.find(std::string(id));
  return found == tenant.jobs.end() ? nullptr : found->second.get();
}

std::string Core::WaitSentenceOf(const LiveJob& job) const {
  const v1::Job& shown = job.row.job();
  const std::vector<v1::JobDependency> pending = job.tenant->dependencies.PendingOf(shown.id());
  if (!pending.empty()) {
    return WaitSentence(pending.front()) +
           (pending.size() > 1 ? " And for " + std::to_string(pending.size() - 1) + " more." : "");
  }
  if (job.tenant->policy->disabled) {
    return "Waits until the tenant is enabled again" +
           (job.tenant->policy->disabled_reason.empty() ? "." : ": " + job.tenant->policy->disabled_reason + ".");
  }
  if (!has_room_) {
    return "Waits for room on the server's disk.";
  }
  const Time now = options_.clock->Now();
  if (const Duration debt = ledger_.DebtFor(job.tenant->key, scheduler::Resource::kDeviceTime, now);
      debt > Duration{0}) {
    return "Waits for device time: the tenant's quota is spent; more is earned in " +
           std::to_string(std::chrono::ceil<std::chrono::seconds>(debt).count()) + " s" +
           (job.deadline != kNever && job.deadline <= now + debt ? ", after the job's deadline." : ".");
  }
  if (job.not_before > now) {
    const std::string pause = "Waits until the tenant's executor may start again: it ended too often.";
    if (shown.lost_attempts().empty()) {
      return pause;
    }
    const v1::LostAttempt& lost = shown.lost_attempts(shown.lost_attempts_size() - 1);
    return (job.awaits_executor ? pause + " " : "") + "Attempt " + std::to_string(lost.attempt()) + " was lost (" +
           lost.error().message() + "); the next follows, at most " + std::to_string(shown.attempts_max()) + " in all.";
  }
  if (draining_) {
    return "Waits for the server to start again.";
  }
  const LiveArray* array = ArrayOf(job);
  if (array != nullptr && array->running_max > 0 && !job.has_array_turn) {
    return "Waits for its turn: at most " + std::to_string(array->running_max) + " elements of " + shown.array_id() +
           " run at a time.";
  }
  return "";
}

// Why a job that could run is still queued; empty: its turn comes at once, or others' turns come before.
std::string Core::TurnSentenceOf(const Tenant& tenant) const {
  const uint64_t quota = tenant.policy->limits[static_cast<size_t>(scheduler::Resource::kRunningJobs)];
  const uint64_t own_max =
      quota == 0 ? config_->jobs_running_per_tenant_max : std::min(quota, config_->jobs_running_per_tenant_max);
  if (const uint64_t own = share_.running(tenant.key); own >= own_max) {
    return "Waits for its turn: the tenant runs " + std::to_string(own) + " at a time, of at most " +
           std::to_string(own_max) + ".";
  }
  if (share_.running() >= config_->jobs_running_max) {
    return "Waits for its turn: the server runs as many at a time as it may.";
  }
  return "";
}

v1::Job Core::Describe(const LiveJob& job) const {
  v1::Job shown = job.row.job();
  shown.set_attempts_counted(job.row.attempts_spent());
  if (shown.state() == v1::JOB_STATE_ACCEPTED) {
    if (job.phase == LiveJob::Phase::kQueued || job.phase == LiveJob::Phase::kStarting) {
      shown.set_state(v1::JOB_STATE_QUEUED);
      shown.set_waits_for(job.phase == LiveJob::Phase::kQueued ? TurnSentenceOf(*job.tenant) : "");
    } else {
      shown.set_waits_for(WaitSentenceOf(job));
    }
  } else {
    shown.set_waits_for(RoomSentenceOf(job));
  }
  return shown;
}

StatusOr<v1::Job> Core::FindJob(Tenant& tenant, std::string_view id) {
  {
    CoreScope scope(*this);
    if (const LiveJob* live = FindLive(tenant, id)) {
      return Describe(*live);
    }
  }
  StatusOr<StoredJob> row = options_.jobs->database().Find(tenant.name, id);
  if (!row.ok()) {
    return absl::IsNotFound(row.status()) ? NoSuchJob(id) : row.status();
  }
  return std::move(*row->mutable_job());
}

Status Core::GetJob(Tenant& tenant, std::string_view id, v1::Job* job) {
  HPVMD_ASSIGN_OR_RETURN(*job, FindJob(tenant, id));
  if (IsTerminal(job->state()) && !job->dropped()) {
    StatusOr<StoredResults> results = options_.jobs->database().ReadResults(tenant.name, id);
    if (results.ok() && results->has_log()) {
      *job->mutable_log() = std::move(*results->mutable_log());
    }
  }
  return absl::OkStatus();
}

StatusOr<uint64_t> Core::WatchJob(Tenant& tenant, std::string_view id, JobEvents::Wake wake) {
  {
    CoreScope scope(*this);
    if (LiveJob* live = FindLive(tenant, id)) {
      if (watching_.size() >= config_->jobs_watchers_max) {
        return ResourceExhausted("As many jobs are watched as may be (" + std::to_string(config_->jobs_watchers_max) +
                                 ").");
      }
      if (tenant.watchers >= config_->jobs_watchers_per_tenant_max) {
        return ResourceExhausted("The tenant watches as many jobs as it may (" +
                                 std::to_string(config_->jobs_watchers_per_tenant_max) + ").");
      }
      EventsOf(*live);
      const uint64_t key = next_watcher_++;
      watching_[key] = {live->events, live->events->Watch(std::move(wake)), &tenant};
      ++tenant.watchers;
      return key;
    }
    if (tenant.recent.contains(std::string(id))) {
      return 0;
    }
  }
  HPVMD_RETURN_IF_ERROR(FindJob(tenant, id).status());
  return 0;
}

void Core::Unwatch(Tenant& tenant, std::string_view id, uint64_t key) {
  CoreScope scope(*this);
  if (const auto found = watching_.find(key); found != watching_.end()) {
    found->second.events->Unwatch(found->second.key);
    --found->second.tenant->watchers;
    watching_.erase(found);
  }
}

StatusOr<Core::EventBatch> Core::ReadEvents(Tenant& tenant, std::string_view id, uint64_t after, size_t count_max) {
  EventBatch batch;
  {
    CoreScope scope(*this);
    LiveJob* live = FindLive(tenant, id);
    const auto recent = tenant.recent.find(std::string(id));
    if (live != nullptr || recent != tenant.recent.end()) {
      const JobEvents& events = live != nullptr ? EventsOf(*live) : *recent->second->events;
      batch.events = events.After(after, count_max);
      const uint64_t reached = batch.events.empty() ? after : batch.events.back().sequence();
      batch.last = live == nullptr && reached >= events.last_sequence();
      if (batch.events.empty() && !batch.last && stopped_) {
        return Unavailable("The server is stopping; the job goes on when it has started again.");
      }
      return batch;
    }
  }
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, FindJob(tenant, id));
  if (!IsTerminal(job.state())) {
    return Unavailable("The job's state is not known until the server has started again.");
  }
  v1::JobEvent& event = batch.events.emplace_back(JobEventOf(std::move(job)));
  event.set_sequence(after + 1);
  event.set_time_unix_ns(event.job().ended_unix_ns());
  batch.last = true;
  return batch;
}

StatusOr<Core::StoredBytes> Core::FindOutput(Tenant& tenant, std::string_view id, std::string_view name) {
  HPVMD_ASSIGN_OR_RETURN(const v1::Job job, FindJob(tenant, id));
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    return FailedPrecondition("The job is " + StateName(job.state()) + "; only a succeeded job has outputs.");
  }
  const auto output = std::find_if(job.outputs().begin(), job.outputs().end(),
                                   [&](const v1::OutputValue& value) { return value.name() == name; });
  if (output == job.outputs().end()) {
    return NotFound("The job has no output \"" + std::string(name.substr(0, 80)) + "\".");
  }
  if (output->has_buffer()) {
    return FailedPrecondition("Output \"" + output->name() + "\" is in buffer " + output->buffer().buffer_id() +
                              "; read it there.");
  }
  if (job.dropped()) {
    return FailedPrecondition("The job's outputs were dropped to make room.");
  }
  HPVMD_ASSIGN_OR_RETURN(StoredResults results, options_.jobs->database().ReadResults(tenant.name, id));
  for (internal::StoredResult& result : *results.mutable_outputs()) {
    if (result.name() != name) {
      continue;
    }
    StoredBytes stored;
    stored.header = result.header();
    if (result.sha256().empty()) {
      stored.inline_bytes = std::move(*result.mutable_data());
      return stored;
    }
    Sha256 hash;
    if (result.sha256().size() == hash.bytes.size()) {
      std::copy(result.sha256().begin(), result.sha256().end(), hash.bytes.begin());
    }
    HPVMD_ASSIGN_OR_RETURN(stored.file, options_.jobs->blobs().Open(tenant.name, hash, result.header().size_bytes()));
    return stored;
  }
  return DataLoss("The store does not have output \"" + std::string(name.substr(0, 80)) + "\".");
}

// Begins with what the job went through before anybody kept its events.
JobEvents& Core::EventsOf(LiveJob& job) {
  if (job.events == nullptr) {
    job.events = std::make_shared<JobEvents>();
    v1::Job shown = Describe(job);
    if (shown.state() != v1::JOB_STATE_ACCEPTED) {
      v1::Job accepted = shown;
      accepted.set_state(v1::JOB_STATE_ACCEPTED);
      accepted.clear_started_unix_ns();
      accepted.set_attempt(0);
      job.events->Add(JobEventOf(std::move(accepted)), shown.created_unix_ns());
    }
    if (shown.state() == v1::JOB_STATE_RUNNING) {
      v1::Job queued = shown;
      queued.set_state(v1::JOB_STATE_QUEUED);
      queued.clear_started_unix_ns();
      queued.set_attempt(shown.attempt() - 1);
      job.events->Add(JobEventOf(std::move(queued)), shown.created_unix_ns());
    }
    job.events->Add(JobEventOf(std::move(shown)), options_.clock->WallNs());
  }
  return *job.events;
}

void Core::AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event) {
  events.Add(std::move(event), options_.clock->WallNs());
  for (const auto& [key, wake] : events.watchers()) {
    scope.Defer(wake);
  }
}

void Core::AddStateEvent(CoreScope& scope, LiveJob& job) {
  if (job.events != nullptr) {
    AddEvent(scope, *job.events, JobEventOf(Describe(job)));
  }
}

void Core::AddRunEvents(CoreScope& scope, LiveJob& job, const RunOutcome& outcome) {
  JobEvents& events = EventsOf(job);
  for (const ExecutorNodeRecord& node : outcome.reply.nodes) {
    v1::JobEvent event;
    *event.mutable_placement() = ToMessage(node);
    AddEvent(scope, events, std::move(event));
  }
  if (outcome.outcome.ok()) {
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_BIND, outcome.reply.bind));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_COPY_IN, outcome.reply.copy_in));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_RUN, outcome.reply.run));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_COPY_OUT, outcome.reply.copy_out));
    v1::JobEvent progress;
    progress.mutable_progress()->set_nodes_run(outcome.reply.nodes_run);
    progress.mutable_progress()->set_nodes_total(outcome.reply.nodes_run);
    AddEvent(scope, events, std::move(progress));
  }
}

// The events of the last ended jobs stay for those who come late.
void Core::KeepRecent(LiveJob& job) {
  if (job.events == nullptr) {
    return;
  }
  const std::string& id = job.row.job().id();
  job.tenant->recent[id] = std::make_shared<RecentJob>(RecentJob{job.events});
  recent_.emplace_back(job.tenant.get(), id);
  recent_events_ += job.events->size();
  while (recent_.size() > kRecentJobsMax || (recent_events_ > kRecentEventsMax && recent_.size() > 1)) {
    const auto& [tenant, oldest] = recent_.front();
    const auto found = tenant->recent.find(oldest);
    if (found != tenant->recent.end()) {
      recent_events_ -= found->second->events->size();
      tenant->recent.erase(found);
    }
    recent_.pop_front();
  }
}

}  // namespace hpvm
