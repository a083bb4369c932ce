// SPDX-License-Identifier: Apache-2.0
#include "base/io/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hpvm {
namespace {

constexpr int kSocketFd = 3;
// Above every descriptor number that a child gets, so that no dup2 overwrites a source.
constexpr int kSafeFdMin = 16;

// Owns the two objects of posix_spawn.
class SpawnActions {
 public:
  SpawnActions() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  // `source` becomes `target` in the child.
  Status Place(int source, int target) {
    UniqueFd safe(fcntl(source, F_DUPFD_CLOEXEC, kSafeFdMin));
    if (!safe.valid()) {
      return FromErrno(errno, "Duplicating a descriptor for a new process");
    }
    posix_spawn_file_actions_adddup2(&actions_, safe.get(), target);
    held_.push_back(std::move(safe));
    return absl::OkStatus();
  }
  void CloseFrom(int first) { posix_spawn_file_actions_addclosefrom_np(&actions_, first); }

  posix_spawn_file_actions_t* actions() { return &actions_; }
  posix_spawnattr_t* attributes() { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  std::vector<UniqueFd> held_;
};

// Returns pointers into `variables`, terminated by null.
std::vector<char*> Environment(std::vector<std::string>& variables) {
  for (const std::string& name : DriverVariables()) {
    if (const char* value = getenv(name.c_str()); value != nullptr) {
      variables.push_back(name + "=" + value);
    }
  }
  std::vector<char*> environment;
  for (std::string& variable : variables) {
    environment.push_back(variable.data());
  }
  environment.push_back(nullptr);
  return environment;
}

// While it lives, the next process that the calling thread starts is the first of a new PID namespace. It has no effect
// where the system refuses that.
class NewPids {
 public:
  explicit NewPids(bool wanted) {
    if (wanted) {
      own_.reset(open("/proc/thread-self/ns/pid", O_RDONLY | O_CLOEXEC));
      is_new_ = own_.valid() && unshare(CLONE_NEWPID) == 0;
    }
  }
  // Returning cannot fail: it restores the namespace that the thread itself never left.
  ~NewPids() { HPVMD_CHECK(!is_new_ || setns(own_.get(), CLONE_NEWPID) == 0); }
  NewPids(const NewPids&) = delete;
  NewPids& operator=(const NewPids&) = delete;

 private:
  UniqueFd own_;
  bool is_new_ = false;
};

// While it lives, the calling thread and the processes it starts run only on these processors.
class StartsOn {
 public:
  explicit StartsOn(const std::vector<uint32_t>& cpus) {
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const uint32_t cpu : cpus) {
      if (cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &wanted);
      }
    }
    is_set_ = !cpus.empty() && sched_getaffinity(0, sizeof(own_), &own_) == 0;
    failed_ = is_set_ && sched_setaffinity(0, sizeof(wanted), &wanted) != 0 ? errno : 0;
  }
  ~StartsOn() {
    if (is_set_ && failed_ == 0) {
      sched_setaffinity(0, sizeof(own_), &own_);
    }
  }
  StartsOn(const StartsOn&) = delete;
  StartsOn& operator=(const StartsOn&) = delete;
  int failed() const { return failed_; }

 private:
  cpu_set_t own_{};
  bool is_set_ = false;
  int failed_ = 0;
};

}  // namespace

const std::vector<std::string>& DriverVariables() {
  static const auto* variables = new std::vector<std::string>{
      "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH",     "VK_DRIVER_FILES", "VK_ICD_FILENAMES",
      "LD_LIBRARY_PATH", "POCL_PATH_CLANG",   "POCL_MAX_PTHREAD_COUNT", "LP_NUM_THREADS",  "CUDA_VISIBLE_DEVICES"};
  return *variables;
}

StatusOr<SpawnedProcess> Spawn(const SpawnOptions& options) {
  SpawnActions spawn;
  UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null.valid()) {
    return FromErrno(errno, "Opening \"/dev/null\"");
  }
  HPVMD_RETURN_IF_ERROR(spawn.Place(null.get(), STDIN_FILENO));
  HPVMD_RETURN_IF_ERROR(spawn.Place(options.stdout_fd >= 0 ? options.stdout_fd : null.get(), STDOUT_FILENO));
  HPVMD_RETURN_IF_ERROR(spawn.Place(options.stderr_fd >= 0 ? options.stderr_fd : null.get(), STDERR_FILENO));
  if (options.socket >= 0) {
    HPVMD_RETURN_IF_ERROR(spawn.Place(options.socket, kSocketFd));
  }
  spawn.CloseFrom(options.socket >= 0 ? kSocketFd + 1 : kSocketFd);
  std::vector<char*> arguments;
  for (const std::string& argument : options.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  std::vector<char*> environment = Environment(variables);
  SpawnedProcess process;
  const StartsOn processors(options.cpus);
  if (processors.failed() != 0) {
    return FromErrno(processors.failed(), "Choosing the processors of \"" + options.arguments[0] + "\"");
  }
  const NewPids pids(options.has_own_pids);
  const int error = posix_spawn(&process.pid, arguments[0], spawn.actions(), spawn.attributes(), arguments.data(),
                                environment.data());
  if (error != 0) {
    return FromErrno(error, "Starting \"" + options.arguments[0] + "\"");
  }
  process.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
  if (!process.pidfd.valid()) {
    const int saved = errno;
    if (saved == ESRCH) {  // The child was killed already: its number may belong to another process by now.
      waitpid(process.pid, nullptr, WNOHANG);
      return Unavailable("The process of \"" + options.arguments[0] + "\" ended as soon as it had started.");
    }
    kill(process.pid, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    return FromErrno(saved, "Watching the new process");
  }
  return process;
}

SpawnedProcess Fork() {
  SpawnedProcess child;
  int descriptor = -1;
  // Flags, stack and the descriptor's address have this order on every supported architecture.
  child.pid = static_cast<int>(syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &descriptor, nullptr, nullptr));
  if (child.pid > 0) {
    child.pidfd.reset(descriptor);
  }
  return child;
}

std::string Reap(const SpawnedProcess& process) {
  siginfo_t info{};
  // The child has not been reaped, so its pid cannot belong to another process.
  if (waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOHANG) != 0) {
    return "unknown cause";
  }
  if (info.si_pid == 0) {
    return "";
  }
  return (info.si_code == CLD_EXITED ? "exit code " : "signal ") + std::to_string(info.si_status);
}

void SendKill(const SpawnedProcess& process) {
  syscall(SYS_pidfd_send_signal, process.pidfd.get(), SIGKILL, nullptr, 0);
}

void KillAndReap(const SpawnedProcess& process) {
  SendKill(process);
  while (waitpid(process.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace hpvm
