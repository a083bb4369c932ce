// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/flow.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/io/spin.h"

namespace hpvm::cpu {
namespace {

constexpr uint32_t kNone = WorkDeque::kNone;
// Waking a thread costs a system call here and tens of microseconds there.
constexpr double kWorthACallNs = 5'000;
// Interval at which the submitting thread polls the stop word and the grant, as neither wakes it.
constexpr Duration kSleepMax = std::chrono::milliseconds(10);
// Roots are handed out in kRootPieces pieces per worker, and at most kRootsMax at a time.
constexpr uint32_t kRootPieces = 8, kRootsMax = 64;
// For a list that was never measured: after this many commands it is known whether helpers are worth it.
constexpr uint32_t kSoloAfter = 256;
constexpr double kSoloNs = 250;

// Returns the number of commands in the longest chain.
uint32_t LongestChain(const CommandOrder& order) {
  std::vector<uint32_t> depth(order.predecessors.size(), 1);
  uint32_t longest = depth.empty() ? 0 : 1;
  for (size_t c = 0; c < depth.size(); ++c) {
    longest = std::max(longest, depth[c]);
    for (uint32_t i = order.first_successor[c]; i < order.first_successor[c + 1]; ++i) {
      depth[order.successors[i]] = std::max(depth[order.successors[i]], depth[c] + 1);
    }
  }
  return longest;
}

double WidthOf(const CommandOrder& order) {
  return static_cast<double>(order.predecessors.size()) / std::max<double>(LongestChain(order), 1);
}

std::vector<uint32_t> RootsOf(const CommandOrder& order) {
  std::vector<uint32_t> roots;
  for (uint32_t c = 0; c < order.predecessors.size(); ++c) {
    if (order.predecessors[c] == 0) {
      roots.push_back(c);
    }
  }
  return roots;
}

// Makes the calling thread a member of a family for its lifetime.
class Membership {
 public:
  explicit Membership(PoolFamily* family) : before_(std::exchange(ThisPoolThread().family, family)) {}
  ~Membership() { ThisPoolThread().family = before_; }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

