// SPDX-License-Identifier: Apache-2.0
// LaneThread runs submissions of a lane whose commands run on the host but not on the submitting thread: they run one
// after another, in the order of submission, on the lane's own thread, which starts with the first one and also waits
// for their points.
//
// When a submission fails, later ones that signal one of its timelines are dropped before these timelines fail, because
// a waiter that sees a failed timeline frees everything named by the submissions that were to signal it
// (backends/contract/device.h).
#ifndef HPVMD_BACKENDS_SHARED_LANE_THREAD_H_
#define HPVMD_BACKENDS_SHARED_LANE_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "backends/contract/device.h"

namespace hpvm::backends {

class LaneThread {
 public:
  // Runs the commands of a submission whose wait points are reached. Called on the lane's thread.
  using Runner = std::function<Status(const Submission&)>;

  explicit LaneThread(Runner runner) : runner_(std::move(runner)) {}
  // Runs all submissions; none of them may wait for points that will never be reached.
  ~LaneThread();
  LaneThread(const LaneThread&) = delete;
  LaneThread& operator=(const LaneThread&) = delete;

  // Only queues; fails the signals when one of their timelines has failed. Returns kResourceExhausted, with unchanged
  // signals, when no thread can be started. Thread-safe.
  Status Submit(const Submission& submission);

 private:
  void Serve();
  Status Run(const Submission& submission) const;
  void Fail(const Submission& failed, const Status& status);

  const Runner runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Submission> waiting_;  // Guarded by mutex_.
  bool closing_ = false;            // Guarded by mutex_.
  std::thread thread_;              // Guarded by mutex_ until the destructor.
};

}  // namespace hpvm::backends

#endif  // HPVMD_BACKENDS_SHARED_LANE_THREAD_H_
