// SPDX-License-Identifier: Apache-2.0
// The daemon's end of a real executor process: starts it, sends requests, checks every answer as hostile, and tells how
// it ended.
//
// One ExecutorHub (one thread) serves any number of links. Requests go out from the calling thread; a socket that
// does not take one at once gets the rest later. Callbacks run on the hub's thread, never inside the call that gave
// them. A process that breaks the protocol is killed.
//
// hpvmctl --local uses the same classes on `hpvm-executor --standalone`.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_LINK_H_
#define HPVMD_SUPERVISOR_EXECUTOR_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "supervisor/executor_hub.h"
#include "supervisor/executor_process.h"

namespace hpvm::supervisor {

// The device "cpu", an artifact key of zeros, everything else as executor.proto has it by default.
internal::Hello DefaultHello();

struct ExecutorOptions {
  std::string program;  // Path of hpvm-executor.
  // Sent to the process; the link sets the version and which descriptors come with it. A spare has to be told
  // spill_bytes_max when it starts.
  internal::Hello hello = DefaultHello();
  // A file for what fits in no memory, empty, borrowed during Start or Greet; -1: none. It never grows beyond
  // hello.spill_bytes_max.
  int spill_fd = -1;
  int grant_page = -1;  // A sealed memfd of kGrantPageBytes; borrowed during Start. -1: no grants to obey.
  bool standalone =
      false;  // hpvm-executor --standalone: owned by a command, not by the daemon. Locked down all the same.
  Duration ready_within = std::chrono::seconds(10);  // Without Ready by then the process is killed.
  // A run that does not answer so long after its deadline or Cancel costs the process.
  Duration stop_grace = std::chrono::milliseconds(limits::kStopGraceMs);
  // After Shutdown.
  Duration shutdown_grace = std::chrono::milliseconds(500);
  // Called with the process's id before anything is sent to it, on the hub's thread; when it fails the process is
  // killed. May be empty.
  std::function<Status(int pid)> on_spawned;
  // When the process has ended by itself: what the daemon knows of the reason, a sentence; empty: nothing. On the hub's
  // thread. May be empty.
  std::function<std::string()> why_ended;
  // Called on the hub's thread with what the process tells unasked. May be empty.
  std::function<void(const internal::Usage&)> on_usage;
  // A process that the machine did not let run gets longer than stop_grace (StopPatience). Not where devices do the
  // work.
  bool waits_for_starved = true;
  // The executor's standard error: -1 keeps its last 4 KiB for the message that tells how it ended; otherwise this
  // descriptor (borrowed).
  int stderr_fd = -1;
  // Kept until the process is gone, whoever owns the link then. Shared by a spare's options and those it is greeted
  // with.
  std::shared_ptr<void> belongings = nullptr;
};

class ExecutorLink : public ExecutorProcess {
 public:
  // Spawns the process, sends Hello and returns without waiting for Ready; requests may follow at once.
  // A status when the process cannot be started. `on_ready` and `on_end` may be empty. `on_end` is called once, after
  // all pending requests' callbacks, with why: "The executor process ended (signal 9)." ... ; OK after Shutdown.
  static StatusOr<std::unique_ptr<ExecutorLink>> Start(ExecutorHub& hub, const ExecutorOptions& options,
                                                       std::function<void(const ExecutorReady&)> on_ready = nullptr,
                                                       std::function<void(const Status&)> on_end = nullptr);
  // Spawns a process that settles and waits for Greet, having served nobody. No other method but Greet and Kill may be
  // called before that. `on_end` as above, if it ends before it is greeted.
  static StatusOr<std::unique_ptr<ExecutorLink>> StartSpare(ExecutorHub& hub, const ExecutorOptions& options,
                                                            std::function<void(const Status&)> on_end);
  // Once: it serves this tenant from now on. `options` are those of StartSpare, with what is the tenant's. kUnavailable
  // when it has ended; then `on_end` is not called, but the spare's was or will be.
  virtual Status Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
                       std::function<void(const Status&)> on_end) = 0;

  // Waits for Ready; how the process ended if it did first; kDeadlineExceeded. Not on the hub's thread.
  virtual StatusOr<ExecutorReady> WaitReady(Time deadline = kNever) = 0;

  virtual int pid() const = 0;
  // Whether the process runs, now: asks the system.
  virtual bool alive() const = 0;
  // Requests without an answer.
  virtual size_t pending() const = 0;
};

// Asks `program --probe=BACKEND` for its devices and checks the answer; kUnavailable when it dies, kDeadlineExceeded
// after `within`. A backend without devices here gives none. Blocks. `on_spawned` is as in ExecutorOptions; the process
// is gone when this returns.
StatusOr<internal::Ready> ProbeDevices(const std::string& program, const std::string& backend,
                                       Duration within = std::chrono::seconds(10),
                                       const std::function<Status(int pid)>& on_spawned = nullptr);
// Asks `program --probe-defects=DEVICE`, and finds the answer in `defects`; as ProbeDevices otherwise.
StatusOr<internal::Ready> ProbeDefects(const std::string& program, const std::string& device, Duration within,
                                       const std::function<Status(int pid)>& on_spawned = nullptr);

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_LINK_H_
