// SPDX-License-Identifier: Apache-2.0
#include "executor/runner.h"

#include <errno.h>
#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hpvm::executor {
namespace {

// A hand-over costs about 50 µs for waking another thread. A job expected to be shorter than this runs on the leader,
// during which no other thread can use the channel.
constexpr int64_t kShortNs = 200'000;
// With more requests at hand, other threads could be working on them.
constexpr int64_t kShortWithBacklogNs = 50'000;
// A leader that executes for longer loses the channel, so that cancellations are read.
constexpr Duration kTakeOverAfter = std::chrono::milliseconds(1);
// The daemon is woken once for answers of several short jobs, if the first does not wait longer than this.
constexpr Duration kKeepAnswersMax = std::chrono::microseconds(50);
// Minimum interval between Usage messages; short-lived growth of device memory is not reported.
constexpr Duration kUsagePause = std::chrono::milliseconds(100);
// Minimum interval between two events with lines of one run.
constexpr Duration kLivePause = std::chrono::milliseconds(100);
// Polling interval for whether a revoked device is idle.
constexpr Duration kLeftPoll = std::chrono::microseconds(500);

}  // namespace

StatusOr<std::unique_ptr<Runner>> Runner::Create(const RunnerOptions& options) {
  std::unique_ptr<Runner> runner(new Runner(options));
  runner->timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!runner->timer_.valid()) {
    return FromErrno(errno, "Creating a timer");
  }
  return runner;
}

Runner::Runner(const RunnerOptions& options)
    : options_(options),
      jobs_max_(std::max(options.jobs_max, 1u)),
      reader_(options.socket, options.rings->to_client, options.bell, kToExecutorLimits),
      writer_(options.socket, RingChannelWriter::Wait::kYes, SIZE_MAX) {
  writer_.UseRing(options.rings->to_server, options.bell);
  devices_.entries = options.grant_entries;
  uint32_t index = 0;
  for (const DeviceInfo& device : options.engine->devices()) {
    devices_.by_id.emplace(device.id, index++);
  }
}

void Runner::Serve(const internal::Envelope& ready) {
  Send(ready);
  std::thread([this] { Watch(); }).detach();
  ThreadMain();
  _exit(0);
}

void Runner::ThreadMain() {
  OutputArena arena;
  std::unique_lock lock(mutex_);
  while (true) {
    if (!has_leader_) {
      has_leader_ = true;
      // A new term; the previous leader will notice that its term is over when it tries to continue.
      leading_.store(((leading_.load(std::memory_order_relaxed) >> 2) + 1) << 2 | kReading, std::memory_order_release);
      lock.unlock();
      while (LeadOnce(arena)) {
      }
      lock.lock();
    } else if (!runnable_.empty()) {
      const std::shared_ptr<Job> job = std::move(runnable_.front());
      runnable_.pop_front();
      job->started = true;
      lock.unlock();
      Execute(*job, arena, false);
      lock.lock();
    } else {
      ++idle_;
      changed_.wait(lock);
      --idle_;
    }
  }
}

void Runner::HandOver() {
  has_leader_ = false;
  if (idle_ > 0) {
    changed_.notify_one();
    return;
  }
  ++threads_;
  std::thread([this] { ThreadMain(); }).detach();
}

bool Runner::LeadOnce(OutputArena& arena) {
  Frame frame;
  const StatusOr<bool> next = reader_.Next(&frame);
  if (!next.ok()) {
    Die(next.status());
  }
  if (!*next) {
    Flush();
    const Status waited = reader_.Wait(/*spin=*/Duration(0));
    if (waited.code() == absl::StatusCode::kInvalidArgument) {
      Die(waited);
    } else if (!waited.ok()) {
      _exit(0);  // The daemon is gone, and with it the recipient of the results.
    }
    return true;
  }
  std::shared_ptr<Job> job;
  if (const Status taken = Take(std::move(frame), &job); !taken.ok()) {
    Die(taken);
  }
  return job == nullptr || ExecuteAsLeader(job, arena);
}

bool Runner::IsShort(const Job& job) const {
  return job.handle != nullptr &&
         job.handle->expected_ns.load(std::memory_order_relaxed) < (reader_.empty() ? kShortNs : kShortWithBacklogNs);
}

