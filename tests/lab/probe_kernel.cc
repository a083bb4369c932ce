// SPDX-License-Identifier: Apache-2.0
// Rarely used system calls, each with arguments that do nothing where the call is allowed.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/io/fd.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

// A call by number: number, a to f. An error that only rejects the arguments means that the call is allowed.
std::string Call(Task& task) {
  const long result = syscall(task.Number("number"), task.Number("a"), task.Number("b"), task.Number("c"),
                              task.Number("d"), task.Number("e"), task.Number("f"));
  if (result >= 0 || errno == EINVAL || errno == EFAULT || errno == EBADF || errno == ENOENT || errno == ENODEV) {
    return Took(result >= 0 ? std::to_string(result) : strerrorname_np(errno));
  }
  return Refused();
}

std::string Unshare(Task& task) { return Outcome(unshare(static_cast<int>(task.Number("flags")))); }
std::string CloneNamespace(Task& task) {
  const long child = syscall(SYS_clone, task.Number("flags") | SIGCHLD, nullptr, nullptr, nullptr, nullptr);
  if (child == 0) {
    _exit(0);
  }
  return Outcome(child);
}

std::string WriteAndExecute(Task&) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return Outcome(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC));
}
std::string MapExecutable(Task&) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return Outcome(page == MAP_FAILED ? -1 : 0);
}
// Two mappings of one memory: one for writing, the other for execution.
std::string MapTwice(Task&) {
  UniqueFd memory(memfd_create("code", 0));
  if (!memory.valid() || ftruncate(memory.get(), 4096) != 0) {
    return Refused();
  }
  return Outcome(mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, memory.get(), 0) == MAP_FAILED ? -1 : 0);
}
std::string ProtectByKey(Task&) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return Outcome(syscall(SYS_pkey_mprotect, page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, -1));
}

// fd, request.
std::string Ioctl(Task& task) {
  char data[256] = {};
  const auto request = static_cast<unsigned long>(task.Number("request"));
  const int result = ioctl(static_cast<int>(task.Number("fd")), request, data);
  return result >= 0 || errno == ENOTTY ? Took("reached the driver") : Refused();
}

std::string SharedSegment(Task&) {
  const int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
  if (id >= 0) {
    shmctl(id, IPC_RMID, nullptr);
  }
  return Outcome(id);
}
std::string Semaphores(Task&) {
  const int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0666);
  if (id >= 0) {
    semctl(id, 0, IPC_RMID);
  }
  return Outcome(id);
}
std::string MessageQueue(Task&) {
  const int id = msgget(IPC_PRIVATE, IPC_CREAT | 0666);
  if (id >= 0) {
    msgctl(id, IPC_RMID, nullptr);
  }
  return Outcome(id);
}

std::string RaisePriority(Task&) { return Outcome(setpriority(PRIO_PROCESS, 0, -20)); }
std::string RealTime(Task&) {
  const sched_param high{.sched_priority = 50};
  return Outcome(sched_setscheduler(0, SCHED_FIFO, &high));
}
std::string RaiseLimits(Task&) {
  const rlimit limit{1 << 20, 1 << 20};
  return Outcome(setrlimit(RLIMIT_NOFILE, &limit));
}
std::string LockMemory(Task&) { return Outcome(mlockall(MCL_CURRENT | MCL_FUTURE)); }

// The table of 32-bit calls, in which numbers have other meanings: getpid is 20 there.
std::string OldTable(Task&) {
  long result = 20;
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return result > 0 ? Took(std::to_string(result)) : "refused: " + std::to_string(result);
}
// The x32 table: the same calls, with an additional bit in their numbers.
std::string OtherTable(Task&) { return Outcome(syscall(0x40000000 | SYS_getuid)); }

constexpr NamedProbe kProbes[] = {
    {"call", Call},
    {"unshare", Unshare},
    {"clone_namespace", CloneNamespace},
    {"mprotect_wx", WriteAndExecute},
    {"mmap_wx", MapExecutable},
    {"mmap_twice", MapTwice},
    {"pkey_mprotect", ProtectByKey},
    {"ioctl", Ioctl},
    {"shmget", SharedSegment},
    {"semget", Semaphores},
    {"msgget", MessageQueue},
    {"raise_priority", RaisePriority},
    {"real_time", RealTime},
    {"raise_limits", RaiseLimits},
    {"mlockall", LockMemory},
    {"int80", OldTable},
    {"x32", OtherTable},
};

}  // namespace

std::span<const NamedProbe> KernelProbes() { return kProbes; }

}  // namespace hpvm::lab
