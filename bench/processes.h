// SPDX-License-Identifier: Apache-2.0
// Servers that a benchmark starts and stops: hpvmd and the minimal peer, on Unix sockets in a temporary folder.
#ifndef HPVMD_BENCH_PROCESSES_H_
#define HPVMD_BENCH_PROCESSES_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::bench {

// A folder that is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A child process; destroying the object ends it by SIGTERM (SIGKILL after 10 s) and reaps it.
class Process {
 public:
  // Standard output is redirected to standard error, so that the benchmark's own output stays clean.
  static StatusOr<Process> Start(const std::vector<std::string>& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();
  int pid() const { return pid_; }

  // Sends SIGKILL and reaps the process.
  void Kill();
  // Sends SIGTERM and waits for the end; returns the exit code, or -1 when a signal ended it or `within` passed.
  int Stop(Duration within);

 private:
  explicit Process(int pid) : pid_(pid) {}
  int pid_;
};

// Standard output and exit code of a program that was run to its end (standard error is inherited); -1 when it could
// not be started, or a signal ended it.
struct RunOutput {
  int code = -1;
  std::string text;
};
RunOutput RunAndRead(const std::string& program, const std::vector<std::string>& arguments);

// Returns the folder of the running program, which holds the other programs.
std::string ProgramFolder();

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_PROCESSES_H_
