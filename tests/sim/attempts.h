// SPDX-License-Identifier: Apache-2.0
// Attempts checks what reaches an executor and its outcome: it matches every run that the daemon sends, by its
// payload, with the committed rows of its job, and every change of a row with the outcome of its runs.
#ifndef HPVMD_TESTS_SIM_ATTEMPTS_H_
#define HPVMD_TESTS_SIM_ATTEMPTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/context.h"
#include "tests/sim/store_model.h"

namespace hpvm::server::sim {

// Payloads of volatile runs, which belong to no job, are larger.
inline constexpr uint64_t kVolatileTokens = 1'000'000'000;

// Outcome of a run, as its executor knows it.
enum class Fate : uint8_t {
  kPending,
  kDone,      // Its outputs were sent.
  kTrapped,   // The run's own fault.
  kStopped,   // Cancelled or late.
  kLost,      // Executor or device was lost.
  kBroken,    // The executor broke the protocol.
  kOther,     // Any other failure of the run itself.
  kNoMemory,  // Nothing ran: it is sent again with memory.
};

class Attempts {
 public:
  Attempts(Context& context, StoreModel& model);

  // A run reaches its executor. `index` is the value of input "i". The returned id is for OnEnd.
  uint64_t OnStart(const std::string& tenant, uint64_t token, uint64_t index);
  void OnEnd(uint64_t run, Fate fate);
  // Every executor ended with its daemon.
  void OnDaemonEnd(bool drained);
  void OnDaemonStart();
  // The daemon stops in order: work that it interrupts then is nobody's fault.
  void OnDrain() { draining_ = true; }
  // A client has asked for it; the daemon may act on it from now on.
  void OnCancelSent(const std::string& id) { cancels_.insert(id); }
  // The executor could not be started for this tenant: a fault that costs an attempt without a run.
  void OnStartFault(const std::string& tenant) { start_faults_[tenant] = context_.clock.Now(); }

  // Returns true when a request to cancel a running job was stored since the last call.
  bool TakeCancelStored() { return std::exchange(cancel_stored_, false); }
  // Returns true for a job that nothing keeps from running, or from ending because of an unfulfillable dependency,
  // except its turn and a short delay after a lost attempt.
  bool WaitsForNothing(const Row& row) const;
  // Returns when the last of the dependencies changed.
  Time LastChange(const v1::JobDependency& dependency) const;
  // Number of dispatches in progress.
  size_t live() const { return live_.size(); }
  uint64_t runs() const { return next_ - 1; }

 private:
  using Key = std::pair<uint64_t, uint64_t>;  // Token, index.
  struct Run {
    Key key;
    std::string tenant;
    std::string writer;  // See WriterOf.
    Fate fate = Fate::kPending;
  };
  struct History {
    uint64_t effective = 0;  // Runs that were not sent again with memory.
    Fate last = Fate::kPending;
    bool any_done = false, any_lost = false, any_trapped = false, any_broken = false, any_other = false;
  };

  void OnChange(const Row* before, const Row& after);
  // Returns the job with in-place writes whose run begins now. A key may stand for several jobs, those that RetryJob
  // made. Empty when there is none, or when two of them run and neither has written, because they cannot be told
  // apart.
  std::string WriterOf(const Key& key) const;
  void CheckStart(const Key& key);
  void CheckQueue(const Row& added);
  void CheckDependencies(const Row& row);
  void CheckCompany(const Row& row);
  void CheckEnd(const Row& before, const Row& after);
  void CheckFailure(const Row& after, const History& history);
  bool IsPossible(const v1::JobDependency& dependency) const;
  bool IsFulfilled(const v1::JobDependency& dependency) const;
  bool MayBeLate(const Row& row) const;

  Context& context_;
  StoreModel& model_;
  uint64_t next_ = 1;
  std::map<uint64_t, Run> live_;
  std::map<Key, History> history_;
  std::set<std::string> wrote_;  // Jobs with in-place writes that an executor has begun.
  std::set<std::string> cancels_;
  std::map<std::string, Time> start_faults_;
  bool draining_ = false, has_restarted_ = false, cancel_stored_ = false;
};

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_ATTEMPTS_H_
