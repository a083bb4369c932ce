// SPDX-License-Identifier: Apache-2.0
// BuildSupervisor manages builds: one thread and one poll over the client and the workers, which are separate processes
// and may crash, hang or exhaust memory. It supports both kinds of workers: a supervisor that keeps a warm compiler
// forks one for each job, and one whose workers take long to load keeps them for the next job.
//
// Limits. A job ends by the clock at the earlier of its client's deadline and `wall_max`. Its processor time is
// monitored (`processor_max`), since a persistent worker has used some before; a worker for one job has its own limit
// of it, and each has its limit of memory (sandbox/limits.h). A worker beyond a limit, or cancelled, is killed, and
// waited for while other work continues, because freeing gigabytes takes a process some time.
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

// A request to be done by a worker.
struct BuildJob {
  virtual ~BuildJob() = default;
  uint64_t id = 0;
  Frame frame;             // As received.
  Time deadline = kNever;  // The client's.
};

struct BuildWorker {
  virtual ~BuildWorker() = default;  // After its process has been waited for.
  SpawnedProcess process;            // The descriptor may be missing.
  // Readable when the worker has sent something, and when it has ended.
  UniqueFd channel;
  bool is_ready = false;  // For persistent workers: it has loaded.
  std::unique_ptr<BuildJob> job;
  // The limit of loading or idling, or the time to check whether the job is late.
  Time deadline = kNever;
  Time wall_deadline = kNever;  // The job's limit.
  Duration used_before{0};      // Processor time when the job began.
};

// Why a worker ended: by itself, by a limit of its job, or because it took too long to load or had nothing to do.
enum class BuildEnd : uint8_t { kItself, kDeadline, kClock, kProcessor, kLoad, kIdle };

struct SupervisorOptions {
  int socket = -1;
  FrameLimits limits;
  std::string program;  // For stderr.
  size_t workers_max = 1;
  Duration wall_max{0};
  // For persistent workers; others live for one job.
  bool keeps_workers = false;
  Duration processor_max{0};
  Duration load_max{0}, idle_max{0};
};

class BuildSupervisor {
 public:
  explicit BuildSupervisor(SupervisorOptions options) : options_(std::move(options)) {}
  virtual ~BuildSupervisor() = default;
  // Serves until the client goes away; returns the process's exit status. Call only from main, since it forks.
  int Run();

 protected:
  // Prepare is called before the first message, which may take long to arrive; Begin with the client's hello: no byte
  // of a tenant has been read by then, and the process locks itself down.
  virtual Status Prepare() { return absl::OkStatus(); }
  virtual Status Begin(const BuildHello& hello) = 0;
  // Called before each wait.
  virtual Status Rest() { return absl::OkStatus(); }
  // Returns the job of a request, or null when it is answered already. An error ends the connection.
  virtual StatusOr<std::unique_ptr<BuildJob>> Admit(uint64_t id, std::string_view payload, Frame& frame) = 0;
  virtual Status TakeNote(std::string_view) {
    return InvalidArgument("The client sent a note, which this builder does not accept.");
  }
  // Forks a worker. `job` is null for persistent workers; otherwise it is the worker's job, and must not be retained.
  virtual StatusOr<std::unique_ptr<BuildWorker>> StartWorker(const BuildJob* job) = 0;
  // Reads a worker's messages; returns true when it has no more to send, and ends.
  virtual StatusOr<bool> Read(BuildWorker& worker) = 0;
  // Answers for a worker that has ended, or is about to; `wait_status` is known for those that ended by themselves.
  virtual Status Ended(BuildWorker& worker, BuildEnd end, int wait_status, Duration processor) = 0;
  // Answers for a job for which there is no worker.
  virtual Status Refuse(const BuildJob& job, const Status& why) = 0;
  virtual void Kill(const BuildWorker& worker) { SendKill(worker.process); }

  Status Answer(uint64_t id, std::string payload, std::span<const uint8_t> body = {});
  // No worker can be started: fails the longest waiting request; later ones try again.
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
  Workers workers_;  // Null when ended.
  Workers killed_;   // Not waited for yet.
};

}  // namespace hpvm::builder

#endif  // HPVMD_BUILDER_SUPERVISOR_H_
