// SPDX-License-Identifier: Apache-2.0
// Method: start-time fair queueing. The lane with the smallest start tag runs one step; its tag then grows by the
// step's elapsed time. A lane that becomes busy begins at the virtual time, which is the tag of the step begun
// last.
// Invariants: a lane is in ready_ exactly when it has work and does not run, so one tenant never has two threads.
// Virtual time never falls. Every step counts at least a nanosecond, so equal tags cannot keep one lane in front.
// works_ counts waiting items, and running_ those in progress; Stop ends when both are 0.
// A turn is logarithmic in the busy tenants. Idle lanes are forgotten once virtual time has passed their tags.
// Source: Goyal, Vin, Cheng 1996 (see fair_queue.h).
#include "base/fair_queue.h"

#include <algorithm>
#include <utility>

#include "base/thread_watch.h"

namespace hpvm {
namespace {

// Number of idle tenants whose turn is remembered; beyond it, ForgetIdle scans them.
constexpr size_t kIdleLanesMax = 64;

}  // namespace

FairQueue::FairQueue(const char* name, const char* item, size_t threads) : name_(name), item_(item) {
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

void FairQueue::Post(std::string tenant, Work work) {
  std::lock_guard lock(mutex_);
  if (stopping_ && running_ + works_ == 0) {
    return;
  }
  Lane& lane = lanes_[tenant];
  lane.work.push_back(std::move(work));
  ++works_;
  if (!lane.is_running && lane.work.size() == 1) {
    lane.tenant = std::move(tenant);
    lane.turn.first = std::max(lane.turn.first, now_);  // A tenant saves up no time while it is idle.
    AwaitTurn(lane);
  }
  wake_.notify_one();
}

void FairQueue::PostOnce(std::string tenant, std::function<void()> work) {
  Post(std::move(tenant), [work = std::move(work)] {
    work();
    return Step::kDone;
  });
}

void FairQueue::Stop() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    idle_.wait(lock, [this] { return running_ + works_ == 0; });
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) {
      thread.join();
    }
  }
}

size_t FairQueue::waiting() const {
  std::lock_guard lock(mutex_);
  return works_;
}

void FairQueue::AwaitTurn(Lane& lane) {
  lane.turn.second = next_arrival_++;
  ready_.emplace(lane.turn, &lane);
}

// Forgets idle tenants, except those that have used more time than the others, until the others catch up.
void FairQueue::ForgetIdle() {
  if (lanes_.size() <= 2 * ready_.size() + kIdleLanesMax) {
    return;
  }
  std::erase_if(lanes_, [this](const auto& entry) {
    const Lane& lane = entry.second;
    return lane.work.empty() && !lane.is_running && lane.turn.first <= now_;
  });
}

void FairQueue::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return !ready_.empty() || (stopping_ && running_ + works_ == 0); });
    if (ready_.empty()) {
      return;
    }
    Lane& lane = *ready_.begin()->second;  // The lane stays in place: lanes with work, or that run, are not forgotten.
    ready_.erase(ready_.begin());
    Work work = std::move(lane.work.front());
    lane.work.pop_front();
    lane.is_running = true;
    now_ = std::max(now_, lane.turn.first);
    ++running_;
    --works_;
    lock.unlock();
    const Time began = RealClock().Now();
    Step step = Step::kDone;
    {
      const WatchedItem item(name_, item_, lane.tenant);
      step = work();
      if (step == Step::kDone) {
        work = nullptr;
      }
    }
    const Duration took = RealClock().Now() - began;
    lock.lock();
    lane.turn.first += std::max(took, Duration{1});
    lane.is_running = false;
    --running_;
    if (step == Step::kAgain) {
      lane.work.push_front(std::move(work));
      ++works_;
    }
    if (!lane.work.empty()) {
      AwaitTurn(lane);
    } else {
      ForgetIdle();
    }
    if (stopping_ && running_ + works_ == 0) {
      idle_.notify_all();
      wake_.notify_all();
    }
  }
}

}  // namespace hpvm
