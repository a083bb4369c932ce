// SPDX-License-Identifier: Apache-2.0
// Ways in which a process ends, or stops without ending.
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/io/fd.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

// Sends a signal to itself, which the filter allows; the default action applies.
void Raise(int number) {
  signal(number, SIG_DFL);
  syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

std::string Segv(Task&) {
  *reinterpret_cast<volatile int*>(8) = 1;
  return Took("the page at 0");
}
std::string Bus(Task&) {
  UniqueFd memory(memfd_create("bus", 0));
  auto* page = static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0));
  page[0] = 1;  // Beyond its end.
  return Took("a page that is not there");
}
std::string Ill(Task&) {
  asm volatile("ud2");
  return Took("an instruction that is none");
}
std::string Fpe(Task& task) {
  int quotient = 1, rest = 0;
  const int zero = static_cast<int>(task.Number("none"));
  asm volatile("idivl %2" : "+a"(quotient), "+d"(rest) : "r"(zero));  // In assembly, because compilers optimise C.
  return Took(std::to_string(quotient));
}
std::string Abort(Task&) {
  abort();  // Also ends the first process of a namespace, which ignores its own signals.
}
std::string Sys(Task&) {
  syscall(SYS_ptrace, 0, 0, 0, 0);  // Fatal with a filter.
  Raise(SIGSYS);
  return Took("a call");
}
std::string Exit(Task&) { _exit(0); }
// Answers go through the ring, so the daemon needs time to find that the socket has ended.
std::string CloseSocket(Task&) {
  close(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  return Took("close");
}
std::string Garbage(Task&) {
  PutDaemonMark();
  const char bytes[64] = "This is no frame, and it never was one. The end of the line.";
  const ssize_t put = write(3, bytes, sizeof(bytes));
  return put < 0 ? Refused() : "refused: went on";
}
std::string DeviceLost(Task& task) {
  task.keep_answer = true;
  SetStatus(Unavailable("The device is lost, the attacker says."), task.done->mutable_status());
  task.done->add_lost_devices(0);
  return "";
}
std::string Assert(Task&) {
  __assert_fail("driver_is_good", "driver.c", 42, "Submit");
}
std::string DoubleFree(Task&) {
  void* volatile block = malloc(2000);
  free(block);
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuse-after-free"
#endif
  free(block);
#pragma GCC diagnostic pop
  abort();  // The allocator did not notice.
}

constexpr NamedProbe kProbes[] = {
    {"segv", Segv}, {"bus", Bus},   {"ill", Ill},   {"fpe", Fpe},       {"abrt", Abort},
    {"sys", Sys},   {"exit", Exit}, {"fd_close", CloseSocket},
    {"garbage", Garbage}, {"device_lost", DeviceLost}, {"assert", Assert}, {"double_free", DoubleFree},
};

}  // namespace

std::span<const NamedProbe> CrashProbes() { return kProbes; }

}  // namespace hpvm::lab
