// SPDX-License-Identifier: Apache-2.0
// Method: the submit thread takes the first submission that waits for nothing and overtakes none that must precede
// it, or waits for any of the points that hold the others up. The completion thread finishes flights in the order
// of enqueueing and settles their signals.
// Invariants: a submission is in waiting_, or taken, or a flight. If two signal one timeline, the lower value goes
// first. A failing timeline fails once neither a flight, nor the taken submission, nor the submit thread's wait
// uses it; whatever signals it is dropped first. mutex_ is taken before flights_mutex_.
// Doom follows each timeline once, so it ends. The destructor ends the submit thread, then lets the flights finish,
// then fails the rest.
#include "backends/gpu/submit_thread.h"

#include <time.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace hpvm::gpu {
namespace {

// Polling interval for the grant page, whose changes are not signalled.
constexpr long kGrantPollNs = 200'000;

bool IsStopped(const Submission& submission) {
  return submission.stop != nullptr && submission.stop->load(std::memory_order_relaxed) != 0;
}

// Returns true when the submission can no longer run: a wait point or a timeline that it signals has failed.
bool HasFailed(const Submission& submission, Status* failure) {
  const auto has_failed = [&](const TimelinePoint& point) { return Poll(point, failure) == PointState::kFailed; };
  return std::any_of(submission.waits.begin(), submission.waits.end(), has_failed) ||
         std::any_of(submission.signals.begin(), submission.signals.end(), has_failed);
}

// Returns true when the submission only copies to host memory.
bool OnlyDownloads(const Submission& submission) {
  const auto is_download = [&](const Command& command) {
    const auto* copy = std::get_if<CopyCommand>(&command);
    return copy != nullptr && copy->target < submission.buffers.size() && submission.buffers[copy->target] != nullptr &&
           submission.buffers[copy->target]->host() != nullptr;
  };
  return submission.commands != nullptr &&
         std::all_of(submission.commands->commands.begin(), submission.commands->commands.end(), is_download);
}

bool Signals(const Submission& submission, const Timeline* timeline) {
  return std::any_of(submission.signals.begin(), submission.signals.end(),
                     [&](const TimelinePoint& signal) { return signal.timeline == timeline; });
}

// Returns true when `earlier` signals a smaller value of some timeline than `later` does.
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

SubmitThread::SubmitThread(Hub& hub, Driver& driver, FlightBoard& board, Lane lane, GrantGate* gate, NearCpus near)
    : hub_(hub),
      driver_(driver),
      board_(board),
      lane_(lane),
      gate_(gate),
      near_(std::move(near)),
      changed_(std::make_unique<Timeline>(hub)) {}

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
      completion_thread_ = std::thread([this] {
        StayNear(near_);
        ServeFlights();
      });
    }
    submit_thread_ = std::thread([this] {
      StayNear(near_);
      ServeSubmissions();
    });
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
  Status why;
  if (IsBoundToFail(submission, &why)) {
    {
      std::lock_guard flights_lock(flights_mutex_);
      for (const TimelinePoint& signal : submission.signals) {
        failing_timelines_.push_back({.timeline = signal.timeline, .why = why});
      }
    }
    flights_changed_.notify_all();
    return absl::OkStatus();
  }
  for (const TimelinePoint& signal : submission.signals) {
    if (Poll(signal, &why) == PointState::kFailed) {
      Settle(submission.signals, why);
      return absl::OkStatus();
    }
  }
  waiting_.push_back(submission);
  changed_->Signal(++changes_);
  return absl::OkStatus();
}

// Takes the first submission that has nothing left to wait for, or lists the points for which the others wait.
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
      std::lock_guard flights_lock(flights_mutex_);
      taken_ = &next->submission;
      return Turn::kReady;
    }
  }
  pending->push_back({changed_.get(), changes_ + 1});
  std::lock_guard flights_lock(flights_mutex_);
  is_watching_ = true;
  return Turn::kNone;
}

// Also returns true when it has failed. Otherwise adds its pending wait points.
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
        // It fails only at a deadline, and there is none.
        HPVMD_CHECK(hub_.WaitAny(pending, kNever).ok());
        LookAway();
        break;
      case Turn::kClosing:
        return;
    }
  }
}

// Returns false when the submission is stopped, or the device closed, before it is granted.
bool SubmitThread::AwaitGrant(const Submission& submission) {
  while (gate_ != nullptr && !gate_->TryEnter()) {
    if (IsStopped(submission) || IsBoundToFail(submission, nullptr) || !FailStopped()) {
      return false;
    }
    const timespec pause{0, kGrantPollNs};
    nanosleep(&pause, nullptr);
  }
  return true;
}

// Stopped submissions queued behind one that waits for its grant fail without waiting for it. Returns false when the
// device is closing.
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
    Refuse(submission, Cancelled("The submission was stopped before it started."), /*is_taken=*/false);
  }
  return true;
}

// Waits until no flight of this lane has work left to do on the host.
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
    Refuse(submission, failure, /*is_taken=*/true);
    return;
  }
  if (!OnlyDownloads(submission)) {
    AwaitHostWork();
  }
  board_.Enter(lane_);
  if (IsStopped(submission) || IsBoundToFail(submission, nullptr) || !AwaitGrant(submission)) {
    board_.Leave(lane_);
    Refuse(submission, Cancelled("The submission was stopped before it started."), /*is_taken=*/true);
    return;
  }
  InFlight flight;
  flight.submission = submission;
  flight.flight = driver_.Enqueue(submission, next.behind);
  HPVMD_CHECK(flight.flight != nullptr);
  flight.behind = next.behind;
  Behind behind = flight.flight->behind();
  flight.milestone = behind.milestone;
  flight.ends_on_host = behind.milestone == nullptr;
  board_.Post(submission.signals, std::move(behind));
  AddFlight(std::move(flight), /*is_taken=*/true);
}

