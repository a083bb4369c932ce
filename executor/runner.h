// SPDX-License-Identifier: Apache-2.0
// Runner serves one daemon over one channel: modules, memories, handles, runs.
//
// Threads. One thread of a small pool is the leader, which reads the channel. It executes jobs that are expected to be
// short itself, so that a small run costs no thread switch; before a longer job it hands the channel to another thread
// of the pool and executes the job as a follower. A watch thread, asleep while nothing runs, takes the channel away
// from a leader whose "short" job turns out to be long, sets the stop words of runs whose deadline has passed, and ends
// the process when the daemon is gone. Runs of one graph are sequential; a run waits without occupying a thread.
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

// Keyed by entry of the grant page.
using GrantGates = std::map<uint32_t, std::unique_ptr<GrantGate>>;

struct RunnerOptions {
  engine::Engine* engine = nullptr;  // Borrowed.
  // Borrowed; Hello has been received from it, and nothing more.
  int socket = -1;
  RingPairMemory* rings = nullptr;    // Borrowed.
  int bell = -1;                      // The daemon's; borrowed.
  const GrantPage* grants = nullptr;  // Borrowed; may be null.
  // Indexed by the engine's devices: their entries in the grant page.
  std::vector<uint32_t> grant_entries;
  const GrantGates* gates = nullptr;  // Borrowed; may be null.
  uint32_t jobs_max = 16;             // Runs and prepares in progress at once.
  uint64_t document_bytes_max = limits::kGraphDocumentBytesMax;
};

class Runner {
 public:
  static StatusOr<std::unique_ptr<Runner>> Create(const RunnerOptions& options);

  // Sends `ready` as the answer to Hello and serves until the peer goes away or requests the end; never returns: other
  // threads of the process may be running kernels, so it ends by _exit.
  [[noreturn]] void Serve(const internal::Envelope& ready);

 private:
  // A module's bytes: a mapping of the daemon's memfd, or a copy from a frame.
  struct ModuleBytes {
    // Contains exactly these bytes, for compilers.
    UniqueFd memfd;
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
    std::atomic<int64_t> expected_ns{INT64_MAX};  // Time of its last run.
  };

  struct Job {
    uint64_t id = 0;
    internal::PrepareGraph prepare;  // For prepares.
    // Pairs of the name in the document and the bytes.
    std::vector<std::pair<std::string, std::shared_ptr<ModuleBytes>>> modules;
    Mapping document_mapping;
    std::string_view document;
    RunJob run;                                // For runs; stop, deadline and body are also used by prepares.
    std::shared_ptr<Handle> handle;            // For runs; null for prepares.
    std::optional<internal::Reclaim> reclaim;  // For reclaims, which are not in jobs_.
    bool started = false;                      // Guarded by mutex_.
    std::atomic<int64_t> live_at_ns{0};        // For runs in progress: when lines were last sent.
  };

  explicit Runner(const RunnerOptions& options);

  // The pool.
  void ThreadMain();
  // Both return false when this thread is no longer the leader.
  bool LeadOnce(OutputArena& arena);
  bool ExecuteAsLeader(const std::shared_ptr<Job>& job, OutputArena& arena);
  // The caller holds mutex_.
  void HandOver();
  bool CanHandOver() const { return idle_ > 0 || threads_ < jobs_max_ + 1; }
  bool IsShort(const Job& job) const;
  void Execute(Job& job, OutputArena& arena, bool more);
  void ExecuteRunJob(Job& job, OutputArena& arena, bool more);
  void ExecutePrepare(Job& job);
  void ExecuteReclaim(const Job& job);
  Status PrepareGraph(Job& job, internal::Prepared* prepared);
  // Called before the job's answer: frees the id, and lets the next job of its graph start.
  void Finish(Job& job);

  // The watch.
  void Watch();
  void ArmWatch(Time when);
  void TakeOver(Time now);
  Time StopOverdue(Time now);
  // Call after a possible change: makes the watch report device memory. Thread-safe.
  void NoteUsage();
  // Returns when to check again.
  Time SendUsageIfDue(Time now);
  Time AnswerLeftDevices(Time now);
  Time SendLiveLines(Time now);

  // Messages. Take handles one message; returns in `job` a job that may start at once.
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

  // Used by the leader.
  RingChannelReader reader_;
  internal::Envelope incoming_;
  std::map<Sha256, std::shared_ptr<ModuleBytes>> modules_;
  uint64_t module_bytes_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<SharedMemory>> memories_;  // Null when it could not be mapped.

  // State of the leader, and which leader it is: the number of its term, followed by one of these. Changed only by the
  // leader and the watch.
  static constexpr uint64_t kReading = 0, kExecuting = 1, kTakenOver = 2;
  std::atomic<uint64_t> leading_{0};
  std::atomic<int64_t> executing_since_ns_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_leader_ = false;  // This and all following members are guarded by mutex_.
  uint32_t idle_ = 0, threads_ = 1;
  std::deque<std::shared_ptr<Job>> runnable_;
  std::unordered_map<uint64_t, std::shared_ptr<Job>> jobs_;  // Not answered yet.
  std::unordered_map<uint64_t, std::shared_ptr<Handle>> handles_;
  // Revocations not acknowledged, because the device is busy; keyed by request.
  std::map<uint64_t, internal::GrantChanged> revoked_;

  UniqueFd timer_;
  std::mutex timer_mutex_;
  std::atomic<int64_t> armed_for_ns_{INT64_MAX};  // Changed under timer_mutex_.

  // Contents and time of the last Usage; written by the watch.
  std::atomic<uint64_t> told_changes_{0};
  std::atomic<int64_t> told_at_ns_{0};

  std::mutex writer_mutex_;
  RingChannelWriter writer_;  // This and all following members are guarded by writer_mutex_.
  Time kept_since_{0};        // When the oldest kept answer was ready.
};

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_RUNNER_H_
