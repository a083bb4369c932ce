// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/testing/live_hosts.h"

#include <algorithm>
#include <future>
#include <utility>

namespace hpvm::server::cluster {
namespace {

constexpr std::chrono::seconds kAnswerTimeout{10};

template <typename T>
StatusOr<T> Ask(const std::function<void(ClusterStore::Done<T>)>& call) {
  // The store may answer after the wait is over.
  const auto answer = std::make_shared<std::promise<StatusOr<T>>>();
  std::future<StatusOr<T>> future = answer->get_future();
  call([answer](StatusOr<T> value) { answer->set_value(std::move(value)); });
  if (future.wait_for(kAnswerTimeout) != std::future_status::ready) {
    return DeadlineExceeded("The store did not answer.");
  }
  return future.get();
}

}  // namespace

// --- The ledger ---

void RunLedger::Started(const std::string& host, const HeldJob& job) {
  const std::lock_guard lock(mutex_);
  ++starts_;
  std::set<std::string>& hosts = active_[job.id];
  hosts.insert(host);
  if (hosts.size() > 1) {
    doubles_.insert(job.id);
  }
}

void RunLedger::Ended(const std::string& host, const HeldJob& job) {
  const std::lock_guard lock(mutex_);
  active_[job.id].erase(host);
}

void RunLedger::HostEnded(const std::string& host) {
  const std::lock_guard lock(mutex_);
  for (auto& [job, hosts] : active_) {
    hosts.erase(host);
  }
}

uint64_t RunLedger::starts() const {
  const std::lock_guard lock(mutex_);
  return starts_;
}

std::set<std::string> RunLedger::doubles() const {
  const std::lock_guard lock(mutex_);
  return doubles_;
}

// --- A host ---

LiveHost::LiveHost(std::string name, const std::string& process, LiveHostOptions options, AgentStore& store,
                   RunLedger& ledger)
    : name_(std::move(name)), options_(options), ledger_(ledger) {
  AgentLoopOptions loop;
  loop.agent.worker = {
      .name = name_, .has = {"kind:cpu"}, .memory_bytes = uint64_t{1} << 40, .process = process, .replaces = ""};
  loop.agent.runs_max = options.runs_max;
  loop.agent.renew_every = options.renew_every;
  loop.agent.claim_every = options.claim_every;
  loop.agent.stop_margin = options.stop_margin;
  loop.agent.call_timeout = options.call_timeout;
  loop.sweep_every = options.sweep_every;
  thread_ = std::thread([this] { Work(); });
  loop_ = std::make_unique<AgentLoop>(loop, store, *this);
}

LiveHost::~LiveHost() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  loop_ = nullptr;
  ledger_.HostEnded(name_);
}

void LiveHost::Start(const Claim& claim) {
  const HeldJob job{claim.tenant, claim.id, claim.fence};
  ledger_.Started(name_, job);
  const std::lock_guard lock(mutex_);
  runs_.emplace(RealClock().Now() + options_.run_time, job);
  changed_.notify_all();
}

void LiveHost::Stop(const HeldJob& job, StopReason) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(runs_, [&](const auto& run) { return run.second == job; });
    if (found == runs_.end()) {
      return;
    }
    runs_.erase(found);
  }
  End(job, JobState::kWaiting);
}

void LiveHost::End(const HeldJob& job, JobState state) {
  ledger_.Ended(name_, job);
  loop_->OnRunEnded(job, {.state = state,
                          .result = job.id + "/" + std::to_string(job.fence),
                          .record = "",
                          .device_time = options_.run_time});
}

void LiveHost::Work() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    const Time now = RealClock().Now();
    if (runs_.empty() || runs_.begin()->first > now) {
      const Duration left = runs_.empty() ? std::chrono::seconds(1) : runs_.begin()->first - now;
      changed_.wait_for(lock, left);
      continue;
    }
    const HeldJob job = runs_.begin()->second;
    runs_.erase(runs_.begin());
    lock.unlock();
    End(job, JobState::kSucceeded);
    lock.lock();
  }
}

// --- Calls ---

StatusOr<std::vector<JobView>> SubmitAndWait(ClusterStore& store, const std::vector<NewJob>& jobs) {
  return Ask<std::vector<JobView>>([&](auto done) { store.Submit(jobs, std::move(done)); });
}

StatusOr<JobView> GetAndWait(ClusterStore& store, const std::string& tenant, const std::string& id) {
  return Ask<JobView>([&](auto done) { store.Get(tenant, id, std::move(done)); });
}

StatusOr<Events> WatchAndWait(ClusterStore& store, const std::string& tenant, uint64_t cursor, uint32_t most) {
  return Ask<Events>([&](auto done) { store.Watch(tenant, cursor, most, std::move(done)); });
}

Status WaitForStarts(const RunLedger& ledger, uint64_t starts, Duration timeout) {
  const Time end = RealClock().Now() + timeout;
  while (ledger.starts() < starts) {
    if (RealClock().Now() >= end) {
      return DeadlineExceeded(std::to_string(ledger.starts()) + " of " + std::to_string(starts) +
                              " runs have started.");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return absl::OkStatus();
}

std::vector<JobView> WaitForEnds(ClusterStore& store, const std::string& tenant, const std::vector<std::string>& ids,
                                 Duration timeout) {
  const Time end = RealClock().Now() + timeout;
  std::vector<JobView> views;
  for (const std::string& id : ids) {
    while (true) {
      const StatusOr<JobView> view = GetAndWait(store, tenant, id);
      if ((view.ok() && IsEnd(view->state)) || RealClock().Now() >= end) {
        views.push_back(view.value_or(JobView()));
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  return views;
}

}  // namespace hpvm::server::cluster
