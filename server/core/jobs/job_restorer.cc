// SPDX-License-Identifier: Apache-2.0
#include "server/core/jobs/job_restorer.h"

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "server/jobs/rows/job_rules.h"
#include "server/jobs/rows/retry.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// When the clock differs by more than this from the newest time in the store, deadlines are checked again before they
// end jobs.
constexpr Duration kClockOffMax = std::chrono::hours(1);
// A disk that could not be read once may be readable the next time.
constexpr int kReadsMax = 3;
constexpr const char* kRowsDamaged = "Rows of the store are damaged.";

int64_t NewestTime(const v1::Job& job) {
  const int64_t lost = job.lost_attempts().empty() ? 0 : job.lost_attempts().rbegin()->ended_unix_ns();
  return std::max({job.created_unix_ns(), job.started_unix_ns(), job.ended_unix_ns(), lost});
}

}  // namespace

// RestoredUnits are the units of one tenant that the restored jobs depend on.
struct JobRestorer::RestoredUnits {
  StoredUnits stored;
  // Units that are no longer stored, and that damage cannot hide: they had ended as required, otherwise the jobs that
  // waited for them would have ended then.
  std::set<std::string> gone;
  std::map<std::string, std::string> unreadable;  // Units whose end the store cannot tell, with the reason.
};

Status JobRestorer::Restore() {
  JobDatabase& database = options_.jobs->database();
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("core.restore"));
  HPVMD_ASSIGN_OR_RETURN(const uint64_t lease, database.NextLease());
  std::vector<LiveRow> rows;
  std::vector<DamagedJob> damaged;
  HPVMD_RETURN_IF_ERROR(database.LoadLive([&](LiveRow row) { rows.push_back(std::move(row)); }, &damaged));
  HPVMD_RETURN_IF_ERROR(EndDamaged(damaged));
  HPVMD_RETURN_IF_ERROR(MendKeys());
  HPVMD_ASSIGN_OR_RETURN(const auto uses, database.Use());
  const bool doubts_clock = DoubtsClock(rows, uses);
  std::vector<ExecutionRef> taken;
  {
    CoreScope scope(monitor_);
    for (const auto& [name, use] : uses) {
      const TenantRef tenant = tenants_.FindOrAdd(scope, name);
      tenant->stored_rows.Merge(tenant->account.TakeAnyway(scheduler::Resource::kDiskBytes, use.stored_bytes));
    }
    SharedRows shared;
    for (LiveRow& row : rows) {
      taken.push_back(TakeUp(scope, std::move(row), doubts_clock, &shared));
    }
  }
  DamagedUnits damaged_units;
  CountArrays(taken, damaged_units);
  std::map<Tenant*, RestoredUnits> units;
  ReadForRestore(taken, damaged_units, &units);
  CoreScope scope(monitor_);
  table_.lease = lease;
  for (const ExecutionRef& job : taken) {
    RestoreDependencies(*job, units[job->tenant.get()], doubts_clock);
  }
  for (const ExecutionRef& job : taken) {
    if (job->shown().state() != v1::JOB_STATE_RUNNING) {
      lifecycle_.Settle(scope, job);
      continue;
    }
    RunOutcome lost;
    lost.was_sent = true;
    lost.outcome = Unavailable("The daemon ended while attempt " + std::to_string(job->shown().attempt()) + " ran.");
    job->stored->attempt = std::make_unique<JobAttempt>();
    job->stored->lost_cause = events::LostCause::kDaemon;
    lifecycle_.FinishAttempt(scope, job, std::move(lost));
  }
  LogInfo("Jobs restored", {{"jobs", std::to_string(taken.size())}, {"lease", std::to_string(lease)}});
  return absl::OkStatus();
}

