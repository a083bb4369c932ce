// SPDX-License-Identifier: Apache-2.0
// Starting processes and telling how they ended.
#ifndef HPVMD_BASE_IO_CHILD_PROCESS_H_
#define HPVMD_BASE_IO_CHILD_PROCESS_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

struct SpawnOptions {
  std::vector<std::string> arguments;  // The program's path first.
  int socket = -1;                     // Becomes descriptor 3; -1: none. Borrowed.
  int stdout_fd = -1;                  // -1: /dev/null. Borrowed.
  int stderr_fd = -1;                  // Borrowed; must be valid.
  // The process is the first of a process namespace, where the system lets us make one: it sees no other, and what it
  // started ends with it.
  bool has_own_pids = false;
};

struct SpawnedProcess {
  int pid = -1;
  UniqueFd pidfd;  // Readable when the process has ended.
};

// Variables that say where drivers lie; they pass from the daemon (or command) to the processes that load drivers.
// Everything else stays behind.
const std::vector<std::string>& DriverVariables();

// Starts a program with standard input from /dev/null, no environment but DriverVariables, default signals, and no
// other descriptor than those named. The program asks to die with the calling *thread* (PR_SET_PDEATHSIG), so call it
// from one that outlives the process.
StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options);

// As fork, for a process with one thread; `pidfd` is then the only way to signal the child under a filter of system
// calls that trusts no numbers. In the child, and with errno where it failed, pid is 0 and -1. The C library does not
// know of it, so that functions for pthread_atfork are not called.
SpawnedProcess Fork();

// Reaps an ended process. "exit code 3", "signal 9"; empty while it runs.
std::string Reap(const SpawnedProcess& process);
void SendKill(const SpawnedProcess& process);
// Blocks, briefly.
void KillAndReap(const SpawnedProcess& process);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_CHILD_PROCESS_H_