bool Runner::ExecuteAsLeader(const std::shared_ptr<Job>& job, OutputArena& arena) {
  const bool is_short = IsShort(*job);
  {
    std::lock_guard lock(mutex_);
    if (!CanHandOver()) {
      job->started = false;  // Waits for the first free thread; this one must stay at the channel.
      runnable_.push_back(job);
      return true;
    }
    if (!is_short) {
      HandOver();
    }
  }
  if (!is_short) {
    Flush();
    Execute(*job, arena, false);
    return false;
  }
  const uint64_t term = leading_.load(std::memory_order_relaxed);
  uint64_t executing = term | kExecuting;
  const Time now = RealClock().Now();
  executing_since_ns_.store(now.count(), std::memory_order_relaxed);
  leading_.store(executing, std::memory_order_release);
  ArmWatch(now + kTakeOverAfter);
  Execute(*job, arena, true);
  if (leading_.compare_exchange_strong(executing, term, std::memory_order_acq_rel)) {
    return true;
  }
  Flush();  // The new leader does not know of the answer that this thread has kept.
  return false;
}

void Runner::Execute(Job& job, OutputArena& arena, bool more) {
  if (job.handle != nullptr) {
    ExecuteRunJob(job, arena, more);
  } else if (job.reclaim.has_value()) {
    ExecuteReclaim(job);
  } else {
    ExecutePrepare(job);
  }
}

void Runner::ExecuteRunJob(Job& job, OutputArena& arena, bool more) {
  internal::Envelope answer;
  answer.set_request_id(job.id);
  if (job.run.message.events()) {
    answer.mutable_event()->set_kind(internal::Event::KIND_STARTED);
    Send(answer);
  }
  const Time start = RealClock().Now();
  if (job.run.message.options().live_log()) {
    job.run.on_live = [this, &job] { ArmWatch(std::max(RealClock().Now(), Time(job.live_at_ns.load()) + kLivePause)); };
  }
  const std::span<const uint8_t> body =
      ExecuteRun(*options_.engine, job.run, devices_, start, arena, answer.mutable_run_done());
  job.run.live.Close();  // No event follows the answer.
  job.handle->expected_ns.store((RealClock().Now() - start).count(), std::memory_order_relaxed);
  Finish(job);
  Send(answer, body, more);
  NoteUsage();
}

void Runner::Finish(Job& job) {
  std::lock_guard lock(mutex_);
  jobs_.erase(job.id);
  if (job.handle == nullptr) {
    return;
  }
  job.handle->busy = !job.handle->waiting.empty();
  if (job.handle->busy) {
    // This thread takes it when it is not the leader; while a thread executes as leader, no job can have begun to wait.
    runnable_.push_back(std::move(job.handle->waiting.front()));
    job.handle->waiting.pop_front();
    changed_.notify_one();
  }
}

// Removes a job that has not started from its queue. The caller holds mutex_.
void Runner::DropWaiting(Job& job) {
  const auto is_it = [&](const std::shared_ptr<Job>& other) { return other.get() == &job; };
  const auto runnable = std::find_if(runnable_.begin(), runnable_.end(), is_it);
  if (runnable != runnable_.end()) {
    const std::shared_ptr<Job> held = *runnable;
    runnable_.erase(runnable);
    if (held->handle != nullptr) {
      // It occupied its graph; the next job gets the graph.
      held->handle->busy = !held->handle->waiting.empty();
      if (held->handle->busy) {
        runnable_.push_back(std::move(held->handle->waiting.front()));
        held->handle->waiting.pop_front();
      }
    }
  } else if (job.handle != nullptr) {
    std::erase_if(job.handle->waiting, is_it);
  }
}

void Runner::AnswerDropped(const Job& job, const Status& status) {
  internal::Envelope answer;
  answer.set_request_id(job.id);
  SetStatus(status, job.handle != nullptr ? answer.mutable_run_done()->mutable_status()
                                          : answer.mutable_prepared()->mutable_status());
  Send(answer);
}

void Runner::Watch() {
  while (true) {
    pollfd items[] = {{timer_.get(), POLLIN, 0}, {options_.socket, 0, 0}};
    if (poll(items, 2, -1) < 0 && errno != EINTR) {
      Die(FromErrno(errno, "Waiting for the timer"));
    }
    if (items[1].revents != 0) {
      _exit(0);  // The daemon is gone, and with it the recipient of the results.
    }
    uint64_t expirations;
    if (read(timer_.get(), &expirations, sizeof(expirations)) < 0 && errno != EAGAIN) {
      Die(FromErrno(errno, "Reading the timer"));
    }
    {
      std::lock_guard lock(timer_mutex_);
      armed_for_ns_.store(INT64_MAX);
    }
    // A thread that sets a time from here on arms the timer; an earlier one is seen below.
    const Time now = RealClock().Now();
    TakeOver(now);
    ArmWatch(std::min({StopOverdue(now), SendUsageIfDue(now), AnswerLeftDevices(now), SendLiveLines(now)}));
  }
}

