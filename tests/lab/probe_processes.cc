// SPDX-License-Identifier: Apache-2.0
// Other processes, sockets, identity.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/io/fd.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

pid_t Pid(const Task& task) { return static_cast<pid_t>(task.Number("pid")); }

std::string Trace(Task& task) { return Outcome(ptrace(PTRACE_SEIZE, Pid(task), nullptr, nullptr)); }

std::string ReadMemory(Task& task) {
  std::vector<char> bytes(64);
  iovec local{bytes.data(), bytes.size()};
  iovec remote{reinterpret_cast<void*>(strtoull(task.Text("address").c_str(), nullptr, 16)), bytes.size()};
  return Outcome(process_vm_readv(Pid(task), &local, 1, &remote, 1, 0));
}

std::string WriteMemory(Task& task) {
  char none = 0;
  iovec local{&none, 1};
  iovec remote{reinterpret_cast<void*>(strtoull(task.Text("address").c_str(), nullptr, 16)), 0};
  return Outcome(process_vm_writev(Pid(task), &local, 1, &remote, 1, 0));
}

// Signal 0: tests the permission without harm.
std::string Kill(Task& task) { return Outcome(kill(Pid(task), 0)); }
std::string ThreadKill(Task& task) { return Outcome(syscall(SYS_tgkill, Pid(task), Pid(task), 0)); }
std::string KillAll(Task&) { return Outcome(kill(-1, 0)); }
std::string QueueSignal(Task& task) {
  siginfo_t info{};
  info.si_code = SI_QUEUE;
  return Outcome(syscall(SYS_rt_sigqueueinfo, Pid(task), 0, &info));
}
std::string PidDescriptor(Task& task) { return Outcome(syscall(SYS_pidfd_open, Pid(task), 0)); }
std::string StealDescriptor(Task& task) {
  UniqueFd pid(static_cast<int>(syscall(SYS_pidfd_open, Pid(task), 0)));
  for (int fd = 0; fd < 64; ++fd) {
    if (const long stolen = syscall(SYS_pidfd_getfd, pid.get(), fd, 0); stolen >= 0) {
      return Took("descriptor " + std::to_string(fd));
    }
  }
  return Refused();
}
std::string LimitsOf(Task& task) {
  rlimit limit;
  return Outcome(syscall(SYS_prlimit64, Pid(task), RLIMIT_NOFILE, nullptr, &limit));
}
std::string AffinityOf(Task& task) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  return Outcome(sched_setaffinity(Pid(task), sizeof(set), &set));
}
std::string PriorityOf(Task& task) { return Outcome(setpriority(PRIO_PROCESS, static_cast<id_t>(Pid(task)), 5)); }

// New processes and programs.
std::string Fork(Task&) {
  const long child = syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    _exit(0);
  }
  return Outcome(child);
}
std::string OldFork(Task&) {
  const long child = syscall(SYS_fork);
  if (child == 0) {
    _exit(0);
  }
  return Outcome(child);
}
std::string NewClone(Task&) {
  uint64_t arguments[11] = {};
  arguments[4] = SIGCHLD;
  const long child = syscall(SYS_clone3, arguments, sizeof(arguments));
  if (child == 0) {
    _exit(0);
  }
  return Outcome(child);
}
std::string Execute(Task&) {
  char name[] = "/bin/true";
  char* const arguments[] = {name, nullptr};
  char* const environment[] = {nullptr};
  return Outcome(execve(name, arguments, environment));
}
std::string ExecuteMemory(Task&) {
  UniqueFd memory(memfd_create("program", 0));
  char* const arguments[] = {nullptr};
  return Outcome(syscall(SYS_execveat, memory.get(), "", arguments, arguments, AT_EMPTY_PATH));
}

// Identity.
std::string BecomeUser(Task& task) {
  const auto uid = static_cast<uid_t>(task.Number("uid"));
  return Outcome(syscall(SYS_setresuid, uid, uid, uid));
}
std::string BecomeGroup(Task& task) {
  const auto gid = static_cast<gid_t>(task.Number("uid"));
  return Outcome(syscall(SYS_setresgid, gid, gid, gid));
}
std::string TakeCapabilities(Task&) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct all[2];
  memset(all, 0xff, sizeof(all));
  return Outcome(syscall(SYS_capset, &header, all));
}
std::string BecomeDumpable(Task&) { return Outcome(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)); }
std::string OutliveParent(Task&) { return Outcome(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)); }

// Sockets.
std::string ConnectUnix(Task& task) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = task.Text("path");  // "@name": abstract.
  memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  socklen_t size = sizeof(address);
  if (path.starts_with('@')) {
    address.sun_path[0] = 0;
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  }
  if (!socket.valid()) {
    return Refused();
  }
  return Outcome(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), size));
}

sockaddr_in Loopback(const Task& task) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(task.Number("port")));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
std::string ConnectTcp(Task& task) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(task);
  return Outcome(socket.valid() ? connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address))
                                : -1);
}
std::string SendUdp(Task& task) {
  UniqueFd socket(::socket(AF_INET, SOCK_DGRAM, 0));
  const sockaddr_in address = Loopback(task);
  return Outcome(socket.valid()
                     ? sendto(socket.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address))
                     : -1);
}
std::string ListenTcp(Task&) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  return Outcome(socket.valid() ? bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) : -1);
}
// family, kind.
std::string OpenSocket(Task& task) {
  UniqueFd socket(::socket(static_cast<int>(task.Number("family")), static_cast<int>(task.Number("kind")), 0));
  return Outcome(socket.valid() ? 0 : -1);
}
std::string SocketPair(Task&) {
  int ends[2];
  return Outcome(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
}

// Lets the lab find the executor of a tenant.
std::string Name(Task& task) {
  prctl(PR_SET_NAME, task.Text("tag").c_str(), 0, 0, 0);
  return "refused: named";
}

constexpr NamedProbe kProbes[] = {
    {"name", Name},
    {"ptrace", Trace},
    {"read_memory", ReadMemory},
    {"write_memory", WriteMemory},
    {"kill", Kill},
    {"tgkill", ThreadKill},
    {"kill_all", KillAll},
    {"sigqueue", QueueSignal},
    {"pidfd_open", PidDescriptor},
    {"pidfd_getfd", StealDescriptor},
    {"prlimit_of", LimitsOf},
    {"affinity_of", AffinityOf},
    {"priority_of", PriorityOf},
    {"clone_process", Fork},
    {"fork", OldFork},
    {"clone3", NewClone},
    {"execve", Execute},
    {"execveat", ExecuteMemory},
    {"setresuid", BecomeUser},
    {"setresgid", BecomeGroup},
    {"capset", TakeCapabilities},
    {"dumpable", BecomeDumpable},
    {"pdeathsig", OutliveParent},
    {"connect_unix", ConnectUnix},
    {"connect_tcp", ConnectTcp},
    {"send_udp", SendUdp},
    {"listen_tcp", ListenTcp},
    {"socket", OpenSocket},
    {"socketpair", SocketPair},
};

}  // namespace

std::span<const NamedProbe> ProcessProbes() { return kProbes; }

}  // namespace hpvm::lab
