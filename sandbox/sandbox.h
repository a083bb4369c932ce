// SPDX-License-Identifier: Apache-2.0
// Locks processes down: limits what a process that runs or compiles tenants' kernels may still request from the system.
//
// The launcher calls, in this order and with one thread: Isolate, (start compiler and supervisors), Confine. The
// programs that it starts call only Confine. No byte of a tenant is read before Confine has returned. Each step is
// attempted and reported rather than probed for, because containers refuse different ones. Privileges that Isolate
// leaves are for Confine alone: programs started between the two have none.
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

// The sandbox's levels; each includes the lower ones.
enum class SandboxLevel : uint8_t {
  // A separate process: limits, no environment, dies with its parent, cannot be traced.
  kProcess = 0,
  kSyscalls = 1,  // no_new_privs and the system call filter.
  // Landlock: no files, no TCP, no signals or abstract sockets to others; a separate user if given.
  kFiles = 2,
  // A separate user or control group: its resource use is bounded and its own.
  kIdentity = 3,
  // No network, no other processes, no System V memory of others, no file system but what it needs.
  kNamespaces = 4,
};

struct SandboxReport {
  SandboxLevel level = SandboxLevel::kProcess;
  bool has_own_user = false;
  bool has_cgroup = false;
  bool has_own_pids = false;  // The first of a PID namespace.
  // Namespaces of network and System V objects; that of mounts comes with Confine.
  bool has_namespaces = false;
  bool has_own_root = false;
  std::string detail;  // Report of the steps that succeeded and failed, in one line.
};

struct IsolateOptions {
  uint32_t uid = 0, gid = 0;     // Assumed when not 0; needs root.
  std::vector<uint32_t> groups;  // Also assumed; device nodes may need them.
  bool has_cgroup = false;       // The parent has put the process into a control group of its own.
  // Threads and processes of its user; only with a separate user. 0: no limit.
  uint32_t tasks_max = 0;
  SandboxLevel level_max = SandboxLevel::kNamespaces;  // Higher levels are not attempted.
};

// Sets limits, session, namespaces, identity, death with the parent, and non-dumpability: everything that a started
// program inherits.
Status Isolate(const IsolateOptions& options, SandboxReport* report);

struct ConfineOptions {
  SandboxRole role = SandboxRole::kRunner;
  std::vector<PathRule> paths;
  SandboxLevel level_max = SandboxLevel::kNamespaces;  // Higher levels are not attempted.
  // For a compiler: from kFiles on it fails when the kernel has no Landlock.
  SandboxLevel level_min = SandboxLevel::kProcess;
  // Maximum file size, or a module's maximum size if that is larger.
  uint64_t file_bytes_max = 0;
};

// Applies a root folder with nothing but `paths`, no capabilities, no_new_privs, Landlock, and the system call filter.
// Irrevocable. Returns an error when not even the filter can be installed and, for roles with drivers, which may open
// files, also when Landlock cannot restrict them (unless level_max forgoes it). A builder keeps the privileges and
// parent that its supervisor left it; a compiler keeps its limits and privileges, since its children have limits of
// their own.
Status Confine(SandboxReport* report, const ConfineOptions& options = {});

// Creates namespaces for this process and its children: of the network (without interfaces), System V objects and the
// host's name; the PID namespace is made by the parent (SpawnOptions). Without privileges it uses, if allowed, a user
// namespace, in which no other identity can be assumed. Returns an error when the system refuses. Requires one thread.
Status LeaveNamespaces(bool may_enter_user, std::string* detail);
// Creates a mount namespace whose root holds the paths of `rules` and nothing else, read-only except where a rule
// allows writing. Needs CAP_SYS_ADMIN in its user namespace. After a failure the old root is still in place.
Status ReplaceRoot(std::span<const PathRule> rules);

}  // namespace hpvm::sandbox

#endif  // HPVMD_SANDBOX_SANDBOX_H_
