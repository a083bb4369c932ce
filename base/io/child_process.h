// SPDX-License-Identifier: Apache-2.0
// Starts processes and reports how they ended.
#ifndef HPVMD_BASE_IO_CHILD_PROCESS_H_
#define HPVMD_BASE_IO_CHILD_PROCESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

struct SpawnOptions {
  std::vector<std::string> arguments;  // Begins with the program's path.
  int socket = -1;                     // Becomes descriptor 3; -1 when there is none. Borrowed.
  int stdout_fd = -1;                  // -1: /dev/null. Borrowed.
  int stderr_fd = -1;                  // Borrowed; must be valid.
  // Processors on which it and its descendants may run; empty means those of the caller.
  std::vector<uint32_t> cpus{};
  // The process becomes the first of a PID namespace, where the system allows it: it sees no other process, and its
  // descendants end with it.
  bool has_own_pids = false;
};

struct SpawnedProcess {
  int pid = -1;
  UniqueFd pidfd;  // Readable when the process has ended.
};

// Environment variables that say where drivers are; they pass from the daemon (or command) to the processes that load
// drivers. No other variables are passed on.
const std::vector<std::string>& DriverVariables();

// Starts a program with standard input from /dev/null, only DriverVariables in its environment, default signals, and no
// descriptors but those named. The program asks to be killed with the calling *thread* (PR_SET_PDEATHSIG), so call it
// from a thread that outlives the process.
StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options);

// Like fork, for a process with one thread. `pidfd` is then the only way to signal the child under a system call filter
// that allows no pids. pid is 0 in the child, and -1 with errno on failure. The C library is not aware of the fork, so
// handlers of pthread_atfork are not called.
SpawnedProcess Fork();

// Reaps an ended process and returns "exit code 3" or "signal 9"; returns empty while it runs.
std::string Reap(const SpawnedProcess& process);
void SendKill(const SpawnedProcess& process);
// Blocks, briefly.
void KillAndReap(const SpawnedProcess& process);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_CHILD_PROCESS_H_