 private:
  PoolFamily* const before_;
};

}  // namespace

FlowMemo::FlowMemo(const void* owner, const CommandOrder& order, uint32_t thread_count)
    : ListMemo(owner),
      chooser(order.predecessors.size(), WidthOf(order)),
      commands(static_cast<uint32_t>(order.predecessors.size())),
      threads(thread_count) {}

void FlowMemo::Reset(const CommandOrder& order) {
  if (workers == nullptr) {
    roots = RootsOf(order);
    waits_for.reset(new std::atomic<uint32_t>[commands]);
    workers.reset(new Worker[threads]);
    took_ticks.reset(new uint32_t[commands]);
    std::fill_n(took_ticks.get(), commands, kUnknown);
  }
  for (uint32_t c = 0; c < commands; ++c) {
    waits_for[c].store(order.predecessors[c], std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < threads; ++i) {
    Worker& worker = workers[i];
    worker.deque.Clear();
    worker.busy_ticks = worker.shared_ns = worker.done = 0;
  }
}

Flow::Flow(Pool& pool, backends::CommandTarget& target, const Submission& submission, FlowMemo& memo)
    : pool_(pool),
      target_(target),
      submission_(submission),
      commands_(submission.commands->commands.data()),
      order_(*submission.commands->order),
      memo_(memo),
      ticks_(backends::ProcessTicks()),
      allowed_epoch_(pool.AllowedEpoch()) {}

Status Flow::Run() {
  memo_.Reset(order_);
  const uint32_t slot = pool_.Open(*this, nullptr);
  if (slot != Pool::kNoSlot) {
    pool_.CallHelpers(pool_.Allowed() - 1);
  }
  while (!has_ended_.load(std::memory_order_acquire)) {
    Work(0);
  }
  if (slot != Pool::kNoSlot) {
    pool_.Close(slot);
  }
  return std::move(status_);
}

bool Flow::Serve(uint32_t thread) { return Work(thread); }

// Checked before each command. Helpers leave; the submitting thread waits for the grant.
bool Flow::MayGoOn(uint32_t thread) {
  if (has_ended_.load(std::memory_order_acquire)) {
    return false;
  }
  if (thread != 0) {
    return pool_.MayWork(thread) && !is_solo_.load(std::memory_order_relaxed);
  }
  const uint32_t epoch = pool_.AllowedEpoch();
  if (epoch == allowed_epoch_) [[likely]] {
    return true;
  }
  // The next command notices a stop.
  pool_.WaitForGrant(submission_.stop);
  allowed_epoch_ = epoch;
  pool_.CallHelpers(pool_.Allowed() - 1);
  return true;
}

// Returns false when there was nothing to do.
bool Flow::Work(uint32_t thread) {
  const Membership membership(this);
  Worker& worker = memo_.workers[thread];
  backends::CommandWalk walk(target_, submission_, ticks_);
  uint64_t idle_since = 0;
  bool has_worked = false;
  while (MayGoOn(thread)) {
    uint32_t command = Find(worker, thread);
    if (command == kNone) {
      Count(worker);
      if (has_ended_.load(std::memory_order_acquire) || !AwaitWork(thread, &idle_since)) {
        break;
      }
      continue;
    }
    if (idle_since != 0 || !has_worked) {
      walk.Resume();
    }
    idle_since = 0;
    has_worked = true;
    do {
      command = Execute(worker, walk, command);
    } while (command != kNone && MayGoOn(thread));
    if (command != kNone) {
      worker.deque.Push(command);  // For other workers.
    }
  }
  Count(worker);
  if (thread != 0 && has_worked) {
    Wake();  // Wakes for the remaining work, or for the end.
  }
  return has_worked;
}

uint32_t Flow::Find(Worker& worker, uint32_t thread) {
  if (const uint32_t own = worker.deque.Pop(); own != kNone) {
    return own;
  }
  if (const uint32_t root = TakeRoots(worker); root != kNone) {
    return root;
  }
  for (uint32_t i = 1; i < memo_.threads; ++i) {
    WorkDeque& other = memo_.workers[(thread + i) % memo_.threads].deque;
    if (const uint32_t stolen = other.Steal(); stolen != kNone) {
      if (other.size() != 0) {
        Announce(other, memo_.took_ticks[stolen]);  // A worker that was called calls the next one.
      }
      return stolen;
    }
  }
  return kNone;
}

// Takes a few roots; returns the first and puts the others into the worker's deque.
uint32_t Flow::TakeRoots(Worker& worker) {
  const auto count = static_cast<uint32_t>(memo_.roots.size());
  uint32_t from = next_root_.load(std::memory_order_relaxed);
  uint32_t taken;
  do {
    if (from >= count) {
      return kNone;
    }
    taken = std::clamp((count - from) / (kRootPieces * memo_.threads), 1u, kRootsMax);
  } while (!next_root_.compare_exchange_weak(from, from + taken, std::memory_order_relaxed));
  for (uint32_t i = taken; i-- > 1;) {
    worker.deque.Push(memo_.roots[from + i]);
  }
  return memo_.roots[from];
}

// Runs one command; returns the command to run next on this worker, or kNone.
uint32_t Flow::Execute(Worker& worker, backends::CommandWalk& walk, uint32_t command) {
  PoolThread& self = ThisPoolThread();
  const uint64_t start = walk.ticks(), shared_ns = self.shared_ns;
  const Status status = walk.Run(commands_[command]);
  if (!status.ok()) [[unlikely]] {
    Fail(commands_[command], walk, status);
    return kNone;
  }
  const uint64_t ticks = walk.ticks() - start;
  worker.busy_ticks += ticks;
  memo_.took_ticks[command] = static_cast<uint32_t>(std::min<uint64_t>(ticks, FlowMemo::kUnknown - 1));
  worker.shared_ns += self.shared_ns - shared_ns;
  ++worker.done;
  if (worker.done == kSoloAfter && self.index == 0 && memo_.chooser.command_ns() == 0 &&
      static_cast<double>(worker.busy_ticks) * ticks_.ns_per_tick() < kSoloNs * kSoloAfter) [[unlikely]] {
    is_solo_.store(true, std::memory_order_relaxed);
  }
  return Finish(worker, command);
}

uint32_t Flow::Finish(Worker& worker, uint32_t command) {
  uint32_t next = kNone;
  bool has_pushed = false;
  uint32_t longest_ticks = 0;
  for (uint32_t i = order_.first_successor[command]; i < order_.first_successor[command + 1]; ++i) {
    const uint32_t successor = order_.successors[i];
    // The only predecessor, or the last one, need not decrement the counter.
    std::atomic<uint32_t>& waits_for = memo_.waits_for[successor];
    if (order_.predecessors[successor] != 1 && waits_for.load(std::memory_order_acquire) != 1 &&
        waits_for.fetch_sub(1, std::memory_order_acq_rel) != 1) {
      continue;
    }
    if (next == kNone) {
      next = successor;
    } else {
      // After this line a thief may write it.
      longest_ticks = std::max(longest_ticks, memo_.took_ticks[successor]);
      worker.deque.Push(successor);
      has_pushed = true;
    }
  }
  if (has_pushed) {
    Announce(worker.deque, longest_ticks);
  }
  return next;
}

// Wakes sleeping workers, if the available work is worth it.
void Flow::Announce(const WorkDeque& deque, uint32_t longest_ticks) {
  if (sleeps.load(std::memory_order_seq_cst) == 0 && !pool_.HasParked()) {
    return;
  }
  const double others_ns = memo_.chooser.command_ns() * static_cast<double>(deque.size());
  if (longest_ticks != FlowMemo::kUnknown && longest_ticks * ticks_.ns_per_tick() + others_ns < kWorthACallNs) {
    return;
  }
  Wake();
  if (!is_solo_.load(std::memory_order_relaxed)) {
    pool_.CallParked();
  }
}

bool Flow::HasWork() const {
  if (next_root_.load(std::memory_order_relaxed) < memo_.roots.size()) {
    return true;
  }
  return std::any_of(memo_.workers.get(), memo_.workers.get() + memo_.threads,
                     [](const Worker& worker) { return worker.deque.size() != 0; });
}

// Looks for launches to help with, then spins, then sleeps. Returns false when a helper should leave.
bool Flow::AwaitWork(uint32_t thread, uint64_t* idle_since) {
  if (pool_.ServeFamily(static_cast<PoolFamily*>(this), thread)) {
    *idle_since = 0;
    return true;
  }
  const uint64_t now = ticks_.Now();
  if (*idle_since == 0) {
    *idle_since = now;
  }
  const double idle_ns = static_cast<double>(now - *idle_since) * ticks_.ns_per_tick();
  if (idle_ns < static_cast<double>(Pool::kSpin.count()) && pool_.MaySpin()) {
    Pause();
    return true;
  }
  if (thread != 0) {
    return false;  // It sleeps in the pool.
  }
  Sleep();
  return true;
}

void Flow::Sleep() {
  sleeps.store(1, std::memory_order_seq_cst);
  // Work may have arrived before others could see that this worker sleeps.
  if (!has_ended_.load(std::memory_order_seq_cst) && !HasWork() &&
      !pool_.ServeFamily(static_cast<PoolFamily*>(this), 0)) {
    FutexWait(sleeps, 1, kSleepMax, FutexScope::kProcess);
  }
  sleeps.store(0, std::memory_order_seq_cst);
}

void Flow::Count(Worker& worker) {
  const uint32_t done = std::exchange(worker.done, 0);
  if (done != 0 && done_.fetch_add(done, std::memory_order_acq_rel) + done == memo_.commands) {
    End();
  }
}

void Flow::End() {
  has_ended_.store(true, std::memory_order_seq_cst);
  Wake();
}

void Flow::Fail(const Command& command, const backends::CommandWalk& walk, const Status& status) {
  {
    std::lock_guard lock(failure_mutex_);
    // Launches that ended early because of another failure are not reported.
    if (status_.ok()) {
      status_ = status;
      walk.Report(command);
    }
  }
  is_halted.store(true, std::memory_order_relaxed);
  End();
}

namespace {

// Marks its launches as unsettled, because the way they ran is an experiment.
void Unsettle(const Submission& submission) {
  for (const Command& command : submission.commands->commands) {
    const auto* dispatch = std::get_if<DispatchCommand>(&command);
    if (dispatch != nullptr && dispatch->node < submission.timings.size()) {
      submission.timings[dispatch->node].is_settled = false;
    }
  }
}

}  // namespace

Status RunOrdered(Pool& pool, backends::CommandTarget& target, const Submission& submission, const void* owner) {
  const CommandOrder& order = *submission.commands->order;
  if (const size_t commands = submission.commands->commands.size(); order.predecessors.size() != commands) {
    return Internal("The order of a list of " + std::to_string(commands) + " commands has entries for " +
                    std::to_string(order.predecessors.size()) + ".");
  }
  const uint32_t threads = pool.GrantedThreads();
  std::unique_ptr<ListMemo> kept = order.memo.Take();
  std::unique_ptr<FlowMemo> memo;
  if (kept != nullptr && kept->owner() == owner) {
    memo.reset(static_cast<FlowMemo*>(kept.release()));
  } else {
    memo = std::make_unique<FlowMemo>(owner, order, pool.threads());
  }
  const ModeChooser::Mode mode = memo->chooser.Choose(threads);
  const backends::Ticks& ticks = backends::ProcessTicks();
  const uint64_t start = ticks.Now(), shared_ns = ThisPoolThread().shared_ns;
  Status status;
  ModeChooser::Times times;
  if (mode == ModeChooser::Mode::kFlow) {
    status = Flow(pool, target, submission, *memo).Run();
    times.wall_ns = static_cast<double>(ticks.Now() - start) * ticks.ns_per_tick();
    for (uint32_t i = 0; i < memo->threads; ++i) {
      times.busy_ns += static_cast<double>(memo->workers[i].busy_ticks) * ticks.ns_per_tick();
      times.shared_ns += static_cast<double>(memo->workers[i].shared_ns);
    }
  } else {
    status = target.CommandTarget::RunList(submission);
    times.wall_ns = times.busy_ns = static_cast<double>(ticks.Now() - start) * ticks.ns_per_tick();
    times.shared_ns = static_cast<double>(ThisPoolThread().shared_ns - shared_ns);
  }
  if (memo->chooser.is_trying()) {
    Unsettle(submission);
  }
  if (status.ok()) {
    memo->chooser.Learn(mode, threads, times);
  }
  order.memo.Give(std::move(memo));
  return status;
}

}  // namespace hpvm::cpu
