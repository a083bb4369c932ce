// SPDX-License-Identifier: Apache-2.0
// Work of many tenants on a few threads, in steps: between two steps, whoever has had least of the threads goes first.
//
// A tenant's work is done in the order in which it came and one at a time, so that no tenant has more than one thread.
// The next tenant is chosen by start-time fair queueing (Goyal, Vin, Cheng 1996) with equal weights, where a step's
// length is the time for which it had its thread: a tenant that comes now and then waits for at most one step of each
// thread, whatever others have posted. So each step must be short: a few milliseconds, or one piece for the disk.
#ifndef HPVMD_BASE_FAIR_QUEUE_H_
#define HPVMD_BASE_FAIR_QUEUE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace hpvm {

class FairQueue {
 public:
  // A step says whether the work is to be called again when its tenant's turn comes, or is done.
  enum class Step : uint8_t { kAgain, kDone };
  using Work = std::function<Step()>;

  // `name` and `item` are what the watch (base/thread_watch.h) calls the threads and their work; both live for ever.
  FairQueue(const char* name, const char* item, size_t threads);
  ~FairQueue() { Stop(); }
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Any thread; never blocks and never calls the work itself, so the caller may hold locks that the work takes. The
  // work is destroyed where it was called; after Stop it is destroyed at once, and not done.
  void Post(std::string tenant, Work work);
  // In one step.
  void PostOnce(std::string tenant, std::function<void()> work);

  // Returns when all that is posted is done, also what that posts. Not from the queue's own threads.
  void Stop();

  // Steps and tenants that wait now; for metrics and tests.
  size_t waiting() const;

 private:
  // By the queue's virtual time: when the next step would begin if all shared evenly; then by arrival.
  using Turn = std::pair<Duration, uint64_t>;
  // One tenant.
  struct Lane {
    std::string tenant;
    std::deque<Work> work;
    Turn turn;
    bool is_running = false;
  };
  void Loop();
  void AwaitTurn(Lane& lane);
  void ForgetIdle();

  const char* const name_;
  const char* const item_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::map<std::string, Lane> lanes_;
  std::map<Turn, Lane*> ready_;  // With work, and not running.
  Duration now_{0};              // Virtual: the start of the step that was begun last.
  uint64_t next_arrival_ = 0;
  size_t running_ = 0, works_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_FAIR_QUEUE_H_
