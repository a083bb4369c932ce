// SPDX-License-Identifier: Apache-2.0
// FairQueue runs the work of many tenants on a few threads, in steps. Between two steps, the tenant that has had the
// least thread time goes first.
//
// A tenant's work runs in order of arrival and one item at a time, so that no tenant occupies more than one thread. The
// next tenant is chosen by start-time fair queueing (Goyal, Vin, Cheng 1996) with equal weights, where a step's length
// is its elapsed time on a thread: a tenant that is mostly idle waits for at most one step of each thread, whatever
// others have posted. Each step must therefore be short: a few milliseconds, or one piece for the disk.
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
  // A step returns whether the work is to be called again at its tenant's next turn, or is done.
  enum class Step : uint8_t { kAgain, kDone };
  using Work = std::function<Step()>;

  // `name` and `item` name the threads and their work for the watch (base/thread_watch.h); both must live for ever.
  FairQueue(const char* name, const char* item, size_t threads);
  ~FairQueue() { Stop(); }
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  // Never blocks and never calls the work itself, so the caller may hold locks that the work takes. The work is
  // destroyed on the thread that ran it; after Stop it is destroyed at once without running. Thread-safe.
  void Post(std::string tenant, Work work);
  // Posts work that takes one step.
  void PostOnce(std::string tenant, std::function<void()> work);

  // Returns when all posted work, and the work posted by it, is done. Must not be called from the queue's own threads.
  void Stop();

  // Number of steps and tenants that wait now; for metrics and tests.
  size_t waiting() const;

 private:
  // Order of turns: by virtual time, when the next step would begin if all shared evenly; then by arrival.
  using Turn = std::pair<Duration, uint64_t>;
  // Work of one tenant.
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
  std::map<Turn, Lane*> ready_;  // Lanes that have work and are not running.
  Duration now_{0};              // Virtual time: the start of the step begun last.
  uint64_t next_arrival_ = 0;
  size_t running_ = 0, works_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hpvm

#endif  // HPVMD_BASE_FAIR_QUEUE_H_
