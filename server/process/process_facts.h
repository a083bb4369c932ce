// SPDX-License-Identifier: Apache-2.0
// Facts about processes from /proc, so that a process can be told from a later one with the same number.
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

// Reads a file of /proc or another small file of unknown size; empty when it cannot be read.
std::string ReadSmallFile(const std::string& path);
// Returns the parts between the separators; nothing after the last one.
std::vector<std::string_view> Split(std::string_view text, char separator);

struct ProcessFacts {
  int pid = -1;
  int parent = -1;
  uint64_t start_ticks = 0;  // Since boot; unique together with the pid until the next boot.
  std::string name;          // The program's name, at most 15 characters.
  bool has_ended = false;    // A zombie: waits to be reaped.
};

// Returns nothing when there is no such process.
std::optional<ProcessFacts> ReadProcess(int pid);
// Resource usage; zeros when there is no such process.
struct ProcessUse {
  Duration processor{0};  // User and system time, to some 10 ms.
  uint64_t resident_bytes = 0;
};
ProcessUse UseOf(int pid);
// Returns all processes that this one can see.
std::vector<ProcessFacts> ListProcesses();
// Returns its arguments, the program first; empty when it has none or has ended.
std::vector<std::string> ReadArguments(int pid);
// Returns the memory in bytes that this process and its children may use: the machine's, or less when a control group
// of the process or above it has a limit. `root` is for tests.
uint64_t MemoryAllowed(const std::string& root = "");
// Differs after each boot.
StatusOr<std::string> BootId();

// KilledProcesses kills exactly the processes that were examined, and waits for their ends.
class KilledProcesses {
 public:
  // Sends SIGKILL. Returns false when that process is gone already.
  bool Kill(const ProcessFacts& process);
  // Returns kUnavailable naming a process that still exists after `deadline`, kPermissionDenied naming one that could
  // not be killed.
  Status AwaitEnds(Time deadline);
  size_t count() const { return killed_.size(); }

 private:
  struct KilledProcess {
    ProcessFacts process;
    UniqueFd pidfd;
    int error = 0;
  };
  std::vector<KilledProcess> killed_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_PROCESS_FACTS_H_
