// SPDX-License-Identifier: Apache-2.0
// Locking processes down: what one that runs or compiles tenants' kernels may still ask of the system.
//
// The launcher calls, in this order and with one thread: Isolate, (start compiler and supervisors), Confine. What it
// starts calls Confine alone. Nothing of a tenant's is read before Confine has returned. Each step is tried and
// reported rather than probed for, because containers refuse different ones. What Isolate leaves of privileges is for
// Confine alone: programs that are started between the two have none.
#ifndef HPVMD_SANDBOX_SANDBOX_H_
#define HPVMD_SANDBOX_SANDBOX_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "sandbox/call_rules.h"
#include "sandbox/landlock.h"

namespace hpvm::sandbox {

// The sandbox's levels; each includes those below it.
enum class SandboxLevel : uint8_t {
  kProcess = 0,     // A process of its own: limits, no environment, dies with its parent, cannot be traced.
  kSyscalls = 1,    // no_new_privs and the system call filter.
  kFiles = 2,       // Landlock: no file, no TCP, no signal or abstract socket to others; a user of its own if given.
  kIdentity = 3,    // A user of its own, or a control group of its own: what it takes is bounded and nobody else's.
  kNamespaces = 4,  // No network, no other process, no System V memory of others, no file system but what it needs.
};

struct SandboxReport {
  SandboxLevel level = SandboxLevel::kProcess;
  bool has_own_user = false;
  bool has_cgroup = false;
  bool has_own_pids = false;    // The first of a process namespace.
  bool has_namespaces = false;  // Of network and System V objects; that of mounts comes with Confine.
  bool has_own_root = false;
  std::string detail;  // What was and was not possible, one line.
};

struct IsolateOptions {
  uint32_t uid = 0, gid = 0;     // Taken when not 0; needs root.
  std::vector<uint32_t> groups;  // And these, which device nodes may need.
  bool has_cgroup = false;       // Whoever started the process has put it in one of its own.
  uint32_t tasks_max = 0;        // Threads and processes of its user; only with one of its own. 0: no limit.
  SandboxLevel level_max = SandboxLevel::kNamespaces;  // Higher ones are not tried.
};

// Limits, session, namespaces, identity, death with the parent, not dumpable. What a started program inherits.
Status Isolate(const IsolateOptions& options, SandboxReport* report);

struct ConfineOptions {
  SandboxRole role = SandboxRole::kRunner;
  std::vector<PathRule> paths;
  SandboxLevel level_max = SandboxLevel::kNamespaces;  // Higher ones are not tried.
  // For a compiler: from kFiles on it does not go on where the kernel has no Landlock.
  SandboxLevel level_min = SandboxLevel::kProcess;
  uint64_t file_bytes_max = 0;  // Files may grow so far, or as far as a module is long, whichever is more.
};

// A root folder with nothing but `paths`, no capability, no_new_privs, Landlock, system calls. Irrevocable. A status
// when not even the filter can be installed, and for roles with drivers, which may open files, also where Landlock does
// not say which (unless level_max forgoes it). A builder has its privileges and its parent as its supervisor left them;
// a compiler has its limits and privileges as they are, since its children have limits of their own.
Status Confine(SandboxReport* report, const ConfineOptions& options = {});

// Namespaces for this process and what it starts: of the network (without interfaces), System V objects and the host's
// name; that of processes is made by whoever starts it (SpawnOptions). Without privileges by way of a user namespace,
// in which no other identity can be taken, if it may. A status when the system refuses. One thread.
Status LeaveNamespaces(bool may_enter_user, std::string* detail);
// A mount namespace whose root holds `rules`' paths and nothing else, read-only but for those. Needs CAP_SYS_ADMIN in
// its user namespace. After a failure the old root is still there.
Status ReplaceRoot(std::span<const PathRule> rules);

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_SANDBOX_H_
