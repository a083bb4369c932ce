// SPDX-License-Identifier: Apache-2.0
// Who has things built: one thread, one poll over the client and the workers, which are processes of their own and may
// crash, hang or eat memory. Both ways to have workers share it: a supervisor that holds a compiler warm forks one for
// each job, and one whose workers take long to load keeps them for the next job.
//
// Caps. By the clock a job ends at the earlier of its client's deadline and `wall_max`. Its processor time is looked at
// (`processor_max`), since a worker that stays has used some before; a worker of one job has its own limit of it, and
// each has its limit of memory (sandbox/limits.h). A worker beyond a cap, or cancelled, is killed, and waited for
// beside the other work: giving gigabytes back takes a process a while.
#ifndef HPVMD_BUILDER_SUPERVISOR_H_
#define HPVMD_BUILDER_SUPERVISOR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/io/cache_folder.h"
#include "base/io/child_process.h"
#include "builder/message.h"

namespace hpvm::builder {

// A request that a worker has to do.
struct BuildJob {
  virtual ~BuildJob() = default;
  uint64_t id = 0;
  Frame frame;             // As it came.
  Time deadline = kNever;  // The client's.
};

struct BuildWorker {
  virtual ~BuildWorker() = default;  // After its process has been waited for.
  SpawnedProcess process;            // The descriptor may be missing.
  UniqueFd channel;                  // Readable when the worker has something to say, and when it has ended.
  bool is_ready = false;             // One that stays: it has loaded.
  std::unique_ptr<BuildJob> job;
  Time deadline = kNever;       // The end of loading and of idling, or the time to look whether the job is late.
  Time wall_deadline = kNever;  // The job's.
  Duration used_before{0};      // Processor time when the job began.
};

// The reason why a worker ended: itself, its job's caps, or that it took too long to load or had nothing to do.
enum class BuildEnd : uint8_t { kItself, kDeadline, kClock, kProcessor, kLoad, kIdle };

struct SupervisorOptions {
  int socket = -1;
  FrameLimits limits;
  std::string program;  // For stderr.
  size_t workers_max = 1;
  Duration wall_max{0};
  // For workers that stay; others live for one job.
  bool keeps_workers = false;
  Duration processor_max{0};
  Duration load_max{0}, idle_max{0};
};

class BuildSupervisor {
 public:
  explicit BuildSupervisor(SupervisorOptions options) : options_(std::move(options)) {}
  virtual ~BuildSupervisor() = default;
  // Serves until the client goes away; the process's exit status. Call from main only, since it forks.
  int Run();

 protected:
  // Before the first message, which may be long in coming; then with the client's hello: nothing of a tenant's has been
  // read by then, and the process locks itself down.
  virtual Status Prepare() { return absl::OkStatus(); }
  virtual Status Begin(const BuildHello& hello) = 0;
  // Before each wait.
  virtual Status Rest() { return absl::OkStatus(); }
  // A request: its job, or null when it is answered already. A status ends the connection.
  virtual StatusOr<std::unique_ptr<BuildJob>> Admit(uint64_t id, std::string_view payload, Frame& frame) = 0;
  virtual Status TakeNote(std::string_view) { return InvalidArgument("A note came that nobody reads."); }
  // Forks a worker, for `job` where workers do not stay (else null), which must not be kept.
  virtual StatusOr<std::unique_ptr<BuildWorker>> StartWorker(const BuildJob* job) = 0;
  // Reads what a worker says; true when it has no more to say, and ends.
  virtual StatusOr<bool> Read(BuildWorker& worker) = 0;
  // Answers for a worker that has ended, or is about to: `wait_status` is known of those that ended by themselves.
  virtual Status Ended(BuildWorker& worker, BuildEnd end, int wait_status, Duration processor) = 0;
  // Answers for a job to which no worker comes.
  virtual Status Refuse(const BuildJob& job, const Status& why) = 0;
  virtual void Kill(const BuildWorker& worker) { SendKill(worker.process); }

  Status Answer(uint64_t id, std::string payload, std::span<const uint8_t> body = {});
  // No worker comes: whoever waits longest is told, the next ones try again.
  Status RefuseFirst(const Status& why);
  void BecomeIdle(BuildWorker& worker);
  bool HasWork() const { return !workers_.empty() || !waiting_.empty(); }

  const BuildKey& key() const { return key_; }

 private:
  using Workers = std::vector<std::unique_ptr<BuildWorker>>;
  Status Serve();
  Status Poll();
  Status Look(BuildWorker& worker, bool is_readable, Time now);
  Status Receive();
  Status Assign();
  void Give(BuildWorker& worker, std::unique_ptr<BuildJob> job);
  void Cancel(uint64_t id);
  void EndBeside(BuildWorker& worker);
  void Reap();
  void Stop();

  const SupervisorOptions options_;
  BuildKey key_{};
  std::deque<std::unique_ptr<BuildJob>> waiting_;
  Workers workers_;  // Null: ended.
  Workers killed_;   // Not waited for yet.
};

}  // namespace hpvm::builder

#endif  // HPVMD_BUILDER_SUPERVISOR_H_
