// SPDX-License-Identifier: Apache-2.0
// RoundThread repeats a task whenever it is due or woken, and sleeps in between.
#ifndef HPVMD_BASE_ROUND_THREAD_H_
#define HPVMD_BASE_ROUND_THREAD_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace hpvm {

class RoundThread {
 public:
  // Does the work of a round and returns the time until the next one is due, at most 300 years; 0 means at once.
  using Round = std::function<Duration()>;
  // The first round is due after `first`.
  explicit RoundThread(Round round, Duration first = Duration{0});
  ~RoundThread() { Stop(); }
  RoundThread(const RoundThread&) = delete;
  RoundThread& operator=(const RoundThread&) = delete;

  // Starts a round now, or another one after the round in progress. Thread-safe.
  void Wake();
  // Waits for the round in progress; none follows. Must not be called from within a round. Further calls have no
  // effect.
  void Stop();

 private:
  void Loop(Duration pause);

  const Round round_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false, stops_ = false;  // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_ROUND_THREAD_H_
