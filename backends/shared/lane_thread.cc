// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/lane_thread.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <vector>

namespace hpvm::backends {

LaneThread::~LaneThread() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Status LaneThread::Submit(const Submission& submission) {
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      try {
        thread_ = std::thread([this] { Serve(); });
      } catch (const std::system_error& error) {
        return ResourceExhausted(std::string("No thread can be started for a lane of a device: ") + error.what() + ".");
      }
    }
    for (const TimelinePoint& point : submission.signals) {
      if (Status why; Poll(point, &why) == PointState::kFailed) {
        Fail(submission, why);
        return absl::OkStatus();
      }
    }
    waiting_.push_back(submission);
  }
  changed_.notify_all();
  return absl::OkStatus();
}

void LaneThread::Serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) {
      return;
    }
    const Submission submission = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const Status status = Run(submission);
    lock.lock();
    if (!status.ok()) {
      Fail(submission, status);
      continue;
    }
    for (const TimelinePoint& point : submission.signals) {
      point.timeline->Signal(point.value);
    }
  }
}

Status LaneThread::Run(const Submission& submission) const {
  for (const TimelinePoint& wait : submission.waits) {
    HPVMD_RETURN_IF_ERROR(wait.timeline->Wait(wait.value, kNever));
  }
  return submission.commands == nullptr ? absl::OkStatus() : runner_(submission);
}

// The caller holds mutex_, so that no submission is added for a timeline that is about to fail.
void LaneThread::Fail(const Submission& failed, const Status& status) {
  std::vector<Timeline*> timelines;
  const auto add = [&](const Submission& submission) {
    for (const TimelinePoint& signal : submission.signals) {
      if (std::ranges::find(timelines, signal.timeline) == timelines.end()) {
        timelines.push_back(signal.timeline);
      }
    }
  };
  add(failed);
  for (size_t i = 0; i < timelines.size(); ++i) {
    const auto signals_it = [timeline = timelines[i]](const Submission& submission) {
      return std::ranges::find(submission.signals, timeline, &TimelinePoint::timeline) != submission.signals.end();
    };
    for (const Submission& submission : waiting_) {
      if (signals_it(submission)) {
        add(submission);
      }
    }
    std::erase_if(waiting_, signals_it);
  }
  for (Timeline* const timeline : timelines) {
    timeline->Fail(status);
  }
}

}  // namespace hpvm::backends
