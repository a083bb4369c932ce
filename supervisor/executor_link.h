// SPDX-License-Identifier: Apache-2.0
// ExecutorLink is the daemon's end of a real executor process: it starts the process, sends requests, checks every
// answer as untrusted, and reports how the process ended.
//
// One ExecutorHub (one thread) serves any number of links. Requests are sent from the calling thread; if the socket
// does not take one at once, the rest is sent later. Callbacks run on the hub's thread, never inside the call that
// passed them. A process that violates the protocol is killed.
//
// hpvmctl --local uses the same classes with `hpvm-executor --standalone`.
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

// Returns a Hello with the device "cpu", an artifact key of zeros, and executor.proto's defaults for everything else.
internal::Hello DefaultHello();

struct ExecutorOptions {
  std::string program;  // Path of hpvm-executor.
  // Sent to the process; the link sets the version and the fields for accompanying descriptors. A spare needs
  // spill_bytes_max when it starts.
  internal::Hello hello = DefaultHello();
  // An empty file for data that fits in no memory, borrowed during Start or Greet; -1: none. It never grows beyond
  // hello.spill_bytes_max.
  int spill_fd = -1;
  // A sealed memfd of kGrantPageBytes; borrowed during Start. -1: no grants to obey.
  int grant_page = -1;
  // Processors on which the process and its descendants run; empty: those of the caller.
  std::vector<uint32_t> cpus{};
  bool standalone =
      false;  // hpvm-executor --standalone: owned by a command, not by the daemon. Locked down all the same.
  Duration ready_within = std::chrono::seconds(10);  // The process is killed if it has not sent Ready by then.
  // A run that does not answer this long after its deadline or Cancel costs the process.
  Duration stop_grace = std::chrono::milliseconds(limits::kStopGraceMs);
  // Time after Shutdown.
  Duration shutdown_grace = std::chrono::milliseconds(500);
  // Called with the process's id before anything is sent to it, on the thread that starts processes; when it fails the
  // process is killed. May be empty.
  std::function<Status(int pid)> on_spawned;
  // When the process has ended by itself: returns a sentence with the daemon's knowledge of the reason, or empty.
  // Called on the hub's thread. May be empty.
  std::function<std::string()> why_ended;
  // Called on the hub's thread with unsolicited usage reports. May be empty.
  std::function<void(const internal::Usage&)> on_usage;
  // A process that the machine did not let run gets longer than stop_grace (KillGrace). Not used when devices do the
  // work.
  bool waits_for_starved = true;
  // The executor's standard error: -1 keeps its last 4 KiB for the message that reports its end; otherwise this
  // descriptor (borrowed).
  int stderr_fd = -1;
  // Kept until the process is gone, whoever owns the link then. Shared by a spare's options and those with which it is
  // greeted.
  std::shared_ptr<void> belongings = nullptr;
};

class ExecutorLink : public ExecutorProcess {
 public:
  // Spawns the process, sends Hello and returns without waiting for Ready; requests may follow at once. Returns an
  // error when the process cannot be started. `on_ready` and `on_end` may be empty. `on_end` is called once, after the
  // callbacks of all pending requests, with the reason: "The executor process ended (signal 9)." ... ; OK after
  // Shutdown.
  static StatusOr<std::unique_ptr<ExecutorLink>> Start(ExecutorHub& hub, const ExecutorOptions& options,
                                                       std::function<void(const ExecutorReady&)> on_ready = nullptr,
                                                       std::function<void(const Status&)> on_end = nullptr);
  // Spawns a process that settles and waits for Greet, having served no tenant. No method but Greet and Kill may be
  // called before that. `on_end` as above, if it ends before it is greeted.
  static StatusOr<std::unique_ptr<ExecutorLink>> StartSpare(ExecutorHub& hub, const ExecutorOptions& options,
                                                            std::function<void(const Status&)> on_end);
  // Call once: the process serves this tenant from now on. `options` are those of StartSpare, plus those of the tenant.
  // Returns kUnavailable when it has ended; then `on_end` is not called, but the spare's was or will be.
  virtual Status Greet(const ExecutorOptions& options, std::function<void(const ExecutorReady&)> on_ready,
                       std::function<void(const Status&)> on_end) = 0;

  // Waits for Ready; returns how the process ended if it did so first, or kDeadlineExceeded. Not on the hub's thread.
  virtual StatusOr<ExecutorReady> WaitReady(Time deadline = kNever) = 0;

  virtual int pid() const = 0;
  // Returns whether the process runs now, by a system call.
  virtual bool alive() const = 0;
  // Number of requests without an answer.
  virtual size_t pending() const = 0;
};

// Asks `program --probe=BACKEND` for its devices and checks the answer; returns kUnavailable when it dies,
// kDeadlineExceeded after `within`. Returns no devices for a backend without any here. Blocks. `on_spawned` is as in
// ExecutorOptions; the process is gone when this returns.
StatusOr<internal::Ready> ProbeDevices(const std::string& program, const std::string& backend,
                                       Duration within = std::chrono::seconds(10),
                                       const std::function<Status(int pid)>& on_spawned = nullptr);
// Runs `program --probe-defects=DEVICE`, whose answer is in `defects`; otherwise like ProbeDevices.
StatusOr<internal::Ready> ProbeDefects(const std::string& program, const std::string& device, Duration within,
                                       const std::function<Status(int pid)>& on_spawned = nullptr);

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_LINK_H_
