// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "server/core/jobs/job_lifecycle.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Limits in requests are capped, so that times stay within a clock's range.
constexpr uint64_t kLimitNsMax = 100ull * 365 * 86'400 * 1'000'000'000;

}  // namespace

std::string LimitText(uint64_t limit_ns, uint64_t asked_ns, std::string_view quota) {
  const uint64_t ms = limit_ns / 1'000'000;
  const std::string value = ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  return "(" + value + ", set by " +
         (asked_ns == limit_ns ? "the submitter" : "the tenant's quota of " + std::string(quota)) + ").";
}

Time JobLifecycle::RestoredDeadline(const Execution& job) const {
  const v1::Job& shown = job.shown();
  if (shown.deadline_unix_ns() == 0) {
    return kNever;
  }
  const Duration most = std::max(Duration(shown.deadline_unix_ns() - shown.created_unix_ns()), Duration{0});
  return options_.clock->Now() +
         std::clamp(Duration(shown.deadline_unix_ns() - options_.clock->WallNs()), Duration{0}, most);
}

// The job does not start until then, because a job whose deadline has passed must not.
void JobLifecycle::LookAtDeadlineAgain(CoreScope& scope, const ExecutionRef& job) {
  const Time then = options_.clock->Now() + kLookAgain;
  job->stored->not_before = std::max(job->stored->not_before, then);
  job->deadline_timer = monitor_.AddTimer(scope, then, [this, job](CoreScope& inner) {
    job->deadline_timer = {kNever, 0};
    job->deadline = RestoredDeadline(*job);
    if (job->deadline <= options_.clock->Now()) {
      job->stored->is_late = true;
    } else {
      SetDeadline(inner, job);
    }
    Settle(inner, job);
  });
}

// A job that runs has read its request, and may end well; one that has to run again cannot.
void JobLifecycle::OnDamage(const JobDamage& damage) {
  CoreScope scope(monitor_);
  const TenantRef tenant = tenants_.FindKnown(damage.tenant);
  if (tenant == nullptr || shutdown_.closed) {
    return;
  }
  const auto found = tenant->jobs.find(damage.id);
  if (found == tenant->jobs.end()) {
    return;
  }
  const ExecutionRef job = found->second;
  job->stored->damage = damage.what;
  if (job->phase == Execution::Phase::kQueued) {
    Unqueue(scope, job);
  }
  Settle(scope, job);
}

v1::JobLimits JobLifecycle::LimitsFor(const Tenant& tenant, const v1::JobLimits& asked) {
  const auto of = [&](scheduler::Resource resource, uint64_t own) {
    const uint64_t quota = tenant.policy->limits[static_cast<size_t>(resource)];
    return quota == 0 || own == 0 ? std::max(quota, own) : std::min(quota, own);
  };
  v1::JobLimits limits;
  limits.set_wait_ns(of(scheduler::Resource::kJobWait, asked.wait_ns()));
  limits.set_run_ns(of(scheduler::Resource::kJobRun, asked.run_ns()));
  limits.set_device_ns(of(scheduler::Resource::kJobDeviceTime, asked.device_ns()));
  return limits;
}

// Starts the limit of waiting of a job that has not started: it counts from when the job could start, until it has
// started once. A job that is held, or waits for dependencies, could not.
void JobLifecycle::WatchWait(CoreScope& scope, const ExecutionRef& job) {
  const uint64_t most_ns = job->shown().limits().wait_ns();
  if (most_ns == 0 || job->shown().attempt() > 0) {
    return;
  }
  if (job->shown().has_hold() || job->tenant->dependencies.IsWaiting(job->shown().id())) {
    job->stored->could_start = kNever;
    monitor_.DropTimer(job->stored->limit_timer);
    return;
  }
  if (job->stored->could_start == kNever) {
    job->stored->could_start = options_.clock->Now();
  }
  if (job->stored->limit_timer.first != kNever) {
    return;
  }
  const Time end = job->stored->could_start + Duration(static_cast<int64_t>(std::min<uint64_t>(most_ns, kLimitNsMax)));
  job->stored->limit_timer = monitor_.AddTimer(scope, end, [this, job](CoreScope& inner) {
    job->stored->limit_timer = {kNever, 0};
    job->stored->waited_too_long = true;
    if (job->phase == Execution::Phase::kQueued) {
      Unqueue(inner, job);
    }
    Settle(inner, job);
  });
}

// Starts the limit of the run's time at the commit of RUNNING, the time in started_unix_ns.
void JobLifecycle::WatchRun(CoreScope& scope, const ExecutionRef& job) {
  monitor_.DropTimer(job->stored->limit_timer);
  const uint64_t most_ns = job->shown().limits().run_ns();
  if (most_ns == 0) {
    return;
  }
  const Time end = options_.clock->Now() + Duration(static_cast<int64_t>(std::min<uint64_t>(most_ns, kLimitNsMax)));
  job->stored->attempt->run_timer =
      monitor_.AddTimer(scope, end, [this, job, attempt = job->stored->attempt.get()](CoreScope& inner) {
        if (job->stored->attempt.get() != attempt) {
          return;
        }
        attempt->run_timer = {kNever, 0};
        attempt->over = DeadlineExceeded(
            "The attempt did not end within its limit " +
            LimitText(job->shown().limits().run_ns(), job->stored->row.asked_limits().run_ns(), "job-run-seconds"));
        runs_.StopRun(inner, job, attempt->over);
      });
}

// Ends the limit of the attempt's time.
void JobLifecycle::LeaveRun(Execution& job) {
  if (job.stored->attempt != nullptr) {
    monitor_.DropTimer(job.stored->attempt->run_timer);
  }
}

void JobLifecycle::SetDeadline(CoreScope& scope, const ExecutionRef& job) {
  if (job->deadline == kNever) {
    return;
  }
  job->deadline_timer = monitor_.AddTimer(scope, job->deadline, [this, job](CoreScope& inner) {
    job->deadline_timer = {kNever, 0};
    Expire(inner, job);
  });
}

void JobLifecycle::Expire(CoreScope& scope, const ExecutionRef& job) {
  job->stored->is_late = true;
  if (job->phase == Execution::Phase::kQueued) {
    Unqueue(scope, job);
  }
  runs_.StopRun(scope, job, DeadlineExceeded("The job did not end within its deadline."));
  Settle(scope, job);
}

}  // namespace hpvm::server
