// SPDX-License-Identifier: Apache-2.0
// What /proc says of processes, so that one can be told from a later one with the same number.
#ifndef HPVMD_SERVER_PROCESS_PROCESS_FACTS_H_
#define HPVMD_SERVER_PROCESS_PROCESS_FACTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm::server {

// A file of /proc or another small one, whose size is not known before; empty when it cannot be read.
std::string ReadSmallFile(const std::string& path);
// What stands between the separators; nothing after the last.
std::vector<std::string_view> Split(std::string_view text, char separator);

struct ProcessFacts {
  int pid = -1;
  int parent = -1;
  uint64_t start_ticks = 0;  // Since the machine started: with the pid, unique until it starts again.
  std::string name;          // The program's, at most 15 characters.
  bool has_ended = false;    // Waits to be reaped.
};

// Nothing when there is no such process.
std::optional<ProcessFacts> ReadProcess(int pid);
// What it uses; zeros when there is no such process.
struct ProcessUse {
  Duration processor{0};  // User and system time, to some 10 ms.
  uint64_t resident_bytes = 0;
};
ProcessUse UseOf(int pid);
// All that this process may see.
std::vector<ProcessFacts> ListProcesses();
// Its arguments, the program first; empty when it has none or has ended.
std::vector<std::string> ReadArguments(int pid);
// Bytes that this process and its children may have: the machine's, or what its control groups and those above them
// allow where that is less. `root` is for tests.
uint64_t MemoryAllowed(const std::string& root = "");
// Differs after each start of the machine.
StatusOr<std::string> BootId();

// Processes that are killed, each one that was looked at and no other, and seen to end.
class DoomedProcesses {
 public:
  // SIGKILL. False when that process is gone already.
  bool Kill(const ProcessFacts& process);
  // kUnavailable naming one that is still there after `deadline`, kPermissionDenied naming one that could not be
  // killed.
  Status AwaitEnds(Time deadline);
  size_t count() const { return doomed_.size(); }

 private:
  struct Doomed {
    ProcessFacts process;
    UniqueFd pidfd;
    int error = 0;
  };
  std::vector<Doomed> doomed_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_PROCESS_FACTS_H_
