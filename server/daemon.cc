// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "server/log.h"

namespace hpvm {
TimerThread::TimerThread(Core& core) : core_(core) {
  core_.SetWake([this] {
    std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_one();
  });
  thread_ = std::thread([this] { Loop(); });
}

TimerThread::~TimerThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void TimerThread::Loop() {
  // At most this long asleep, so that no arithmetic with kNever is needed.
  constexpr Duration kLongest = std::chrono::minutes(1);
  while (true) {
    const Time due = core_.OnTime();
    std::unique_lock lock(mutex_);
    const Duration left = std::min(due - core_.clock().Now(), kLongest);
    if (left > Duration{0}) {
      changed_.wait_for(lock, left, [this] { return woken_ || stop_; });
    }
    woken_ = false;
    if (stop_) {
      return;
    }
  }
}

StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const Config& config) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<ListenAddress> addresses, ParseListen(config.server_listen));
  HPVMD_ASSIGN_OR_RETURN(daemon->folder_, StateFolder::Open(config.server_state_dir));
  HPVMD_RETURN_IF_ERROR(daemon->folder_->EndLeftovers().status());
  HPVMD_ASSIGN_OR_RETURN(daemon->spawner_, CreateLinkSpawner(config, *daemon->folder_));
  CoreOptions options;
  options.config = config;
  options.clock = &RealClock();
  options.rng = &SystemRng();
  options.spawner = daemon->spawner_.get();
  const auto on_broken = [](const Status& why) { LogError("Job store broken", {{"error", Message(why)}}); };
  HPVMD_ASSIGN_OR_RETURN(daemon->jobs_, config.jobs_store == "sqlite"
                                            ? OpenLocalJobStore(config.server_state_dir, on_broken)
                                            : OpenMemoryJobStore(config.server_state_dir));
  options.jobs = daemon->jobs_.get();
  options.awaits_devices = true;
  options.cpu_threads =
      static_cast<uint32_t>(config.executor_cpu_threads != 0 ? config.executor_cpu_threads
                                                             : std::max(1u, std::thread::hardware_concurrency()));
  daemon->core_ = std::make_unique<Core>(std::move(options));
  HPVMD_RETURN_IF_ERROR(daemon->core_->Restore());
  daemon->timer_ = std::make_unique<TimerThread>(*daemon->core_);
  HPVMD_ASSIGN_OR_RETURN(daemon->server_, GrpcServer::Start(*daemon->core_, addresses));
  daemon->probe_ = std::make_unique<ProbeThread>(*daemon->core_, *daemon->spawner_);
  return daemon;
}

ProbeThread::ProbeThread(Core& core, ExecutorSpawner& spawner) : core_(core), spawner_(spawner) {
  core_.SetProbeWake([this] { Wake(); });
  thread_ = std::thread([this] { Loop(); });
}

ProbeThread::~ProbeThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void ProbeThread::Wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

void ProbeThread::Rediscover() {
  std::lock_guard lock(mutex_);
  discover_ = woken_ = true;
  changed_.notify_one();
}

void ProbeThread::Discover() {
  const StatusOr<std::vector<std::string>> families = FamiliesOf(core_.config()->devices_backends);
  for (const std::string& family : families.value_or(std::vector<std::string>{"cpu"})) {
    core_.SetFound(family, spawner_.Probe(family));
  }
  core_.DevicesKnown();
}

// Tries a device out alone; it must be there, and work.
void ProbeThread::TryOut(const std::string& id) {
  const StatusOr<ProbedDevices> found = spawner_.Probe(id);
  Status outcome = found.status();
  if (found.ok() && found->devices.empty()) {
    outcome = Unavailable(found->broken.empty() ? "It is no longer there." : found->broken[0].detail);
  }
  core_.OnProbed(id, outcome);
}

void ProbeThread::Loop() {
  constexpr Duration kLongest = std::chrono::minutes(1);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const bool discover = std::exchange(discover_, false);
    woken_ = false;
    lock.unlock();
    if (discover) {
      Discover();
    }
    Time next = kNever;
    while (const std::optional<std::string> due = core_.DueProbe(&next)) {
      TryOut(*due);
    }
    lock.lock();
    const Duration left = std::min(next - core_.clock().Now(), kLongest);
    if (!stop_ && !woken_ && left > Duration{0}) {
      changed_.wait_for(lock, left, [this] { return woken_ || stop_; });
    }
  }
}

void Daemon::Stop(const std::function<bool()>& hurry) {
  core_->Drain();
  server_->AnnounceEnd();
  const Time deadline = RealClock().Now() + std::chrono::milliseconds(core_->config()->server_drain_ms);
  while (core_->operations() > 0 && RealClock().Now() < deadline && !hurry()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (const size_t left = core_->operations(); left > 0) {
    LogWarning("Stopping with " + std::to_string(left) + " runs in progress.");
  }
  core_->Stop();
  server_->Shutdown(std::chrono::milliseconds(200));
}

Daemon::~Daemon() {
  probe_.reset();
  if (server_ != nullptr) {
    core_->Stop();
    server_.reset();
  }
  timer_.reset();
  jobs_.reset();
  core_.reset();
}

}  // namespace hpvm
