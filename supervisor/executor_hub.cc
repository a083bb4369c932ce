// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_hub.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <utility>

#include "base/thread_watch.h"

namespace hpvm::supervisor {
namespace {

// epoll's datum: the source's id and the event's kind; 0 is the hub's own wake.
uint64_t Datum(uint64_t source, HubSource::Event event) { return source << 2 | static_cast<uint64_t>(event); }

// Posts `work` and waits until it is done.
template <typename Post>
void AwaitPosted(const Post& post, const std::function<void()>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  post([&] {
    work();
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();  // Under the lock: the waiter owns these variables.
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

}  // namespace

StatusOr<std::unique_ptr<ExecutorHub>> ExecutorHub::Create() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Core> core, Core::Create());
  return std::unique_ptr<ExecutorHub>(new ExecutorHub(std::move(core)));
}

ExecutorHub::ExecutorHub(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ExecutorHub::~ExecutorHub() = default;

StatusOr<std::unique_ptr<ExecutorHub::Core>> ExecutorHub::Core::Create() {
  std::unique_ptr<Core> core(new Core);
  core->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  core->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!core->epoll_.valid() || !core->wake_.valid()) {
    return FromErrno(errno, "Creating the executors' event loop");
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;
  if (epoll_ctl(core->epoll_.get(), EPOLL_CTL_ADD, core->wake_.get(), &event) != 0) {
    return FromErrno(errno, "Watching the executors' event loop");
  }
  core->thread_ = std::thread([raw = core.get()] { raw->Loop(); });
  return core;
}

ExecutorHub::Core::~Core() {
  if (thread_.joinable()) {
    Post([this] { stopping_ = true; });
    thread_.join();
  }
}

void ExecutorHub::Core::Wake() {
  const uint64_t one = 1;
  const ssize_t put = write(wake_.get(), &one, sizeof(one));
  HPVMD_CHECK(put == sizeof(one) || errno == EAGAIN);
}

void ExecutorHub::Core::Post(std::function<void()> work) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    wake = !std::exchange(woken_, true);
  }
  if (wake) {
    Wake();
  }
}

void ExecutorHub::Core::RunAndWait(const std::function<void()>& work) {
  if (IsHubThread()) {
    work();
  } else {
    AwaitPosted([this](std::function<void()> posted) { Post(std::move(posted)); }, work);
  }
}

void ExecutorHub::Core::SpawnAndWait(const std::function<void()>& work) {
  AwaitPosted([this](std::function<void()> posted) { spawns_.PostOnce("", std::move(posted)); }, work);
}

uint64_t ExecutorHub::Core::Add(HubSource* source) {
  const uint64_t id = next_source_++;
  sources_.emplace(id, source);
  return id;
}

void ExecutorHub::Core::Remove(uint64_t source) { sources_.erase(source); }

Status ExecutorHub::Core::Watch(uint64_t source, HubSource::Event event, int fd, uint32_t epoll_events) {
  epoll_event item{};
  item.events = epoll_events;
  item.data.u64 = Datum(source, event);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &item) != 0) {
    return FromErrno(errno, "Watching an executor");
  }
  return absl::OkStatus();
}

void ExecutorHub::Core::Rewatch(uint64_t source, HubSource::Event event, int fd, uint32_t epoll_events) {
  epoll_event item{};
  item.events = epoll_events;
  item.data.u64 = Datum(source, event);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &item);
}

void ExecutorHub::Core::Unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void ExecutorHub::Core::StartTimer(Time when, uint64_t source, uint64_t tag) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    const auto at = timers_.emplace(when, Timer{source, tag});
    // Only a new earliest timer shortens the sleep of the hub's thread.
    wake = at == timers_.begin() && !IsHubThread() && !std::exchange(woken_, true);
  }
  if (wake) {
    Wake();
  }
}

int ExecutorHub::Core::TimeoutMs() {
  std::lock_guard lock(mutex_);
  if (woken_ || timers_.empty()) {
    return woken_ ? 0 : -1;
  }
  const Duration left = timers_.begin()->first - RealClock().Now();
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1'000'000));
}

void ExecutorHub::Core::RunPosted() {
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(mutex_);
    work.swap(posted_);
    woken_ = false;
  }
  for (const std::function<void()>& step : work) {
    const WatchedItem item("hub", "posted");
    step();
  }
}

void ExecutorHub::Core::FireTimers() {
  std::vector<Timer> due;
  {
    std::lock_guard lock(mutex_);
    if (timers_.empty()) {
      return;
    }
    const auto end = timers_.upper_bound(RealClock().Now());
    for (auto it = timers_.begin(); it != end; ++it) {
      due.push_back(it->second);
    }
    timers_.erase(timers_.begin(), end);
  }
  for (const Timer& timer : due) {
    const auto found = sources_.find(timer.source);
    if (found != sources_.end()) {
      const WatchedItem item("hub", "timer");
      found->second->OnTimer(timer.tag);
    }
  }
}

void ExecutorHub::Core::Loop() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), TimeoutMs());
    for (int i = 0; i < count; ++i) {
      const uint64_t datum = events[static_cast<size_t>(i)].data.u64;
      if (datum == 0) {
        uint64_t ignored;
        const ssize_t got = read(wake_.get(), &ignored, sizeof(ignored));
        HPVMD_CHECK(got == sizeof(ignored) || errno == EAGAIN);
        continue;
      }
      const auto found = sources_.find(datum >> 2);
      if (found != sources_.end()) {
        const WatchedItem item("hub", "event");
        found->second->OnEvent(static_cast<HubSource::Event>(datum & 3), events[static_cast<size_t>(i)].events);
      }
    }
    RunPosted();
    FireTimers();
  }
}

}  // namespace hpvm::supervisor
