// SPDX-License-Identifier: Apache-2.0
// A command list in its partial order, on all workers at once.
//
// Each command counts down those that wait for it. The first of them that becomes ready runs next on the same worker,
// so a chain costs no more than a walk; the others go to the worker's deque, from which workers that have nothing
// steal. Commands that wait for none are handed out a few at a time. A launch that is long enough to be shared is open
// to whoever of the list's workers is idle (Pool::Run). Who finds nothing spins for 50 µs and then sleeps until there
// is something. There is no lock and no allocation a command; counters, deques and what was measured stay beside the
// list.
//
// At each command a worker looks at the stop word, at what others report, and at the grant: helpers beyond the granted
// threads leave, and what they had can be stolen; the submitting thread waits while the grant is revoked and then calls
// the helpers back. The first failure ends the list; chunks and commands that are running are finished.
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

// What stays beside a list.
class FlowMemo final : public ListMemo {
 public:
  FlowMemo(const void* owner, const CommandOrder& order, uint32_t threads);

  struct alignas(64) Worker {
    WorkDeque deque;
    // Of this submission, and the worker's own until it has left.
    uint64_t busy_ticks = 0, shared_ns = 0;
    uint32_t done = 0;  // Not yet counted in Flow::done_.
  };

  ModeChooser chooser;
  const uint32_t commands, threads;
  std::vector<uint32_t> roots;                         // Commands that wait for none.
  std::unique_ptr<std::atomic<uint32_t>[]> waits_for;  // By command: how many have not ended yet.
  std::unique_ptr<uint32_t[]> took_ticks;              // By command, when it ran last; kUnknown before.
  static constexpr uint32_t kUnknown = ~0u;
  std::unique_ptr<Worker[]> workers;  // By PoolThread::index.

  void Reset(const CommandOrder& order);
};

class Flow final : private PoolSource, private PoolFamily {
 public:
  // All borrowed. The submission's list has an order and as many commands as the memo was made for.
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
  uint32_t allowed_epoch_;  // As the submitting thread last saw it.
  alignas(64) std::atomic<uint32_t> next_root_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<bool> has_ended_{false};
  std::atomic<bool> is_solo_{false};  // Commands are too short for helpers.
  std::mutex failure_mutex_;
  Status status_;  // Guarded by failure_mutex_ until all have left.
};

// Runs the submission's list by whichever way looks quicker; the memo is kept in its order.
Status RunOrdered(Pool& pool, backends::CommandTarget& target, const Submission& submission, const void* owner);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_FLOW_H_
