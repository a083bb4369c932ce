// SPDX-License-Identifier: Apache-2.0
// Determines what a system call filter does with every number, for golden tables.
#ifndef HPVMD_SANDBOX_TESTING_SYSCALL_TABLE_H_
#define HPVMD_SANDBOX_TESTING_SYSCALL_TABLE_H_

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::sandbox::testing {

// An errno that no system call returns, so that the filter's refusals differ from the kernel's.
inline constexpr int kRefused = 4000;
// Beyond every assigned number.
inline constexpr int kSyscallsMax = 470;

// Runs `body` in a child; returns its result, or -signal.
inline int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(body());
  }
  int status = 0;
  HPVMD_CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

enum SyscallOutcome : int { kAllowed = 0, kRefusal = 1, kNotThere = 2 };

inline int OutcomeOf(long result) {
  return result == -1 && errno == kRefused ? kRefusal : result == -1 && errno == ENOSYS ? kNotThere : kAllowed;
}

inline std::string NameOf(int outcome) {
  switch (outcome) {
    case kRefusal:
      return "refuse";
    case kNotThere:
      return "absent";
    case -SIGSYS:
      return "kill";
    default:
      return "allow";  // It did something, or crashed on the arguments.
  }
}

// Installs the filter in this process, refusing with kRefused.
using Filter = std::function<Status()>;

// Runs `call` under the filter, in a separate child.
inline int UnderFilter(const Filter& filter, const std::function<long()>& call) {
  return InChild([&] {
    alarm(20);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!filter().ok()) {
      return 100;
    }
    errno = 0;
    return OutcomeOf(call());
  });
}

// vfork whose child ends at once, because it must not return into a shared stack.
inline long Vfork() {
#if defined(__x86_64__)
  long result = SYS_vfork;
  asm volatile(
      "syscall\n"
      "test %%rax, %%rax\n"
      "jnz 1f\n"
      "mov %1, %%eax\n"
      "xor %%edi, %%edi\n"
      "syscall\n"
      "1:"
      : "+a"(result)
      : "i"(SYS_exit_group)
      : "rcx", "r11", "rdi", "memory", "cc");
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return result;
#else
  return syscall(SYS_vfork);
#endif
}

// Returns the whole table in the golden file's format: "0 allow", with ranges of equal outcomes joined.
inline std::string SyscallTable(const Filter& filter) {
  std::vector<std::string> outcomes;
  for (int number = 0; number <= kSyscallsMax; ++number) {
    // uretprobe and uprobe: newer kernels exempt them from filters, and they raise SIGILL outside a probe.
    const bool is_unfiltered = number == 335 || number == 336;
    outcomes.push_back(is_unfiltered ? "unfiltered" : NameOf(UnderFilter(filter, [number] {
      return number == SYS_vfork ? Vfork() : syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
    })));
  }
  std::ostringstream table;
  for (size_t first = 0; first < outcomes.size();) {
    size_t last = first;
    while (last + 1 < outcomes.size() && outcomes[last + 1] == outcomes[first]) {
      ++last;
    }
    table << first << (last > first ? "-" + std::to_string(last) : "") << " " << outcomes[first] << "\n";
    first = last + 1;
  }
  return table.str();
}

// Returns how many numbers a table allows.
inline int CountAllowed(const std::string& table) {
  std::istringstream lines(table);
  std::string range, outcome;
  int count = 0;
  while (lines >> range >> outcome) {
    const size_t dash = range.find('-');
    const int first = std::stoi(range), last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
    count += outcome == "allow" ? last - first + 1 : 0;
  }
  return count;
}

// Returns the first number beyond the table that the filter does not refuse; 0 when it refuses all. Later kernels
// assign such numbers.
inline int FirstBeyondTable(const Filter& filter) {
  constexpr int kBeyondMax = 4096;
  int found = 0;
  int ends[2];
  HPVMD_CHECK(pipe(ends) == 0);
  InChild([&] {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    int number = filter().ok() ? kSyscallsMax + 1 : kBeyondMax;
    while (number < kBeyondMax && syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) == -1 && errno == kRefused) {
      ++number;
    }
    const ssize_t put = write(ends[1], &number, sizeof(number));
    return put == sizeof(number) ? 0 : 1;
  });
  close(ends[1]);
  HPVMD_CHECK(read(ends[0], &found, sizeof(found)) == sizeof(found));
  close(ends[0]);
  return found == kBeyondMax ? 0 : found;
}

#if defined(__x86_64__)
// Calls getpid by int 0x80, whatever the filter otherwise allows.
inline int ByInt80(const Filter& filter) {
  return UnderFilter(filter, [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result)::"memory", "cc", "r8", "r9", "r10", "r11");
    return result;
  });
}
#endif

}  // namespace hpvm::sandbox::testing

#endif  // HPVMD_SANDBOX_TESTING_SYSCALL_TABLE_H_
