// SPDX-License-Identifier: Apache-2.0
#include "builder/supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/processor_time.h"

namespace hpvm::builder {
namespace {

// Time limit for sending or reading one message.
constexpr Duration kMessageMax = std::chrono::seconds(10);
// Limit of requests that wait for a worker; beyond it the socket is not read, so the client waits.
constexpr size_t kWaitingMax = 64;
constexpr Duration kReapPause = std::chrono::milliseconds(5);

Duration DurationOf(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

}  // namespace

int BuildSupervisor::Run() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // Workers that may not write files may not write to standard error either.
  const Status status = Serve();
  Stop();
  if (absl::IsUnavailable(status)) {
    return 0;  // The client went away, which is how a supervisor ends.
  }
  std::fprintf(stderr, "%s: %s\n", options_.program.c_str(), Message(status).c_str());
  return 1;
}

Status BuildSupervisor::Serve() {
  HPVMD_RETURN_IF_ERROR(Prepare());
  HPVMD_RETURN_IF_ERROR(Rest());
  HPVMD_ASSIGN_OR_RETURN(const Frame first, ReceiveFrame(options_.socket, options_.limits));
  HPVMD_ASSIGN_OR_RETURN(const BuildHello hello, ReadHello(first));
  key_ = hello.key;
  HPVMD_RETURN_IF_ERROR(Begin(hello));
  while (true) {
    HPVMD_RETURN_IF_ERROR(Rest());
    HPVMD_RETURN_IF_ERROR(Poll());
    HPVMD_RETURN_IF_ERROR(Assign());
  }
}

Status BuildSupervisor::Poll() {
  std::vector<pollfd> fds;
  Time wake = killed_.empty() ? kNever : RealClock().Now() + kReapPause;
  for (const auto& worker : workers_) {
    fds.push_back({worker->channel.get(), POLLIN, 0});
    wake = std::min(wake, worker->deadline);
  }
  fds.push_back({options_.socket, static_cast<short>(waiting_.size() < kWaitingMax ? POLLIN : 0), 0});
  int timeout_ms = -1;
  if (wake != kNever) {
    const Duration left = std::max(Duration{0}, wake - RealClock().Now());
    timeout_ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  if (poll(fds.data(), fds.size(), timeout_ms) < 0 && errno != EINTR) {
    return FromErrno(errno, "Waiting for workers");
  }
  Reap();
  const Time now = RealClock().Now();
  for (size_t i = 0; i < workers_.size(); ++i) {
    HPVMD_RETURN_IF_ERROR(Look(*workers_[i], fds[i].revents != 0, now));
  }
  std::erase(workers_, nullptr);
  return fds.back().revents != 0 ? Receive() : absl::OkStatus();
}

// Reads available messages, and ends a late worker.
Status BuildSupervisor::Look(BuildWorker& worker, bool is_readable, Time now) {
  if (is_readable) {
    HPVMD_ASSIGN_OR_RETURN(const bool has_ended, Read(worker));
    if (has_ended) {
      // It has nothing more to do, whatever it may be doing.
      Kill(worker);
      int wait_status = 0;
      rusage used{};
      while (wait4(worker.process.pid, &wait_status, 0, &used) < 0 && errno == EINTR) {
      }
      const Status answered =
          Ended(worker, BuildEnd::kItself, wait_status, DurationOf(used.ru_utime) + DurationOf(used.ru_stime));
      std::find_if(workers_.begin(), workers_.end(), [&](const auto& one) { return one.get() == &worker; })->reset();
      return answered;
    }
  }
  if (now < worker.deadline) {
    return absl::OkStatus();
  }
  const Duration used = ProcessorTimeOf(worker.process.pid);
  BuildEnd end = worker.is_ready ? BuildEnd::kIdle : BuildEnd::kLoad;
  if (worker.job != nullptr && now < worker.wall_deadline) {
    // A job may be late by the clock although it hardly ran: the next check is then postponed.
    const Duration left = options_.processor_max - (used - worker.used_before);
    if (left > Duration(0)) {
      worker.deadline = std::min(now + std::max<Duration>(left, std::chrono::milliseconds(10)), worker.wall_deadline);
      return absl::OkStatus();
    }
    end = BuildEnd::kProcessor;
  } else if (worker.job != nullptr) {
    end = worker.wall_deadline == worker.job->deadline ? BuildEnd::kDeadline : BuildEnd::kClock;
  }
  Kill(worker);
  const Status answered = Ended(worker, end, 0, used);
  EndBeside(worker);
  return answered;
}

Status BuildSupervisor::Receive() {
  HPVMD_ASSIGN_OR_RETURN(Frame frame, ReceiveFrame(options_.socket, options_.limits, RealClock().Now() + kMessageMax));
  HPVMD_ASSIGN_OR_RETURN(const BuildMessage message, ReadMessage(frame));
  switch (message.says_case()) {
    case BuildMessage::kCancel:
      Cancel(message.id());
      return absl::OkStatus();
    case BuildMessage::kNote:
      return TakeNote(message.note());
    case BuildMessage::kRequest: {
      HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<BuildJob> job, Admit(message.id(), message.request(), frame));
      if (job != nullptr) {
        job->id = message.id();
        job->frame = std::move(frame);
        waiting_.push_back(std::move(job));
      }
      return absl::OkStatus();
    }
    default:
      return InvalidArgument("A builder's client sent a message that clients may not send.");
  }
}

// Drops a request, which gets no answer. A compiler cannot be told to stop, so its process is ended.
void BuildSupervisor::Cancel(uint64_t id) {
  std::erase_if(waiting_, [id](const auto& job) { return job->id == id; });
  for (const auto& worker : workers_) {
    if (worker->job != nullptr && worker->job->id == id) {
      Kill(*worker);
      EndBeside(*worker);
      break;
    }
  }
  std::erase(workers_, nullptr);
}

// Assigns waiting jobs to idle workers, and to new ones while there may be more.
Status BuildSupervisor::Assign() {
  while (!waiting_.empty()) {
    const auto idle = std::find_if(workers_.begin(), workers_.end(),
                                   [](const auto& worker) { return worker->is_ready && worker->job == nullptr; });
    if (idle != workers_.end()) {
      Give(**idle, std::move(waiting_.front()));
      waiting_.pop_front();
      const Frame& frame = (*idle)->job->frame;
      // A worker that does not take it ends as if the job had killed it, which its channel shows.
      SendFrame((*idle)->channel.get(), frame.head, frame.body, {}, RealClock().Now() + kMessageMax).IgnoreError();
      continue;
    }
    const bool is_one_coming =
        options_.keeps_workers &&
        std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) { return !worker->is_ready; });
    if (is_one_coming || workers_.size() + killed_.size() >= options_.workers_max) {
      return absl::OkStatus();
    }
    StatusOr<std::unique_ptr<BuildWorker>> worker =
        StartWorker(options_.keeps_workers ? nullptr : waiting_.front().get());
    if (!worker.ok()) {
      HPVMD_RETURN_IF_ERROR(RefuseFirst(Unavailable("A build process cannot be started: " + Message(worker.status()))));
      continue;
    }
    workers_.push_back(*std::move(worker));
    workers_.back()->deadline = RealClock().Now() + options_.load_max;
    if (!options_.keeps_workers) {
      Give(*workers_.back(), std::move(waiting_.front()));
      waiting_.pop_front();
    }
  }
  return absl::OkStatus();
}

