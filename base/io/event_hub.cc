// SPDX-License-Identifier: Apache-2.0
#include "base/io/event_hub.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <utility>

#include "base/thread_watch.h"

namespace hpvm {
namespace {

// Interval of checks for events, posted work and timers while turns follow each other without a pause.
constexpr Duration kLookEvery = std::chrono::microseconds(50);

// epoll's user data: the source's id and the event's kind; 0 is the hub's own wake-up.
uint64_t Datum(uint64_t source, uint8_t kind) { return source << 8 | kind; }

}  // namespace

void AwaitPosted(const std::function<void(std::function<void()>)>& post, const std::function<void()>& work) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  post([&] {
    work();
    std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();  // Under the lock, because the waiter owns these variables.
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done; });
}

StatusOr<std::unique_ptr<EventHub>> EventHub::Create(Duration spin) {
  std::unique_ptr<EventHub> hub(new EventHub(spin));
  hub->epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  hub->wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!hub->epoll_.valid() || !hub->wake_.valid()) {
    return FromErrno(errno, "Creating an event loop");
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = 0;
  if (epoll_ctl(hub->epoll_.get(), EPOLL_CTL_ADD, hub->wake_.get(), &event) != 0) {
    return FromErrno(errno, "Watching an event loop");
  }
  hub->thread_ = std::thread([raw = hub.get()] { raw->Loop(); });
  return hub;
}

EventHub::~EventHub() {
  if (thread_.joinable()) {
    Post([this] { stopping_ = true; });
    thread_.join();
  }
}

void EventHub::Wake() {
  const uint64_t one = 1;
  const ssize_t put = write(wake_.get(), &one, sizeof(one));
  HPVMD_CHECK(put == sizeof(one));  // 2^64 wakes do not happen.
}

void EventHub::Post(std::function<void()> work) {
  bool wake;
  {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
    has_news_.store(true, std::memory_order_release);
    wake = std::exchange(is_asleep_, false);
  }
  if (wake) {
    Wake();
  }
}

void EventHub::RunAndWait(const std::function<void()>& work) {
  if (IsHubThread()) {
    work();
  } else {
    AwaitPosted([this](std::function<void()> posted) { Post(std::move(posted)); }, work);
  }
}

uint64_t EventHub::Add(EventSource* source) {
  const uint64_t id = next_source_++;
  sources_.emplace(id, Source{source});
  return id;
}

void EventHub::Remove(uint64_t source) { sources_.erase(source); }

void EventHub::KeepAwake(uint64_t source) {
  const auto found = sources_.find(source);
  if (found != sources_.end() && !std::exchange(found->second.is_awake, true)) {
    awake_.push_back(source);
  }
}

Status EventHub::Watch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events) {
  epoll_event item{};
  item.events = epoll_events;
  item.data.u64 = Datum(source, kind);
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &item) != 0) {
    return FromErrno(errno, "Watching a peer process");
  }
  return absl::OkStatus();
}

void EventHub::Rewatch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events) {
  epoll_event item{};
  item.events = epoll_events;
  item.data.u64 = Datum(source, kind);
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &item);
}

void EventHub::Unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void EventHub::StartTimer(Time when, uint64_t source, uint64_t tag) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    // Only a new earliest timer shortens the sleep of the hub's thread.
    if (timers_.emplace(when, Timer{source, tag}) == timers_.begin()) {
      wake = std::exchange(is_asleep_, false);
    }
  }
  if (wake) {
    Wake();
  }
}

int EventHub::BeginWait(bool may_sleep) {
  if (!may_sleep) {
    return 0;
  }
  std::lock_guard lock(mutex_);
  if (!posted_.empty()) {
    return 0;
  }
  is_asleep_ = true;
  if (timers_.empty()) {
    return -1;
  }
  const Duration left = timers_.begin()->first - RealClock().Now();
  const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(ms, 0, 1'000'000));
}

void EventHub::TakeEvents(bool may_sleep) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), BeginWait(may_sleep));
  if (may_sleep) {
    std::lock_guard lock(mutex_);
    is_asleep_ = false;
  }
  for (int i = 0; i < count; ++i) {
    const uint64_t datum = events[static_cast<size_t>(i)].data.u64;
    const auto found = sources_.find(datum >> 8);
    if (found != sources_.end()) {  // Not the hub's own wake, and not removed.
      const WatchedItem item("hub", "event");
      found->second.source->OnEvent(static_cast<uint8_t>(datum), events[static_cast<size_t>(i)].events);
    }
  }
}

void EventHub::RunPosted() {
  if (!has_news_.load(std::memory_order_acquire)) {
    return;
  }
  std::vector<std::function<void()>> work;
  {
    std::lock_guard lock(mutex_);
    work.swap(posted_);
    has_news_.store(false, std::memory_order_relaxed);
  }
  for (const std::function<void()>& step : work) {
    const WatchedItem item("hub", "posted");
    step();
  }
}

void EventHub::FireTimers() {
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
      found->second.source->OnTimer(timer.tag);
    }
  }
}

// Gives one turn to each source that is awake; returns true when any of them had something to do.
bool EventHub::GiveTurns() {
  bool did = false;
  for (size_t i = 0; i < awake_.size();) {
    const auto found = sources_.find(awake_[i]);
    if (found == sources_.end()) {
      awake_[i] = awake_.back();
      awake_.pop_back();
      continue;
    }
    const WatchedItem item("hub", "turn");
    did |= found->second.source->OnTurn();
    ++i;
  }
  return did;
}

// Puts every source to sleep; returns false when one has something to do after all.
bool EventHub::LetSleep() {
  std::erase_if(awake_, [&](uint64_t id) {
    const auto found = sources_.find(id);
    if (found == sources_.end()) {
      return true;
    }
    found->second.is_awake = !found->second.source->BeginSleep();
    return !found->second.is_awake;
  });
  return awake_.empty();
}

void EventHub::Loop() {
  Time looked{0}, worked{0};
  while (!stopping_) {
    const bool did = GiveTurns();
    if (!awake_.empty() && !has_news_.load(std::memory_order_acquire)) {
      const Time now = RealClock().Now();
      worked = did ? now : worked;
      if (did ? now - looked < kLookEvery : now - worked < spin_) {
        continue;
      }
    }
    TakeEvents(!did && !has_news_.load(std::memory_order_acquire) && LetSleep());
    RunPosted();
    FireTimers();
    looked = worked = RealClock().Now();
  }
}

}  // namespace hpvm
