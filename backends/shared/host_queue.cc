// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/host_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <system_error>

namespace hpvm::backends {
namespace {

enum class Readiness : uint8_t { kReady, kPending, kFailed };

Readiness CheckWaits(const Submission& submission, Status* failure) {
  bool pending = false;
  for (const TimelinePoint& point : submission.waits) {
    PointState state = Poll(point, failure);
    if (state == PointState::kFailed) {
      return Readiness::kFailed;
    }
    pending |= state == PointState::kPending;
  }
  return pending ? Readiness::kPending : Readiness::kReady;
}

// Returns true when the submission must wait, and adds its pending points. Each point is polled once: a point that
// settles between two polls would be neither reached nor waited for.
bool FindPending(const Submission& submission, std::vector<TimelinePoint>& pending_points) {
  const size_t before = pending_points.size();
  for (const TimelinePoint& point : submission.waits) {
    const PointState state = Poll(point);
    if (state == PointState::kFailed) {
      pending_points.resize(before);
      return false;
    }
    if (state == PointState::kPending) {
      pending_points.push_back(point);
    }
  }
  return pending_points.size() != before;
}

void FailSignals(const Submission& submission, const Status& status) {
  for (const TimelinePoint& point : submission.signals) {
    point.timeline->Fail(status);
  }
}

}  // namespace

HostQueue::HostQueue(Hub& hub, CommandTarget& target)
    : hub_(hub), target_(target), changed_(std::make_unique<Timeline>(hub)) {}

HostQueue::~HostQueue() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    changed_->Signal(++changes_);
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (const Submission& submission : deferred_) {
    FailSignals(submission, Cancelled("The device was closed before the submission could start."));
  }
}

void HostQueue::Submit(const Submission& submission) {
  Status failure;
  switch (CheckWaits(submission, &failure)) {
    case Readiness::kReady:
      Start(submission);
      return;
    case Readiness::kFailed:
      FailSignals(submission, failure);
      return;
    case Readiness::kPending:
      Defer(submission);
      return;
  }
}

void HostQueue::Start(const Submission& submission) {
  Status status;
  if (submission.commands != nullptr) {
    status = target_.RunList(submission);
  } else if (IsStopped(submission)) {
    status = Cancelled("The submission was stopped.");
  }
  if (!status.ok()) {
    FailSignals(submission, status);
    return;
  }
  for (const TimelinePoint& point : submission.signals) {
    point.timeline->Signal(point.value);
  }
}

void HostQueue::Defer(const Submission& submission) {
  std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { ServeDeferred(); });
    } catch (const std::system_error& error) {
      FailSignals(submission, ResourceExhausted(std::string("No thread can be started for a deferred submission: ") +
                                                error.what() + "."));
      return;
    }
  }
  deferred_.push_back(submission);
  changed_->Signal(++changes_);
}

// Moves submissions that may start from deferred_ to `ready` and lists the points for which the others wait. Returns
// false when the queue is closing.
bool HostQueue::TakeReady(std::vector<Submission>& ready, std::vector<TimelinePoint>& pending_points) {
  std::lock_guard lock(mutex_);
  if (closing_) {
    return false;
  }
  std::vector<Submission> pending;
  for (const Submission& submission : deferred_) {
    if (FindPending(submission, pending_points)) {
      pending.push_back(submission);
    } else {
      ready.push_back(submission);
    }
  }
  deferred_ = std::move(pending);
  pending_points.push_back({changed_.get(), changes_ + 1});
  return true;
}

void HostQueue::ServeDeferred() {
  std::vector<Submission> ready;
  std::vector<TimelinePoint> pending_points;
  while (true) {
    ready.clear();
    pending_points.clear();
    if (!TakeReady(ready, pending_points)) {
      return;
    }
    for (const Submission& submission : ready) {
      Submit(submission);
    }
    if (ready.empty()) {
      // It fails only at a deadline, and there is none.
      HPVMD_CHECK(hub_.WaitAny(pending_points, kNever).ok());
    }
  }
}

StatusOr<uint8_t*> HostRange(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes) {
  if (slot >= submission.buffers.size() || submission.buffers[slot] == nullptr) {
    return Internal("Buffer slot (" + std::to_string(slot) + ") is not bound; the submission has " +
                    std::to_string(submission.buffers.size()) + " slots.");
  }
  Buffer& buffer = *submission.buffers[slot];
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset) {
    return Internal("View at byte " + std::to_string(offset) + " of " + std::to_string(bytes) +
                    " bytes does not fit buffer slot " + std::to_string(slot) + " (" + std::to_string(buffer.bytes()) +
                    " bytes).");
  }
  uint8_t* host = buffer.host();
  if (host == nullptr && bytes != 0) {
    return Internal("Buffer slot " + std::to_string(slot) + " is not host memory.");
  }
  return host + offset;
}

Status CheckDispatch(const DispatchCommand& dispatch, const Submission& submission) {
  const std::vector<ir::KernelParam>& params = dispatch.executable->artifact().params;
  const std::vector<DispatchArgument>& arguments = submission.commands->arguments;
  if (dispatch.argument_count != params.size() || dispatch.first_argument > arguments.size() ||
      dispatch.argument_count > arguments.size() - dispatch.first_argument) {
    return Internal("Dispatch has " + std::to_string(dispatch.argument_count) + " arguments; kernel \"" +
                    dispatch.executable->artifact().entry + "\" takes " + std::to_string(params.size()) + ".");
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const DispatchArgument& argument = arguments[dispatch.first_argument + i];
    if (argument.is_buffer != params[i].is_buffer) {
      return Internal("Argument " + std::to_string(i) + " (\"" + params[i].name + "\") is of the wrong kind.");
    }
    if (argument.is_buffer) {
      HPVMD_RETURN_IF_ERROR(HostRange(submission, argument.slot, argument.offset, argument.bytes).status());
    } else if (argument.slot != kNoSlot && argument.slot >= submission.scalars.size()) {
      return Internal("Scalar slot (" + std::to_string(argument.slot) + ") is not bound; the submission has " +
                      std::to_string(submission.scalars.size()) + " slots.");
    }
  }
  return absl::OkStatus();
}

Status RunCopy(const CopyCommand& copy, const Submission& submission) {
  HPVMD_ASSIGN_OR_RETURN(const uint8_t* from, HostRange(submission, copy.source, copy.source_offset, copy.bytes));
  HPVMD_ASSIGN_OR_RETURN(uint8_t * to, HostRange(submission, copy.target, copy.target_offset, copy.bytes));
  if (copy.bytes != 0) {
    std::memmove(to, from, copy.bytes);
  }
  return absl::OkStatus();
}

Status RunFill(const FillCommand& fill, const Submission& submission) {
  HPVMD_ASSIGN_OR_RETURN(uint8_t * to, HostRange(submission, fill.target, fill.offset, fill.bytes));
  if (fill.bytes != 0) {
    std::memset(to, fill.value, fill.bytes);
  }
  return absl::OkStatus();
}

Status TrapStatus(const ir::TrapReport& trap, std::string_view what) {
  if (trap.code == ir::TrapCode::kWrongProof) {
    std::fprintf(stderr, "A launch left its buffers although the proof at launch showed that it stays inside: %s.\n",
                 std::string(what).c_str());
    HPVMD_CHECK(trap.code != ir::TrapCode::kWrongProof);
  }
  if (trap.code == ir::TrapCode::kStopped) {
    return Cancelled("The launch was stopped.");
  }
  return Aborted("Kernel trapped: " + std::string(what) + ".");
}

}  // namespace hpvm::backends
