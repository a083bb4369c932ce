// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_feed.h"

#include <algorithm>
#include <utility>

#include "server/jobs/rows/job_rules.h"

namespace hpvm::server {
namespace {

// Limit on the kept events of ended jobs, of all tenants together, and the weight of a job beside its events: at most
// 1,000 jobs.
constexpr size_t kRecentWeightMax = 50'000, kJobWeight = 50;

v1::JobEvent PhaseEvent(v1::JobEvent::Phase phase, uint64_t duration_ns) {
  v1::JobEvent event;
  event.mutable_phase()->set_phase(phase);
  event.mutable_phase()->set_duration_ns(duration_ns);
  return event;
}

v1::JobEvent JobEventOf(v1::Job job) {
  v1::JobEvent event;
  *event.mutable_job() = std::move(job);
  return event;
}

}  // namespace

std::string JobFeed::HoldSentence(const v1::JobHold& hold) {
  return "Held by " + (hold.by_admin() ? "an administrator" : hold.by()) +
         (hold.reason().empty() ? "." : ": " + hold.reason() + (hold.reason().ends_with('.') ? "" : "."));
}

std::string JobFeed::WaitSentenceOf(const Execution& job) const {
  const v1::Job& shown = job.shown();
  if (shown.has_hold()) {
    return HoldSentence(shown.hold()) + (shown.hold().by_admin()
                                             ? " Only an administrator can release it."
                                             : " `hpvmctl release " + shown.id() + "` releases it.");
  }
  const std::vector<v1::JobDependency> pending = job.tenant->dependencies.PendingOf(shown.id());
  if (!pending.empty()) {
    return WaitSentence(pending.front()) +
           (pending.size() > 1 ? " It also waits for " + std::to_string(pending.size() - 1) + " more." : "");
  }
  if (job.tenant->policy->disabled) {
    return "Waits until the tenant is enabled again" +
           (job.tenant->policy->disabled_reason.empty() ? "." : ": " + job.tenant->policy->disabled_reason + ".");
  }
  if (!table_.has_room) {
    return "Waits for room on the server's disk.";
  }
  if (shutdown_.intake.closed) {
    return shutdown_.intake.Sentence();
  }
  if (std::string closed = devices_.table().WhyAllClosed(job.stored->row.needs()); !closed.empty()) {
    return "Waits for a device. " + closed;
  }
  const Time now = options_.clock->Now();
  if (const Duration debt = quotas_.ledger().DebtFor(job.tenant->key, scheduler::Resource::kDeviceTime, now);
      debt > Duration{0}) {
    return "Waits for device time: the tenant's quota is spent; more is available in " +
           std::to_string(std::chrono::ceil<std::chrono::seconds>(debt).count()) + " s" +
           (job.deadline != kNever && job.deadline <= now + debt ? ", after the job's deadline." : ".");
  }
  if (job.stored->not_before > now) {
    const std::string pause = "Waits until the tenant's executor may start again: it ended too often.";
    if (shown.lost_attempts().empty()) {
      return pause;
    }
    const v1::LostAttempt& lost = shown.lost_attempts(shown.lost_attempts_size() - 1);
    return (job.stored->awaits_executor ? pause + " " : "") + "Attempt " + std::to_string(lost.attempt()) +
           " was lost (" + lost.error().message() + "); the next follows, at most " +
           std::to_string(shown.attempts_max()) + " in all.";
  }
  if (shutdown_.draining) {
    return "Waits for the server to start again.";
  }
  const LiveArray* array = table_.ArrayOf(job);
  if (array != nullptr && array->running_max > 0 && !job.stored->has_array_turn) {
    return "Waits for its turn: at most " + std::to_string(array->running_max) + " elements of " + shown.array_id() +
           " run at a time.";
  }
  return "";
}

// Returns why a job that could run is still queued; empty when its turn comes at once, or others' turns come before.
std::string JobFeed::TurnSentenceOf(const Tenant& tenant) const {
  const uint64_t quota = tenant.policy->limits[static_cast<size_t>(scheduler::Resource::kRunningJobs)];
  const uint64_t own_max =
      quota == 0 ? config_->jobs_running_per_tenant_max : std::min(quota, config_->jobs_running_per_tenant_max);
  if (const uint64_t own = arbiter_.share().running(tenant.key); own >= own_max) {
    return "Waits for its turn: the tenant runs " + std::to_string(own) + " jobs at a time, of at most " +
           std::to_string(own_max) + ".";
  }
  if (arbiter_.share().running() >= config_->jobs_running_max) {
    return "Waits for its turn: the server runs as many jobs at a time as jobs.running_max allows.";
  }
  return "";
}

v1::JobState JobFeed::StateOf(const Execution& job) {
  const bool is_queued = job.phase == Execution::Phase::kQueued || job.phase == Execution::Phase::kStarting;
  return is_queued && job.shown().state() == v1::JOB_STATE_ACCEPTED ? v1::JOB_STATE_QUEUED : job.shown().state();
}

v1::Job JobFeed::Describe(const Execution& job, bool to_admin) const {
  v1::Job shown = job.shown();
  if (shown.hold().by_admin() && !to_admin) {
    shown.mutable_hold()->set_by("an administrator");
  }
  if (const StoredJob* shared = job.stored->shared.get(); shared != nullptr) {
    *shown.mutable_labels() = shared->job().labels();
    *shown.mutable_after() = shared->job().after();
  }
  shown.set_attempts_counted(job.stored->row.attempts_spent());
  shown.set_change(job.stored->change);
  shown.set_state(StateOf(job));
  if (shown.state() == v1::JOB_STATE_QUEUED) {
    shown.set_waits_for(job.phase == Execution::Phase::kQueued ? TurnSentenceOf(*job.tenant) : "");
  } else {
    shown.set_waits_for(shown.state() == v1::JOB_STATE_ACCEPTED ? WaitSentenceOf(job) : RoomSentenceOf(job));
  }
  return shown;
}

// Begins with the changes that the job went through before its events were kept.
JobEvents& JobFeed::EventsOf(Execution& job) {
  if (job.stored->events == nullptr) {
    job.stored->events = std::make_shared<JobEvents>();
    v1::Job shown = Describe(job);
    if (shown.state() != v1::JOB_STATE_ACCEPTED) {
      v1::Job accepted = shown;
      accepted.set_state(v1::JOB_STATE_ACCEPTED);
      accepted.clear_started_unix_ns();
      accepted.set_attempt(0);
      job.stored->events->Add(JobEventOf(std::move(accepted)), shown.created_unix_ns());
    }
    if (shown.state() == v1::JOB_STATE_RUNNING) {
      v1::Job queued = shown;
      queued.set_state(v1::JOB_STATE_QUEUED);
      queued.clear_started_unix_ns();
      queued.set_attempt(shown.attempt() - 1);
      job.stored->events->Add(JobEventOf(std::move(queued)), shown.created_unix_ns());
    }
    job.stored->events->Add(JobEventOf(std::move(shown)), options_.clock->WallNs());
  }
  return *job.stored->events;
}

void JobFeed::AddEvent(CoreScope& scope, JobEvents& events, v1::JobEvent event) {
  events.Add(std::move(event), options_.clock->WallNs());
  for (const auto& [key, wake] : events.watchers()) {
    scope.Defer(wake);
  }
}

void JobFeed::KeepChange(CoreScope& scope, const TenantRef& tenant, v1::JobChange change, v1::JobState before) {
  change.set_time_unix_ns(options_.clock->WallNs());
  tenant->history.Add(std::move(change), before, config_->jobs_watch_bytes_per_tenant_max);
  watchers_.Tell(scope, tenant, Watchers::kJobs);
}

void JobFeed::AddChange(CoreScope& scope, Execution& job) {
  const v1::JobState before = std::exchange(job.stored->told, StateOf(job));
  if (job.tenant->history.is_kept()) {
    job.stored->change = job.tenant->history.next_number();
    v1::JobChange change;
    *change.mutable_job() = Describe(job);
    change.mutable_job()->clear_outputs();  // As in lists.
    KeepChange(scope, job.tenant, std::move(change), before);
  }
}

void JobFeed::AddGone(CoreScope& scope, const TenantRef& tenant, const std::string& id) {
  if (tenant->history.is_kept()) {
    v1::JobChange change;
    change.set_gone_job_id(id);
    KeepChange(scope, tenant, std::move(change), v1::JOB_STATE_UNSPECIFIED);
  }
}

void JobFeed::AddStateEvent(CoreScope& scope, Execution& job) {
  AddChange(scope, job);
  if (job.stored->events != nullptr) {
    AddEvent(scope, *job.stored->events, JobEventOf(Describe(job)));
  }
}

void JobFeed::AddRunEvents(CoreScope& scope, Execution& job, const RunOutcome& outcome) {
  JobEvents& events = EventsOf(job);
  for (const v1::NodePlacement& node : outcome.reply.done.nodes()) {
    v1::JobEvent event;
    *event.mutable_placement() = node;
    AddEvent(scope, events, std::move(event));
  }
  if (outcome.outcome.ok()) {
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_BIND, outcome.timing().bind_ns()));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_COPY_IN, outcome.timing().copy_in_ns()));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_RUN, outcome.timing().run_ns()));
    AddEvent(scope, events, PhaseEvent(v1::JobEvent::PHASE_COPY_OUT, outcome.timing().copy_out_ns()));
    v1::JobEvent progress;
    progress.mutable_progress()->set_nodes_run(outcome.reply.done.nodes_run());
    progress.mutable_progress()->set_nodes_total(outcome.reply.done.nodes_run());
    AddEvent(scope, events, std::move(progress));
  }
}