void SubmitThread::Refuse(const Submission& submission, Status why, bool is_taken) {
  InFlight flight;
  flight.submission = submission;
  flight.refusal = std::move(why);
  AddFlight(std::move(flight), is_taken);
}

void SubmitThread::AddFlight(InFlight flight, bool is_taken) {
  {
    std::lock_guard lock(flights_mutex_);
    flights_.push_back(std::move(flight));
    taken_ = is_taken ? nullptr : taken_;
  }
  flights_changed_.notify_all();
}

bool SubmitThread::IsBoundToFail(const Submission& submission, Status* why) {
  std::lock_guard lock(flights_mutex_);
  for (const FailingTimeline& failing : failing_timelines_) {
    if (Signals(submission, failing.timeline)) {
      if (why != nullptr) {
        *why = failing.why;
      }
      return true;
    }
  }
  return false;
}

// The submit thread no longer waits for any point: timelines for which it waited may be destroyed.
void SubmitThread::LookAway() {
  {
    std::lock_guard lock(flights_mutex_);
    is_watching_ = false;
    for (FailingTimeline& failing : failing_timelines_) {
      failing.is_watched = false;
    }
  }
  flights_changed_.notify_all();
}

// The submission has failed: its timelines will fail too, and later submissions that signal them never begin. The
// submit thread may be reading timelines for which those wait, which may be destroyed after the failure, so it has to
// stop first.
void SubmitThread::Doom(const Submission& submission, const Status& status) {
  std::lock_guard lock(mutex_);
  std::lock_guard flights_lock(flights_mutex_);
  std::vector<Timeline*> timelines;
  const auto add = [&](const Submission& failed) {
    for (const TimelinePoint& signal : failed.signals) {
      const auto is_same = [&](const FailingTimeline& failing) { return failing.timeline == signal.timeline; };
      if (std::none_of(failing_timelines_.begin(), failing_timelines_.end(), is_same)) {
        failing_timelines_.push_back({signal.timeline, status, is_watching_});
        timelines.push_back(signal.timeline);
      }
    }
  };
  add(submission);
  for (size_t i = 0; i < timelines.size(); ++i) {
    const Timeline* const timeline = timelines[i];
    for (const Submission& waiting : waiting_) {
      if (Signals(waiting, timeline)) {
        add(waiting);
      }
    }
    std::erase_if(waiting_, [&](const Submission& waiting) { return Signals(waiting, timeline); });
  }
  if (is_watching_) {
    changed_->Signal(++changes_);
  }
}

// Returns true when a flight or the taken submission may still signal the timeline. The caller holds flights_mutex_.
bool SubmitThread::IsLive(const Timeline* timeline) const {
  return (taken_ != nullptr && Signals(*taken_, timeline)) ||
         std::any_of(flights_.begin(), flights_.end(),
                     [&](const InFlight& flight) { return Signals(flight.submission, timeline); });
}

// Fails the failing timelines that no flight or wait uses any more; returns true when there was one. The caller holds
// flights_mutex_, so that no new timeline at the same address is mistaken for a failing one.
bool SubmitThread::FailTimelines() {
  return std::erase_if(failing_timelines_, [&](const FailingTimeline& failing) {
           if (failing.is_watched || IsLive(failing.timeline)) {
             return false;
           }
           failing.timeline->Fail(failing.why);
           return true;
         }) != 0;
}

Status SubmitThread::FinishFlight(InFlight& flight) {
  if (flight.flight == nullptr) {
    return flight.refusal;
  }
  const Status status = flight.flight->Finish();
  if (gate_ != nullptr) {
    gate_->Leave();
  }
  flight.flight.reset();  // Before the signals, because its buffers may be freed afterwards.
  board_.Leave(lane_);
  // The flights before it have ended on the device; their own lane knows whether successfully.
  const Status awaited = AwaitAll(flight.behind);
  return awaited.ok() ? status : awaited;
}

void SubmitThread::ServeFlights() {
  std::unique_lock lock(flights_mutex_);
  while (true) {
    flights_changed_.wait(lock, [&] { return FailTimelines() || !flights_.empty() || enqueued_all_; });
    if (flights_.empty()) {
      if (enqueued_all_) {
        return;
      }
      continue;
    }
    InFlight& first = flights_.front();  // A deque's elements do not move while others are added.
    lock.unlock();
    Status status = FinishFlight(first);
    board_.Strike(first.submission.signals);
    Status why;
    if (IsBoundToFail(first.submission, &why)) {
      status = why;  // An earlier flight's failure also fails this one.
    }
    if (!status.ok()) {  // Even then, because it may signal timelines that the earlier one did not.
      Doom(first.submission, status);
    }
    const std::span<const TimelinePoint> signals = first.submission.signals;
    const std::shared_ptr<const Milestone> milestone = std::move(first.milestone);
    lock.lock();
    flights_.pop_front();
    if (status.ok()) {
      Settle(signals, status);
    }
    flights_changed_.notify_all();
    if (milestone != nullptr) {
      // After the signals, which signals of later flights must not overtake; but the failure of its timeline may have
      // to wait for such flights.
      milestone->Settle(status);
    }
  }
}

}  // namespace hpvm::gpu
