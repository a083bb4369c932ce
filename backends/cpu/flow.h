// SPDX-License-Identifier: Apache-2.0
// Flow runs a command list in its partial order, on all workers at once.
//
// Each command decrements the counters of its successors. The first successor that becomes ready runs next on the same
// worker, so a chain costs no more than a sequential walk; the others go to the worker's deque, from which idle workers
// steal. Commands without predecessors are handed out a few at a time. A launch that is long enough to be shared is
// open to the list's idle workers (Pool::Run). A worker that finds nothing spins for 50 µs and then sleeps until there
// is work. There is no lock and no allocation per command; counters, deques and measurements stay with the list.
//
// Before each command a worker checks the stop word, failures of others, and the grant: helpers beyond the granted
// threads leave, and their work can be stolen; the submitting thread waits while the grant is revoked and then calls
// the helpers back. The first failure ends the list; running chunks and commands are finished.
#ifndef HPVMD_BACKENDS_CPU_FLOW_H_
#define HPVMD_BACKENDS_CPU_FLOW_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/contract/device.h"
#include "backends/cpu/mode_chooser.h"
#include "backends/cpu/pool.h"
#include "backends/cpu/pool_thread.h"
#include "backends/cpu/work_deque.h"
#include "backends/shared/command_walk.h"

namespace hpvm::cpu {

// State that stays with a list.
class FlowMemo final : public ListMemo {
 public:
  FlowMemo(const void* owner, const CommandOrder& order, uint32_t threads);

  struct alignas(64) Worker {
    WorkDeque deque;
    // Figures of this submission; owned by the worker until it has left.
    uint64_t busy_ticks = 0, shared_ns = 0;
    uint32_t done = 0;  // Not yet counted in Flow::done_.
  };

  ModeChooser chooser;
  const uint32_t commands, threads;
  std::vector<uint32_t> roots;  // Commands without predecessors.
  // Indexed by command: number of predecessors that have not ended.
  std::unique_ptr<std::atomic<uint32_t>[]> waits_for;
  std::unique_ptr<uint32_t[]> took_ticks;  // Indexed by command: duration of its last run; kUnknown before.
  static constexpr uint32_t kUnknown = ~0u;
  std::unique_ptr<Worker[]> workers;  // Indexed by PoolThread::index.

  void Reset(const CommandOrder& order);
};

class Flow final : private PoolSource, private PoolFamily {
 public:
  // All are borrowed. The submission's list has an order, and as many commands as the memo was made for.
  Flow(Pool& pool, backends::CommandTarget& target, const Submission& submission, FlowMemo& memo);

  // Runs the list on the calling thread and on helpers. Fills the failure.
  Status Run();

 private:
  using Worker = FlowMemo::Worker;

  bool Serve(uint32_t thread) override;
  bool Work(uint32_t thread);
  bool MayGoOn(uint32_t thread);
  uint32_t Find(Worker& worker, uint32_t thread);
  uint32_t TakeRoots(Worker& worker);
  uint32_t Execute(Worker& worker, backends::CommandWalk& walk, uint32_t command);
  uint32_t Finish(Worker& worker, uint32_t command);
  void Announce(const WorkDeque& deque, uint32_t longest_ticks);
  bool AwaitWork(uint32_t thread, uint64_t* idle_since);
  void Sleep();
  bool HasWork() const;
  void Count(Worker& worker);
  void End();
  void Fail(const Command& command, const backends::CommandWalk& walk, const Status& status);

  Pool& pool_;
  backends::CommandTarget& target_;
  const Submission& submission_;
  const Command* const commands_;
  const CommandOrder& order_;
  FlowMemo& memo_;
  const backends::Ticks& ticks_;
  uint32_t allowed_epoch_;  // Last value seen by the submitting thread.
  alignas(64) std::atomic<uint32_t> next_root_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<bool> has_ended_{false};
  std::atomic<bool> is_solo_{false};  // Commands are too short for helpers.
  std::mutex failure_mutex_;
  Status status_;  // Guarded by failure_mutex_ until all workers have left.
};

// Runs the submission's list in the way that seems faster; the memo is stored in its order.
Status RunOrdered(Pool& pool, backends::CommandTarget& target, const Submission& submission, const void* owner);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_FLOW_H_
