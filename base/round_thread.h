// SPDX-License-Identifier: Apache-2.0
// A thread that does something again and again, when it is due or when it is woken, and sleeps meanwhile.
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
  // Does the work of a round and answers how long after it the next one is due, 300 years at most; 0: at once.
  using Round = std::function<Duration()>;
  // The first round comes after `first`.
  explicit RoundThread(Round round, Duration first = Duration{0});
  ~RoundThread() { Stop(); }
  RoundThread(const RoundThread&) = delete;
  RoundThread& operator=(const RoundThread&) = delete;

  // A round comes now, or once more after the one in progress. Any thread.
  void Wake();
  // Waits for the round in progress; none comes later. Not from within a round. Once more: without effect.
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
