// SPDX-License-Identifier: Apache-2.0
// CommandWalk is one thread's pass over commands of a submission: handles the stop word, timings, and failures.
#ifndef HPVMD_BACKENDS_SHARED_COMMAND_WALK_H_
#define HPVMD_BACKENDS_SHARED_COMMAND_WALK_H_

#include <algorithm>
#include <cstdint>

#include "backends/contract/device.h"
#include "backends/shared/ticks.h"

namespace hpvm::backends {

// Data passed between the walk and the target in addition to a command's status.
struct CommandRecord {
  uint64_t start_ticks = 0;  // When the preceding command ended.
  uint64_t end_ticks = 0;    // Set by targets that read the counter anyway; otherwise the walk reads it.
  ir::TrapReport trap;       // Set by the target when a kernel traps.
  // Set by targets whose kernels have several variants: NodeTiming::variant.
  uint8_t variant = kVariantUnknown;
  bool is_settled = true;             // Likewise: NodeTiming::is_settled.
};

// The device-specific part of host devices: runs commands.
class CommandTarget {
 public:
  virtual ~CommandTarget() = default;
  // Runs one command. Thread-safe.
  virtual Status Run(const Command& command, const Submission& submission, CommandRecord* record) = 0;
  // Runs the submission's list in an order that it allows; fills timings and the failure. Thread-safe. The default
  // implementation runs commands one after another.
  virtual Status RunList(const Submission& submission);
};

// Converts tick readings to nanoseconds of the monotonic clock. The rate is only an estimate, so the clock itself is
// read again after each millisecond: the error stays below a microsecond however long a submission runs.
class TickClock {
 public:
  TickClock(const Ticks& ticks, uint64_t now)
      : ticks_(ticks), refresh_ticks_(static_cast<uint64_t>(kRefreshNs / ticks.ns_per_tick())) {
    Refresh(now);
  }
  int64_t Ns(uint64_t now) {
    if (now - anchor_ > refresh_ticks_) {
      Refresh(now);
    } else {
      const double elapsed = static_cast<double>(now - anchor_) * ticks_.ns_per_tick();
      last_ns_ = std::max(last_ns_, anchor_ns_ + static_cast<int64_t>(elapsed));
    }
    return last_ns_;
  }

 private:
  static constexpr double kRefreshNs = 1e6;
  void Refresh(uint64_t now) {
    anchor_ = now;
    anchor_ns_ = static_cast<int64_t>(Ticks::MonotonicNs());
    last_ns_ = std::max(last_ns_, anchor_ns_);
  }

  const Ticks& ticks_;
  const uint64_t refresh_ticks_;
  uint64_t anchor_ = 0;
  int64_t anchor_ns_ = 0, last_ns_ = 0;
};

inline bool IsStopped(const Submission& submission) {
  return submission.stop != nullptr && submission.stop->load(std::memory_order_relaxed) != 0;
}

class CommandWalk {
 public:
  // All are borrowed.
  CommandWalk(CommandTarget& target, const Submission& submission, const Ticks& ticks)
      : target_(target), submission_(submission), ticks_(ticks), clock_(ticks, ticks.Now()) {
    Resume();
  }

  // The next command begins now, not when the preceding one ended.
  void Resume() {
    record_.start_ticks = ticks_.Now();
    now_ns_ = clock_.Ns(record_.start_ticks);
  }
  // Returns kCancelled when the submission is stopped. After a failure nothing further is to be run.
  Status Run(const Command& command) {
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    record_.end_ticks = 0;
    record_.variant = kVariantUnknown;
    record_.is_settled = true;
    Status status =
        IsStopped(submission_) ? Cancelled("The submission was stopped.") : target_.Run(command, submission_, &record_);
    if (!status.ok()) [[unlikely]] {
      return status;
    }
    record_.start_ticks = record_.end_ticks != 0 ? record_.end_ticks : ticks_.Now();
    if (dispatch != nullptr && dispatch->node < submission_.timings.size()) {
      const int64_t start_ns = now_ns_;
      now_ns_ = clock_.Ns(record_.start_ticks);
      submission_.timings[dispatch->node] = {start_ns, now_ns_, false, record_.is_settled, record_.variant};
    } else if (!submission_.timings.empty()) {
      now_ns_ = clock_.Ns(record_.start_ticks);
    }
    return status;
  }
  // Reports the failed command, after Run has failed. Called by only one walk of a submission.
  void Report(const Command& command) const;
  // When the last command ended, or Resume was called.
  uint64_t ticks() const { return record_.start_ticks; }

 private:
  CommandTarget& target_;
  const Submission& submission_;
  const Ticks& ticks_;
  TickClock clock_;
  CommandRecord record_;
  int64_t now_ns_ = 0;
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_COMMAND_WALK_H_