// A machine may start before it knows the time.
bool JobRestorer::DoubtsClock(const std::vector<LiveRow>& live, const std::map<std::string, TenantUse>& uses) {
  int64_t newest = 0;
  for (const LiveRow& row : live) {
    newest = std::max(newest, NewestTime(row.job.job()));
  }
  JobFilter last;
  last.count_max = 1;
  for (const auto& [tenant, use] : uses) {
    const StatusOr<std::vector<StoredJob>> rows = options_.jobs->database().List(tenant, last);
    newest = rows.ok() && !rows->empty() ? std::max(newest, NewestTime(rows->front().job())) : newest;
  }
  const Duration off(options_.clock->WallNs() - newest);
  if (newest == 0 || (off >= -kClockOffMax && off <= kClockOffMax)) {
    return false;
  }
  LogWarning(
      "The clock differs much from the newest time in the job store; deadlines that have passed by this clock are "
      "checked again before they end a job",
      {{"seconds", std::to_string(off.count() / 1'000'000'000)},
       {"wait_seconds", std::to_string(JobLifecycle::kLookAgain / std::chrono::seconds(1))}});
  return true;
}

ExecutionRef JobRestorer::TakeUp(CoreScope& scope, LiveRow row, bool doubts_clock, SharedRows* shared) {
  const TenantRef tenant = tenants_.FindOrAdd(scope, row.job.tenant());
  std::shared_ptr<const StoredJob> of_array;
  if (row.shares) {
    std::shared_ptr<const StoredJob>& known = (*shared)[{row.job.tenant(), row.job.job().array_id()}];
    known = known == nullptr ? std::make_shared<const StoredJob>(SharedOf(row.job)) : known;
    of_array = known;
    RemoveShared(&row.job);
  }
  const ExecutionRef job = NewJob(tenant, std::move(row.job));
  job->stored->shared = std::move(of_array);
  job->stored->restored = true;
  const v1::Job& shown = job->shown();
  const bool is_running = shown.state() == v1::JOB_STATE_RUNNING;
  job->phase = is_running ? Execution::Phase::kReading : Execution::Phase::kWaiting;
  job->stored->cancel_asked = shown.cancel_requested();
  // The wall clock went on since, or jumped: waits become longer or shorter, within their limits.
  const Time now = options_.clock->Now();
  const int64_t wall = options_.clock->WallNs();
  const auto until = [&](int64_t unix_ns, Duration most) {
    return std::clamp(Duration(unix_ns - wall), Duration{0}, most);
  };
  const Duration age = std::clamp(Duration(wall - shown.created_unix_ns()), Duration{0}, Duration(now));
  job->received = now - age;
  job->deadline = lifecycle_.RestoredDeadline(*job);
  job->stored->not_before =
      now + (shown.not_before_unix_ns() == 0
                 ? Duration{0}
                 : until(shown.not_before_unix_ns(),
                         std::chrono::milliseconds(config_->executor_crash_window_ms) + kRetryDelayMax));
  table_.SetWaiting(*job, !is_running);
  table_.SetRunning(*job, is_running);
  job->stored->told = shown.state();
  table_.AddLive(job);
  if (job->deadline <= now && doubts_clock) {
    lifecycle_.LookAtDeadlineAgain(scope, job);
  } else if (job->deadline <= now) {
    job->stored->is_late = true;
  } else {
    lifecycle_.SetDeadline(scope, job);
  }
  return job;
}

// Called before any other reader, so that jobs that depend on such a job find it failed.
Status JobRestorer::EndDamaged(const std::vector<DamagedJob>& damaged) {
  for (const DamagedJob& job : damaged) {
    LogError("Job damaged: its row in the store is not what was written, and it ends as FAILED with DATA_LOSS",
             {{"tenant", job.tenant}, {"job", job.id}});
  }
  if (damaged.empty()) {
    return absl::OkStatus();
  }
  const Status ended = options_.jobs->database().EndDamaged(damaged, options_.clock->WallNs());
  if (absl::IsResourceExhausted(ended)) {
    // These jobs do not run in either case, and the next start tries again.
    LogError("Damaged jobs not ended in the store, which has no room", {{"error", Message(ended)}});
    return absl::OkStatus();
  }
  return While(ended, "ending jobs whose rows in the store are damaged");
}

// Called before any client uses one of the keys again: its job would run twice.
Status JobRestorer::MendKeys() {
  const StatusOr<std::vector<uint64_t>> keyless = options_.jobs->database().ListKeyless();
  if (!keyless.ok()) {
    LogError("Idempotency keys not checked for damage", {{"error", Message(keyless.status())}});
    return absl::OkStatus();
  }
  const StatusOr<uint64_t> mended = options_.jobs->database().MendKeys(*keyless);
  if (absl::IsResourceExhausted(mended.status())) {
    LogError("Damaged idempotency keys not repaired in the store, which has no room",
             {{"error", Message(mended.status())}});
    return absl::OkStatus();
  }
  HPVMD_RETURN_IF_ERROR(While(mended.status(), "repairing idempotency keys whose rows in the store are damaged"));
  if (*mended > 0) {
    LogError("Damaged idempotency keys in the store were restored from the jobs that have them",
             {{"keys", std::to_string(*mended)}});
  }
  return absl::OkStatus();
}

// Returns the jobs and arrays to which a damaged row may belong, with "" when the store cannot be read through.
std::set<std::string> JobRestorer::ReadDamagedUnits() {
  std::set<std::string> units;
  const Status read = options_.jobs->database().ListDamaged([&](const DamagedJob& job) {
    LogError("Job damaged: its row in the store is not what was written", {{"tenant", job.tenant}, {"job", job.id}});
    units.insert(job.units.begin(), job.units.end());
  });
  if (!read.ok()) {
    LogError("Rows of jobs not checked for damage", {{"error", Message(read)}});
    units.insert("");
  }
  return units;
}

// Retries a failed read: the disk may be readable the next time.
StatusOr<StoredUnit> JobRestorer::ReadUnit(const Tenant& tenant, const std::string& id) {
  Status failed;
  for (int reads = 0; reads < kReadsMax; ++reads) {
    UnitReader reader(options_.jobs->database(), tenant.name, {id});
    failed = HPVMD_FAILPOINT("core.restore.read");
    StatusOr<bool> step = failed.ok() ? StatusOr<bool>(false) : StatusOr<bool>(failed);
    while (step.ok() && !*step) {
      step = reader.Step();
    }
    if (step.ok()) {
      return reader.units().at(id);
    }
    failed = step.status();
    if (absl::IsNotFound(failed)) {
      break;
    }
  }
  return failed;
}

// Damage may hide a job, or an element of an array, from readers.
bool JobRestorer::MayBeDamaged(const std::string& unit, DamagedUnits& damaged) {
  if (!damaged.has_value()) {
    damaged = ReadDamagedUnits();
  }
  return damaged->contains(unit) || damaged->contains("");
}

// Counts the ended elements of arrays that live on. The store is not read for arrays whose elements all live.
void JobRestorer::CountArrays(const std::vector<ExecutionRef>& taken, DamagedUnits& damaged) {
  std::map<std::pair<Tenant*, std::string>, uint64_t> sizes;
  {
    CoreScope scope(monitor_);
    for (const ExecutionRef& job : taken) {
      const LiveArray* array = table_.ArrayOf(*job);
      if (array != nullptr && job->stored->row.array_size() != array->live.size()) {
        sizes[{job->tenant.get(), job->shown().array_id()}] = job->stored->row.array_size();
      }
    }
  }
  for (const auto& [key, size] : sizes) {
    const auto& [tenant, id] = key;
    const StatusOr<StoredUnit> unit = ReadUnit(*tenant, id);
    const bool may_hide_more = unit.ok() && MayBeDamaged(id, damaged);
    CoreScope scope(monitor_);
    LiveArray& array = *tenant->arrays.at(id);
    if (may_hide_more || (unit.ok() && unit->state.live != array.live.size())) {
      // Or the index of the store is damaged through which the live elements are found.
      array.unreadable = kRowsDamaged;
    } else if (unit.ok()) {
      array.succeeded = unit->state.succeeded;
      array.failed = unit->state.failed;
      array.missing = unit->missing();
    } else {
      array.unreadable = Message(unit.status());
    }
  }
}

// Reads the ended units that the restored jobs depend on. Jobs that have started once are skipped: their dependencies
// were met.
void JobRestorer::ReadForRestore(const std::vector<ExecutionRef>& taken, DamagedUnits& damaged,
                                 std::map<Tenant*, RestoredUnits>* units) {
  std::set<std::pair<Tenant*, std::string>> unknown;
  {
    CoreScope scope(monitor_);
    for (const ExecutionRef& job : taken) {
      for (const v1::JobDependency& dependency : job->after()) {
        const std::string& id = dependency.job_id();
        if (job->shown().attempt() > 0 || job->tenant->jobs.contains(id)) {
          continue;
        }
        if (const auto array = job->tenant->arrays.find(id); array == job->tenant->arrays.end()) {
          unknown.emplace(job->tenant.get(), id);
        } else if (!array->second->unreadable.empty()) {
          (*units)[job->tenant.get()].unreadable.emplace(id, array->second->unreadable);
        }
      }
    }
  }
  for (const auto& [tenant, id] : unknown) {
    RestoredUnits& known = (*units)[tenant];
    const StatusOr<StoredUnit> read = ReadUnit(*tenant, id);
    if (read.ok() && read->state.live > 0) {
      known.unreadable.emplace(id, kRowsDamaged);
    } else if (absl::IsNotFound(read.status()) || (read.ok() && id.starts_with("array-"))) {
      if (MayBeDamaged(id, damaged)) {
        known.unreadable.emplace(id, kRowsDamaged);
      } else if (!read.ok()) {
        known.gone.insert(id);
        LogWarning("A job comes after a job that is no longer stored", {{"tenant", tenant->name}, {"job", id}});
      }
    } else if (!read.ok()) {
      LogError("A job does not run: it comes after a job whose outcome the store cannot read",
               {{"tenant", tenant->name}, {"job", id}, {"error", Message(read.status())}});
      known.unreadable.emplace(id, Message(read.status()));
    }
    if (read.ok()) {
      known.stored.emplace(id, *read);
    }
  }
}

void JobRestorer::RestoreDependencies(Execution& job, const RestoredUnits& units, bool doubts_clock) {
  if (job.shown().attempt() > 0) {
    return;
  }
  std::vector<v1::JobDependency> after;
  for (const v1::JobDependency& dependency : job.after()) {
    if (const auto unreadable = units.unreadable.find(dependency.job_id()); unreadable != units.unreadable.end()) {
      job.stored->damage = DataLoss("The job was not started: it comes after " + dependency.job_id() +
                                    ", whose outcome the store cannot read. " + unreadable->second);
    } else if (!units.gone.contains(dependency.job_id())) {
      after.push_back(dependency);
    }
  }
  table_.AddWaits(*job.tenant, job, table_.JudgeUnits(*job.tenant, after, units.stored));
  // The limit of waiting continues where it stood: by the wall clock, at most as long as the limit.
  int64_t since = std::max(job.shown().created_unix_ns(), job.stored->row.released_unix_ns());
  for (const v1::JobDependency& dependency : after) {
    if (const auto unit = units.stored.find(dependency.job_id()); unit != units.stored.end()) {
      since = std::max(since, unit->second.ended_unix_ns);
    }
  }
  const Duration waited(doubts_clock ? 0 : options_.clock->WallNs() - since);
  const Duration most(static_cast<int64_t>(std::min<uint64_t>(job.shown().limits().wait_ns(), INT64_MAX)));
  if (job.shown().limits().wait_ns() > 0 && !job.shown().has_hold()) {
    job.stored->could_start = options_.clock->Now() - std::clamp(waited, Duration{0}, most);
  }
}

}  // namespace hpvm::server