void BuildSupervisor::Give(BuildWorker& worker, std::unique_ptr<BuildJob> job) {
  const Time now = RealClock().Now();
  worker.job = std::move(job);
  worker.wall_deadline = std::min(worker.job->deadline, now + options_.wall_max);
  worker.deadline = worker.wall_deadline;
  if (options_.keeps_workers) {
    worker.used_before = ProcessorTimeOf(worker.process.pid);
    worker.deadline = std::min(now + options_.processor_max, worker.wall_deadline);
  } else {
    worker.job->frame = {};  // The worker has it; its descriptors are not kept open here.
  }
}

void BuildSupervisor::BecomeIdle(BuildWorker& worker) {
  worker.is_ready = true;
  worker.job.reset();
  worker.deadline = RealClock().Now() + options_.idle_max;
}

// A killed worker leaves an empty place.
void BuildSupervisor::EndBeside(BuildWorker& worker) {
  const auto place =
      std::find_if(workers_.begin(), workers_.end(), [&](const auto& one) { return one.get() == &worker; });
  worker.channel.reset();
  killed_.push_back(std::move(*place));
}

void BuildSupervisor::Reap() {
  std::erase_if(killed_, [](const auto& worker) { return waitpid(worker->process.pid, nullptr, WNOHANG) != 0; });
}

void BuildSupervisor::Stop() {
  for (auto& worker : workers_) {
    if (worker != nullptr) {
      Kill(*worker);
      killed_.push_back(std::move(worker));
    }
  }
  workers_.clear();
  for (const auto& worker : killed_) {
    while (waitpid(worker->process.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  killed_.clear();
}

Status BuildSupervisor::RefuseFirst(const Status& why) {
  if (waiting_.empty()) {
    return absl::OkStatus();
  }
  const std::unique_ptr<BuildJob> job = std::move(waiting_.front());
  waiting_.pop_front();
  return Refuse(*job, why);
}

Status BuildSupervisor::Answer(uint64_t id, std::string payload, std::span<const uint8_t> body) {
  return SendFrame(options_.socket, AnswerHead(id, std::move(payload)), body, {}, RealClock().Now() + kMessageMax);
}

}  // namespace hpvm::builder
