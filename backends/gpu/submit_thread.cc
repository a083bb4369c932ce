// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/submit_thread.h"

#include <time.h>

#include <algorithm>
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

// Whether the submission can no longer run: a wait point or a timeline that it signals has failed.
bool HasFailed(const Submission& submission, Status* failure) {
  const auto has_failed = [&](const TimelinePoint& point) { return Poll(point, failure) == PointState::kFailed; };
  return std::any_of(submission.waits.begin(), submission.waits.end(), has_failed) ||
         std::any_of(submission.signals.begin(), submission.signals.end(), has_failed);
}

// Whether all it does is copy to host memory.
bool OnlyDownloads(const Submission& submission) {
  const auto is_download = [&](const Command& command) {
    const auto* copy = std::get_if<CopyCommand>(&command);
    return copy != nullptr && copy->target < submission.buffers.size() && submission.buffers[copy->target] != nullptr &&
           submission.buffers[copy->target]->host() != nullptr;
  };
  return submission.commands != nullptr &&
         std::all_of(submission.commands->commands.begin(), submission.commands->commands.end(), is_download);
}

// Whether `earlier` signals a smaller value of a timeline than `later` does.
bool Precedes(const Submission& earlier, const Submission& later) {
  for (const TimelinePoint& a : earlier.signals) {
    for (const TimelinePoint& b : later.signals) {
      if (a.timeline == b.timeline && a.value < b.value) {
        return true;
      }
    }
  }
  return false;
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

Status AwaitPoints(std::span<const TimelinePoint> points) {
  for (const TimelinePoint& point : points) {
    HPVMD_RETURN_IF_ERROR(point.timeline->Wait(point.value, kNever));
  }
  return absl::OkStatus();
}

SubmitThread::SubmitThread(Hub& hub, Driver& driver, FlightBoard& board, Lane lane, GrantGate* gate)
    : hub_(hub), driver_(driver), board_(board), lane_(lane), gate_(gate), changed_(CreateHostTimeline(hub)) {}

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

// Takes the first submission that waits for nothing any more, or lists the points that the others wait for.
SubmitThread::Turn SubmitThread::TakeTurn(Next* next, std::vector<TimelinePoint>* pending) {
  pending->assign(1, board_.NextPost());
  std::lock_guard lock(mutex_);
  if (closing_) {
    return Turn::kClosing;
  }
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    const auto holds_up = [&](const Submission& earlier) { return Precedes(earlier, *it); };
    if (std::any_of(waiting_.begin(), it, holds_up)) {
      continue;
    }
    if (IsReady(*it, next, pending)) {
      next->submission = *it;
      waiting_.erase(it);
      return Turn::kReady;
    }
  }
  pending->push_back({changed_.get(), changes_ + 1});
  return Turn::kNone;
}

// Also when it has failed. Else adds what it waits for.
bool SubmitThread::IsReady(const Submission& submission, Next* next, std::vector<TimelinePoint>* pending) const {
  next->behind.clear();
  if (HasFailed(submission, nullptr)) {
    return true;
  }
  bool is_ready = true;
  for (const TimelinePoint& point : submission.waits) {
    if (Poll(point) != PointState::kPending) {
      continue;
    }
    Behind behind = board_.Find(point);
    if (behind.milestone != nullptr && (!behind.may_trap || OnlyDownloads(submission))) {
      next->behind.push_back(std::move(behind.milestone));
    } else {
      is_ready = false;
      pending->push_back(point);
    }
  }
  return is_ready;
}

void SubmitThread::ServeSubmissions() {
  Next next;
  std::vector<TimelinePoint> pending;
  while (true) {
    switch (TakeTurn(&next, &pending)) {
      case Turn::kReady:
        Launch(next);
        next.behind.clear();
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
    AddFlight({submission, nullptr, Cancelled("The submission was stopped before it started.")});
  }
  return true;
}

// Until no flight of this lane has anything left to do on the host.
void SubmitThread::AwaitHostWork() {
  std::unique_lock lock(flights_mutex_);
  flights_changed_.wait(lock, [&] {
    return std::none_of(flights_.begin(), flights_.end(), [](const InFlight& flight) { return flight.ends_on_host; });
  });
}

void SubmitThread::Launch(const Next& next) {
  const Submission& submission = next.submission;
  Status failure;
  if (HasFailed(submission, &failure)) {
    AddFlight({submission, nullptr, failure});
    return;
  }
  if (!OnlyDownloads(submission)) {
    AwaitHostWork();
  }
  board_.Enter(lane_);
  if (IsStopped(submission) || !AwaitGrant(submission)) {
    board_.Leave(lane_);
    AddFlight({submission, nullptr, Cancelled("The submission was stopped before it started.")});
    return;
  }
  InFlight flight{submission, driver_.Enqueue(submission, next.behind), absl::OkStatus()};
  HPVMD_CHECK(flight.flight != nullptr);
  Behind behind = flight.flight->behind();
  flight.ends_on_host = behind.milestone == nullptr;
  board_.Post(submission.signals, std::move(behind));
  AddFlight(std::move(flight));
}

void SubmitThread::AddFlight(InFlight flight) {
  {
    std::lock_guard lock(flights_mutex_);
    flights_.push_back(std::move(flight));
  }
  flights_changed_.notify_all();
}

Status SubmitThread::FinishFlight(InFlight& flight) {
  if (flight.flight == nullptr) {
    return flight.refusal;
  }
  const Status status = flight.flight->Finish();
  if (gate_ != nullptr) {
    gate_->Leave();
  }
  flight.flight.reset();  // Before the signals: afterwards its buffers may be gone.
  board_.Leave(lane_);
  // What it was enqueued behind has ended on the device; whether well, its own lane says.
  const Status awaited = AwaitPoints(flight.submission.waits);
  return awaited.ok() ? status : awaited;
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
    const Status status = FinishFlight(first);
    const std::span<const TimelinePoint> signals = first.submission.signals;
    lock.lock();
    flights_.pop_front();
    lock.unlock();
    flights_changed_.notify_all();
    board_.Strike(signals);
    Settle(signals, status);
    lock.lock();
  }
}

}  // namespace hpvm::gpu
