// SPDX-License-Identifier: Apache-2.0
// Serves one daemon over one channel: modules, memories, handles, runs.
//
// Threads. One of a small pool is the leader: it reads the channel. It executes what is expected to be short itself, so
// that a small run costs no hop to another thread; before anything longer it hands the channel to another of the pool
// and executes the job as a follower. A watch thread, asleep while nothing runs, takes the channel away from a leader
// whose "short" job turns out long, sets the stop words of runs whose deadline has passed, and ends the process when
// the daemon is gone. Runs of one graph follow each other; a run waits without holding a thread.
#ifndef HPVMD_EXECUTOR_RUNNER_H_
#define HPVMD_EXECUTOR_RUNNER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/contract/grant_gate.h"
#include "base/io/fd.h"
#include "base/io/ring_channel.h"
#include "engine/engine.h"
#include "executor/run_job.h"

namespace hpvm::executor {

// By entry of the grant page.
using GrantGates = std::map<uint32_t, std::unique_ptr<GrantGate>>;

struct RunnerOptions {
  engine::Engine* engine = nullptr;     // Borrowed.
  int socket = -1;                      // Borrowed; Hello has been taken out of it, and nothing more.
  RingPairMemory* rings = nullptr;      // Borrowed.
  int bell = -1;                        // The daemon's; borrowed.
  const GrantPage* grants = nullptr;    // Borrowed; may be null.
  std::vector<uint32_t> grant_entries;  // By the engine's devices: their entries in the grant page.
  const GrantGates* gates = nullptr;    // Borrowed; may be null.
  uint32_t jobs_max = 16;               // Runs and prepares in progress at once.
  uint64_t document_bytes_max = limits::kGraphDocumentBytesMax;
};

class Runner {
 public:
  static StatusOr<std::unique_ptr<Runner>> Create(const RunnerOptions& options);

  // Sends `ready` as the answer to Hello and serves until the peer goes away or asks to end; never returns: everything
  // else in the process may be in the middle of a kernel, so it ends by _exit.
  [[noreturn]] void Serve(const internal::Envelope& ready);

 private:
  // A module's bytes: a mapping of what the daemon sent, or a copy of what came in a frame.
  struct ModuleBytes {
    UniqueFd memfd;  // With just these bytes, for compilers.
    Mapping bytes;
    Sha256 hash;                       // As announced.
    std::atomic<bool> checked{false};  // The bytes have that hash.
  };

  struct Job;
  class PrepareModules;

  // A prepared graph and the jobs that wait for it.
  struct Handle {
    std::shared_ptr<engine::PreparedGraph> graph;
    bool busy = false;                            // Guarded by mutex_.
    std::deque<std::shared_ptr<Job>> waiting;     // Guarded by mutex_.
    std::atomic<int64_t> expected_ns{INT64_MAX};  // What its last run took.
  };

  struct Job {
    uint64_t id = 0;
    internal::PrepareGraph prepare;                                             // Prepares.
    std::vector<std::pair<std::string, std::shared_ptr<ModuleBytes>>> modules;  // By name in the document.
    Mapping document_mapping;
    std::string_view document;
    RunJob run;                                // Runs; stop, deadline and body also of prepares.
    std::shared_ptr<Handle> handle;            // Runs: null for prepares.
    std::optional<internal::Reclaim> reclaim;  // Neither; not among jobs_.
    bool started = false;                      // Guarded by mutex_.
  };

  explicit Runner(const RunnerOptions& options);

  // The pool.
  void ThreadMain();
  // Both return false when this thread is no longer the leader.
  bool LeadOnce(OutputArena& arena);
  bool ExecuteAsLeader(const std::shared_ptr<Job>& job, OutputArena& arena);
  // mutex_ held.
  void HandOver();
  bool CanHandOver() const { return idle_ > 0 || threads_ < jobs_max_ + 1; }
  bool IsShort(const Job& job) const;
  void Execute(Job& job, OutputArena& arena, bool more);
  void ExecuteRunJob(Job& job, OutputArena& arena, bool more);
  void ExecutePrepare(Job& job);
  void ExecuteReclaim(const Job& job);
  Status PrepareGraph(Job& job, internal::Prepared* prepared);
  // Before its answer: the id is free, and the next job of its graph may start.
  void Finish(Job& job);

  // The watch.
  void Watch();
  void ArmWatch(Time when);
  void TakeOver(Time now);
  Time StopOverdue(Time now);
  // After what may have changed it: has the watch tell of device memory. Any thread.
  void NoteUsage();
  // When to look again.
  Time SendUsageIfDue(Time now);
  Time AnswerLeftDevices(Time now);

  // Messages.
  // Handles one; a job that may start at once is returned.
  Status Take(Frame frame, std::shared_ptr<Job>* job);
  Status PutModule(const internal::PutModule& put, Frame& frame);
  void DropModule(const internal::DropModule& drop);
  Status ShareMemory(const internal::ShareMemory& share, Frame& frame);
  Status TakePrepare(Frame& frame, std::shared_ptr<Job>* job);
  Status TakeRun(Frame& frame, std::shared_ptr<Job>* job);
  void Cancel(uint64_t id);
  void DescribeUsage(internal::Usage* usage) const;
  void AnswerCosts(uint64_t id, uint64_t handle);
  void TakeGrant(uint64_t id, const internal::GrantChanged& changed);
  bool IsLeft(uint32_t entry) const;
  void AnswerGrant(uint64_t id, const internal::GrantChanged& changed);
  Status Admit(const std::shared_ptr<Job>& job, uint64_t within_ns, bool* may_start);
  void DropWaiting(Job& job);
  void AnswerDropped(const Job& job, const Status& status);

  void Send(const internal::Envelope& envelope, std::span<const uint8_t> body = {}, bool more = false);
  void Flush();
  [[noreturn]] void Die(const Status& status);

  const RunnerOptions options_;
  const uint32_t jobs_max_;
  DeviceIndices devices_;

  // The leader's.
  RingChannelReader reader_;
  internal::Envelope incoming_;
  std::map<Sha256, std::shared_ptr<ModuleBytes>> modules_;
  uint64_t module_bytes_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<SharedMemory>> memories_;  // Null: could not be mapped.

  // What the leader does, and which leader it is: a term's number, then one of these. Only the leader and the watch
  // change it.
  static constexpr uint64_t kReading = 0, kExecuting = 1, kTakenOver = 2;
  std::atomic<uint64_t> leading_{0};
  std::atomic<int64_t> executing_since_ns_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_leader_ = false;  // Guarded by mutex_, as below.
  uint32_t idle_ = 0, threads_ = 1;
  std::deque<std::shared_ptr<Job>> runnable_;
  std::unordered_map<uint64_t, std::shared_ptr<Job>> jobs_;  // Not answered yet.
  std::unordered_map<uint64_t, std::shared_ptr<Handle>> handles_;
  // Not acknowledged, because the device is at work: by request.
  std::map<uint64_t, internal::GrantChanged> revoked_;

  UniqueFd timer_;
  std::mutex timer_mutex_;
  std::atomic<int64_t> armed_for_ns_{INT64_MAX};  // Changed under timer_mutex_.

  // What the last Usage told, and when it went; written by the watch.
  std::atomic<uint64_t> told_changes_{0};
  std::atomic<int64_t> told_at_ns_{0};

  std::mutex writer_mutex_;
  RingChannelWriter writer_;  // Guarded by writer_mutex_, as below.
  Time kept_since_{0};        // When the oldest answer that is kept was ready.
};

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_RUNNER_H_
