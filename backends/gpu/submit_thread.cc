// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/submit_thread.h"

#include <time.h>

#include <string>
#include <system_error>
#include <utility>

namespace hpvm::gpu {
namespace {

// How often a page that no one signals is looked at.
constexpr long kGrantPollNs = 200'000;

bool IsStopped(const Submission& submission) {
  return submission.stop != nullptr && submission.stop->load(std::memory_order_relaxed) != 0;
}

// The state of all wait points together; one that has failed decides, whatever the others do.
PointState PollWaits(const Submission& submission, Status* failure) {
  PointState all = PointState::kReached;
  for (const TimelinePoint& point : submission.waits) {
    const PointState state = Poll(point, failure);
    if (state == PointState::kFailed) {
      return state;
    }
    if (state == PointState::kPending) {
      all = state;
    }
  }
  return all;
}

// The caller may free everything that a submission names as soon as the last signal has settled.
void Settle(std::span<const TimelinePoint> signals, const Status& status) {
  for (const TimelinePoint& point : signals) {
    if (status.ok()) {
      point.timeline->Signal(point.value);
    } else {
      point.timeline->Fail(status);
    }
  }
}

}  // namespace

SubmitThread::SubmitThread(Hub& hub, Driver& driver, GrantGate* gate)
    : hub_(hub), driver_(driver), gate_(gate), changed_(CreateHostTimeline(hub)) {}

SubmitThread::~SubmitThread() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_->Signal(++changes_);
  }
  if (submit_thread_.joinable()) {
    submit_thread_.join();
  }
  {
    std::lock_guard lock(flights_mutex_);
    enqueued_all_ = true;
  }
  flights_changed_.notify_all();
  if (completion_thread_.joinable()) {
    completion_thread_.join();
  }
  for (const Submission& submission : waiting_) {
    Settle(submission.signals, Cancelled("The device was closed before the submission could start."));
  }
}

Status SubmitThread::StartThreads() {
  try {
    if (!completion_thread_.joinable()) {
      completion_thread_ = std::thread([this] { ServeFlights(); });
    }
    submit_thread_ = std::thread([this] { ServeSubmissions(); });
  } catch (const std::system_error& error) {
    return ResourceExhausted(std::string("No thread can be started for the device's submissions: ") + error.what() +
                             ".");
  }
  return absl::OkStatus();
}

Status SubmitThread::Submit(const Submission& submission) {
  std::lock_guard lock(mutex_);
  if (!submit_thread_.joinable()) {
    HPVMD_RETURN_IF_ERROR(StartThreads());
  }
  waiting_.push_back(submission);
  changed_->Signal(++changes_);
  return absl::OkStatus();
}

// Takes the first submission that waits for nothing any more, or lists the points that all of them wait for.
SubmitThread::Turn SubmitThread::TakeTurn(Submission* submission, std::vector<TimelinePoint>* pending) {
  pending->clear();
  std::lock_guard lock(mutex_);
  if (closing_) {
    return Turn::kClosing;
  }
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (PollWaits(*it, nullptr) != PointState::kPending) {
      *submission = *it;
      waiting_.erase(it);
      return Turn::kReady;
    }
    for (const TimelinePoint& point : it->waits) {
      if (Poll(point) == PointState::kPending) {
        pending->push_back(point);
      }
    }
  }
  pending->push_back({changed_.get(), changes_ + 1});
  return Turn::kNone;
}

void SubmitThread::ServeSubmissions() {
  Submission submission;
  std::vector<TimelinePoint> pending;
  while (true) {
    switch (TakeTurn(&submission, &pending)) {
      case Turn::kReady:
        Launch(submission);
        break;
      case Turn::kNone:
        // Only fails at a deadline, and there is none.
        HPVMD_CHECK(hub_.WaitAny(pending, kNever).ok());
        break;
      case Turn::kClosing:
        return;
    }
  }
}

// False when the submission is stopped, or the device closed, before it is granted.
bool SubmitThread::AwaitGrant(const Submission& submission) {
  while (gate_ != nullptr && !gate_->TryEnter()) {
    if (IsStopped(submission) || !FailStopped()) {
      return false;
    }
    const timespec pause{0, kGrantPollNs};
    nanosleep(&pause, nullptr);
  }
  return true;
}

// Submissions behind the one that waits for its grant must not wait for it to learn that they are stopped. False when
// the device is closing.
bool SubmitThread::FailStopped() {
  std::vector<Submission> stopped;
  {
    std::lock_guard lock(mutex_);
    if (closing_) {
      return false;
    }
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (IsStopped(*it)) {
        stopped.push_back(*it);
        it = waiting_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const Submission& submission : stopped) {
    Settle(submission.signals, Cancelled("The submission was stopped before it started."));
  }
  return true;
}

void SubmitThread::Launch(const Submission& submission) {
  Status failure;
  if (PollWaits(submission, &failure) == PointState::kFailed) {
    Settle(submission.signals, failure);
    return;
  }
  {
    std::unique_lock lock(flights_mutex_);
    flights_changed_.wait(lock, [&] {
      return flights_.size() < (gate_ == nullptr ? kFlightsMax : gate_->InFlightMax(kFlightsMax));
    });
  }
  if (IsStopped(submission) || !AwaitGrant(submission)) {
    Settle(submission.signals, Cancelled("The submission was stopped before it started."));
    return;
  }
  InFlight next{submission, driver_.Enqueue(submission)};
  HPVMD_CHECK(next.flight != nullptr);
  {
    std::lock_guard lock(flights_mutex_);
    flights_.push_back(std::move(next));
  }
  flights_changed_.notify_all();
}

void SubmitThread::ServeFlights() {
  std::unique_lock lock(flights_mutex_);
  while (true) {
    flights_changed_.wait(lock, [&] { return !flights_.empty() || enqueued_all_; });
    if (flights_.empty()) {
      return;
    }
    InFlight& first = flights_.front();  // A deque's elements stay where they are while others are added.
    lock.unlock();
    const Status status = first.flight->Finish();
    if (gate_ != nullptr) {
      gate_->Leave();
    }
    first.flight.reset();  // Before the signals: afterwards its buffers may be gone.
    const std::span<const TimelinePoint> signals = first.submission.signals;
    lock.lock();
    flights_.pop_front();
    lock.unlock();
    flights_changed_.notify_all();
    Settle(signals, status);
    lock.lock();
  }
}

}  // namespace hpvm::gpu