// Sends lines of runs that are due; returns when to check again.
Time Runner::SendLiveLines(Time now) {
  std::vector<std::shared_ptr<Job>> due;
  Time next = kNever;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, job] : jobs_) {
      if (!job->started || !job->run.message.options().live_log()) {
        continue;
      }
      if (const Time when = Time(job->live_at_ns.load()) + kLivePause; when > now) {
        next = std::min(next, when);
      } else {
        due.push_back(job);
      }
    }
  }
  for (const std::shared_ptr<Job>& job : due) {
    job->run.live.Take([&](v1::RunLog log) {
      job->live_at_ns.store(now.count());
      internal::Envelope envelope;
      envelope.set_request_id(job->id);
      envelope.mutable_event()->set_kind(internal::Event::KIND_LOG);
      *envelope.mutable_event()->mutable_log() = std::move(log);
      Send(envelope);
    });
  }
  return next;
}

void Runner::ArmWatch(Time when) {
  if (when.count() >= armed_for_ns_.load()) {
    return;
  }
  std::lock_guard lock(timer_mutex_);
  if (when.count() >= armed_for_ns_.load()) {
    return;
  }
  armed_for_ns_.store(when.count());
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(when.count() / 1'000'000'000);
  spec.it_value.tv_nsec = std::max<long>(when.count() % 1'000'000'000, 1);
  HPVMD_CHECK(timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0);
}

void Runner::TakeOver(Time now) {
  uint64_t term = leading_.load(std::memory_order_acquire);
  if ((term & 3) != kExecuting) {
    return;
  }
  const Time until = Time(executing_since_ns_.load(std::memory_order_relaxed)) + kTakeOverAfter;
  if (now < until) {
    ArmWatch(until);
    return;
  }
  if (leading_.compare_exchange_strong(term, (term & ~uint64_t{3}) | kTakenOver, std::memory_order_acq_rel)) {
    {
      std::lock_guard lock(mutex_);
      HandOver();
    }
    Flush();
  }
}

// Sets the stop words of late runs; returns the earliest deadline of the others.
Time Runner::StopOverdue(Time now) {
  Time next = kNever;
  std::vector<std::shared_ptr<Job>> dropped;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, job] : jobs_) {
      if (job->run.deadline > now) {
        next = std::min(next, job->run.deadline);
      } else if (job->run.stop.exchange(1) == 0 && !job->started) {
        dropped.push_back(job);
      }
    }
    for (const std::shared_ptr<Job>& job : dropped) {
      DropWaiting(*job);
      jobs_.erase(job->id);
    }
  }
  for (const std::shared_ptr<Job>& job : dropped) {
    AnswerDropped(*job, DeadlineExceeded("The run's deadline passed while it waited for its turn."));
  }
  return next;
}

void Runner::NoteUsage() {
  if (options_.engine->device_memory().changes() != told_changes_.load()) {
    ArmWatch(std::max(RealClock().Now(), Time(told_at_ns_.load()) + kUsagePause));
  }
}

Time Runner::AnswerLeftDevices(Time now) {
  std::map<uint64_t, internal::GrantChanged> left;
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    for (auto it = revoked_.begin(); it != revoked_.end();) {
      if (IsLeft(it->second.entry())) {
        left.insert(*it);
        it = revoked_.erase(it);
      } else {
        ++it;
      }
    }
    waits = !revoked_.empty();
  }
  for (const auto& [id, changed] : left) {
    AnswerGrant(id, changed);
  }
  return waits ? now + kLeftPoll : kNever;
}

Time Runner::SendUsageIfDue(Time now) {
  const uint64_t changes = options_.engine->device_memory().changes();
  if (changes == told_changes_.load()) {
    return kNever;
  }
  if (const Time due = Time(told_at_ns_.load()) + kUsagePause; now < due) {
    return due;
  }
  told_changes_.store(changes);
  told_at_ns_.store(now.count());
  internal::Envelope envelope;
  DescribeUsage(envelope.mutable_usage());
  Send(envelope);
  return kNever;
}

void Runner::Send(const internal::Envelope& envelope, std::span<const uint8_t> body, bool more) {
  const std::string head = envelope.SerializeAsString();
  std::lock_guard lock(writer_mutex_);
  const Time now = more ? RealClock().Now() : Time(0);
  if (more && !writer_.pending()) {
    kept_since_ = now;
  }
  more = more && now - kept_since_ < kKeepAnswersMax;
  if (const Status sent = writer_.Send(head, body, {}, more); !sent.ok()) {
    _exit(0);  // There is no recipient left.
  }
}

void Runner::Flush() {
  std::lock_guard lock(writer_mutex_);
  if (!writer_.Flush().ok()) {
    _exit(0);
  }
}

void Runner::Die(const Status& status) {
  internal::Envelope envelope;
  SetStatus(status, envelope.mutable_fatal()->mutable_status());
  Send(envelope);
  _exit(1);
}

}  // namespace hpvm::executor