void JobFeed::AddLog(CoreScope& scope, Execution& job, v1::RunLog log) {
  v1::JobEvent event;
  *event.mutable_log() = std::move(log);
  AddEvent(scope, EventsOf(job), std::move(event));
}

void JobFeed::ForgetRecent(Tenant& tenant, const std::string& id) {
  const auto kept = tenant.recent.find(id);
  if (kept == tenant.recent.end()) {
    return;
  }
  const size_t weight = kJobWeight + kept->second->size();
  tenant.recent.erase(kept);
  Recent& recent = recent_.at(&tenant);
  recent.weight -= weight;
  recent_weight_ -= weight;
  while (!recent.ids.empty() && !tenant.recent.contains(recent.ids.front())) {
    recent.ids.pop_front();
  }
  if (recent.ids.empty()) {
    recent_.erase(&tenant);
  }
}

// Keeps the events of the last ended jobs for late watchers. No tenant's events are dropped because another tenant has
// many.
void JobFeed::KeepRecent(Execution& job) {
  if (job.stored->events == nullptr) {
    return;
  }
  job.stored->events->DropLogs();  // Late watchers read the log in the job.
  Tenant& tenant = *job.tenant;
  const std::string& id = job.shown().id();
  tenant.recent[id] = job.stored->events;
  const size_t weight = kJobWeight + job.stored->events->size();
  Recent& recent = recent_[&tenant];
  recent.ids.push_back(id);
  recent.weight += weight;
  recent_weight_ += weight;
  while (recent_weight_ > kRecentWeightMax) {
    Tenant& most = KeepsMost(tenant);
    ForgetRecent(most, std::string(recent_.at(&most).ids.front()));
  }
}

