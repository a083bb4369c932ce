// SPDX-License-Identifier: Apache-2.0
#include "server/observe/watch.h"

#include <algorithm>
#include <utility>

#include "server/process/log.h"

namespace hpvm::server {
namespace {

constexpr Duration kPeriod = std::chrono::seconds(1);
// Until the daemon is ready, the watch runs more often than once a second.
constexpr Duration kPeriodUnready = std::chrono::milliseconds(50);

uint64_t QueuedOf(const CoreSnapshot& snapshot) { return snapshot.jobs_accepted + snapshot.jobs_queued; }

}  // namespace

void Heart::Beat() {
  // A loop may beat often: without a request a beat costs one load.
  if (const int64_t asked = asked_ns_.load(std::memory_order_acquire); asked != 0) {
    answered_in_ns_.store(clock_.Now().count() - asked, std::memory_order_relaxed);
    asked_ns_.store(0, std::memory_order_release);
  }
}

Duration Heart::Ask() {
  if (const Duration owed = owes(); owed != Duration{0}) {
    return owed;
  }
  asked_ns_.store(std::max<int64_t>(clock_.Now().count(), 1), std::memory_order_release);
  return Duration(answered_in_ns_.load(std::memory_order_relaxed));
}

Duration Heart::owes() const {
  const int64_t asked = asked_ns_.load(std::memory_order_acquire);
  return asked == 0 ? Duration{0} : std::max(Duration{1}, clock_.Now() - Time(asked));
}

Watch::Watch(const Clock& clock, const PrometheusObserver& metrics, Heart& heart)
    : clock_(clock), metrics_(metrics), heart_(heart) {}

void Watch::Start(WatchedParts parts) {
  parts_ = std::move(parts);
  {
    std::lock_guard lock(mutex_);
    has_started_ = true;
  }
  thread_.emplace([this] { return Round(); });
}

void Watch::Stop() {
  if (thread_.has_value()) {
    thread_->Stop();
  }
}

Duration Watch::Round() {
  const bool is_periodic = clock_.Now() >= periodic_;
  if (is_periodic) {
    periodic_ = clock_.Now() + kPeriod;
    const Duration stall = heart_.Ask();
    if (parts_.wake_timer) {
      parts_.wake_timer();
    }
    SummariseLog();
    std::lock_guard lock(mutex_);
    stalls_.Push(stall);
  }
  const bool is_ready = Assess(is_periodic && parts_.wants_tenants);
  const Duration rest = std::max(periodic_ - clock_.Now(), Duration{0});
  return is_ready ? rest : std::min(rest, kPeriodUnready);
}

bool Watch::Assess(bool with_tenants) {
  {
    std::lock_guard lock(mutex_);
    asked_core_ = clock_.Now();
  }
  CoreSnapshot snapshot = parts_.snapshot(with_tenants);
  const std::shared_ptr<const Config> config = parts_.config();
  std::optional<ClusterFacts> cluster;
  if (parts_.cluster) {
    cluster = parts_.cluster();
  }
  HealthReport report;
  {
    std::lock_guard lock(mutex_);
    cluster_ = cluster;
    asked_core_ = kNever;
    store_owes_ = StoreOwes(snapshot.store);
    congestion_.Update(QueuedOf(snapshot), config->jobs_queued_max);
    queued_max_ = config->jobs_queued_max;
    desired_workers_ =
        DesiredWorkers(QueuedOf(snapshot), snapshot.jobs_running + snapshot.runs, config->jobs_running_max);
    if (!with_tenants && snapshot_ != nullptr) {
      snapshot.tenants = snapshot_->tenants;
    }
    snapshot_ = std::make_shared<const CoreSnapshot>(std::move(snapshot));
    report = server::Assess(FactsNow());
  }
  if (const std::pair now(report.live, report.ready); parts_.set_health && told_ != now) {
    told_ = now;
    parts_.set_health(report.live, report.ready);
  }
  return report.ready;
}

// Returns the time for which writes have waited without a commit ending, even in failure.
Duration Watch::StoreOwes(const JobStoreHealth& store) {
  const Time commit = metrics_.last_commit();
  if (store.pending_writes == 0 || commit != store_commit_seen_) {
    store_commit_seen_ = commit;
    store_pending_since_ = store.pending_writes == 0 ? kNever : clock_.Now();
  } else if (store_pending_since_ == kNever) {
    store_pending_since_ = clock_.Now();
  }
  return store_pending_since_ == kNever ? Duration{0} : clock_.Now() - store_pending_since_;
}

HealthFacts Watch::FactsNow() const {
  HealthFacts facts;
  facts.now = clock_.Now();
  facts.has_started = has_started_;
  facts.snapshot = snapshot_;
  facts.core_owes = asked_core_ == kNever ? Duration{0} : facts.now - asked_core_;
  facts.timer_owes = heart_.owes();
  facts.store_owes = store_owes_;
  const PrometheusObserver::SpawnFailures failures = metrics_.spawn_failures();
  facts.spawn_failures = failures.in_a_row;
  facts.last_spawn_failure = failures.last;
  return facts;
}

Watch::View Watch::Look() {
  std::lock_guard lock(mutex_);
  View view;
  view.facts = FactsNow();
  view.report = server::Assess(view.facts);
  view.is_congested = congestion_.is_congested();
  view.desired_workers = desired_workers_;
  view.loop_stall_max = std::max(stalls_.max(), view.facts.timer_owes);
  view.queued_max = queued_max_;
  view.cluster = cluster_;
  return view;
}

}  // namespace hpvm::server
