// SPDX-License-Identifier: Apache-2.0
#include "server/daemon.h"

#include <algorithm>
#include <utility>

#include "server/log.h"

namespace hpvm {
namespace {

v1::Device::Kind KindOf(const std::string& kind) {
  return kind == "null"     ? v1::Device::KIND_NULL
         : kind == "interp" ? v1::Device::KIND_INTERPRETER
         : kind == "cpu"    ? v1::Device::KIND_CPU
         : kind == "gpu"    ? v1::Device::KIND_GPU
         : kind == "fpga"   ? v1::Device::KIND_FPGA
                            : v1::Device::KIND_UNSPECIFIED;
}

v1::Device ToMessage(const ExecutorDevice& from) {
  v1::Device to;
  to.set_id(from.id);
  to.set_kind(KindOf(from.kind));
  to.set_name(from.name);
  to.set_silicon(from.silicon);
  to.set_compute_units(from.compute_units);
  to.set_memory_bytes(from.memory_bytes);
  to.set_allocation_bytes_max(from.memory_bytes);
  to.set_state(v1::Device::STATE_READY);
  return to;
}

}  // namespace

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
  HPVMD_ASSIGN_OR_RETURN(daemon->spawner_, CreateLinkSpawner(config));
  CoreOptions options;
  options.config = config;
  options.clock = &RealClock();
  options.rng = &SystemRng();
  options.spawner = daemon->spawner_.get();
  options.jobs = CreateMemoryJobStore();
  options.cpu_threads =
      static_cast<uint32_t>(config.executor_cpu_threads != 0 ? config.executor_cpu_threads
                                                             : std::max(1u, std::thread::hardware_concurrency()));
  daemon->core_ = std::make_unique<Core>(std::move(options));
  daemon->timer_ = std::make_unique<TimerThread>(*daemon->core_);
  HPVMD_ASSIGN_OR_RETURN(daemon->server_, GrpcServer::Start(*daemon->core_, addresses));
  daemon->probe_ = std::thread([self = daemon.get()] { self->Probe(); });
  return daemon;
}

void Daemon::Probe() {
  const StatusOr<ProbedDevices> found = spawner_->Probe("cpu");
  std::vector<v1::Device> devices;
  if (found.ok()) {
    for (const ExecutorDevice& device : found->devices) {
      devices.push_back(ToMessage(device));
    }
  } else {
    LogError("Probing the CPU failed: " + Message(found.status()));
    v1::Device& broken = devices.emplace_back();
    broken.set_id("cpu:0");
    broken.set_kind(v1::Device::KIND_CPU);
    broken.set_state(v1::Device::STATE_BROKEN);
    broken.set_detail(Message(found.status()));
  }
  core_->SetDevices(std::move(devices));
}

void Daemon::Stop(const std::function<bool()>& hurry) {
  core_->Drain();
  server_->AnnounceEnd();
  const Time deadline = RealClock().Now() + std::chrono::milliseconds(core_->config().server_drain_ms);
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
  if (probe_.joinable()) {
    probe_.join();
  }
  if (server_ != nullptr) {
    core_->Stop();
    server_.reset();
  }
  timer_.reset();
  core_.reset();
}

}  // namespace hpvm