Tenant& JobFeed::KeepsMost(Tenant& newest) {
  if (const auto own = recent_.find(&newest);
      own != recent_.end() && own->second.weight > kRecentWeightMax / recent_.size()) {
    return newest;
  }
  const auto most = std::max_element(recent_.begin(), recent_.end(), [](const auto& one, const auto& other) {
    return one.second.weight < other.second.weight;
  });
  return *most->first;
}

void JobFeed::TellWatched(const Tenant& tenant) {
  if (options_.shared != nullptr) {
    options_.shared->SetWatched(tenant.name, tenant.job_watchers > 0 || !tenant.followed.empty());
  }
}

void JobFeed::Follow(Tenant& tenant, const v1::Job& job) {
  CoreScope scope(monitor_);
  if (JobTable::FindLive(tenant, job.id()) != nullptr) {
    return;
  }
  const auto [followed, is_new] = tenant.followed.try_emplace(job.id());
  if (is_new) {
    followed->second.events = std::make_shared<JobEvents>();
    followed->second.events->Add(JobEventOf(job), options_.clock->WallNs());
    TellWatched(tenant);
  }
}

void JobFeed::TellFollowed(Tenant& tenant, const v1::Job& job) {
  CoreScope scope(monitor_);
  AddFollowed(scope, tenant, job);
}

void JobFeed::AddFollowed(CoreScope& scope, Tenant& tenant, const v1::Job& job) {
  const auto followed = tenant.followed.find(job.id());
  if (followed != tenant.followed.end() && !followed->second.has_ended) {
    followed->second.has_ended = IsTerminal(job.state());
    AddEvent(scope, *followed->second.events, JobEventOf(job));
  }
}

void JobFeed::AddForeign(CoreScope& scope, const TenantRef& tenant, v1::Job job) {
  AddFollowed(scope, *tenant, job);
  if (!tenant->history.is_kept()) {
    return;
  }
  // The state that was reported before is not known; a client is told of jobs that leave the states that it asked for.
  const v1::JobState before = job.state() == v1::JOB_STATE_ACCEPTED  ? v1::JOB_STATE_UNSPECIFIED
                              : job.state() == v1::JOB_STATE_RUNNING ? v1::JOB_STATE_ACCEPTED
                                                                     : v1::JOB_STATE_RUNNING;
  job.set_change(tenant->history.next_number());
  job.clear_outputs();  // As in lists.
  v1::JobChange change;
  *change.mutable_job() = std::move(job);
  KeepChange(scope, tenant, std::move(change), before);
}

// Says that a started job waits for the disk; empty when it does not.
std::string JobFeed::RoomSentenceOf(const Execution& job) const {
  if (job.stored->awaits_room) {
    return "Waits for room on the server's disk; its result is kept in memory until then.";
  }
  const bool writes = job.stored->writing && job.shown().state() == v1::JOB_STATE_RUNNING;
  return writes && !table_.has_room ? "Waits for room on the server's disk." : "";
}

}  // namespace hpvm::server
