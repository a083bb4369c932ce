// SPDX-License-Identifier: Apache-2.0
#include "sandbox/call_filter.h"

#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/io/fd.h"
#include "base/io/memfd.h"

namespace hpvm::sandbox {
namespace {

struct ReleaseContext {
  void operator()(void* context) const { seccomp_release(context); }
};
using Context = std::unique_ptr<void, ReleaseContext>;

Status Add(const Context& context, const CallRule& rule, char verdict) {
  const uint32_t action = verdict == 'a'   ? SCMP_ACT_ALLOW
                          : verdict == 'k' ? SCMP_ACT_KILL_PROCESS
                                           : SCMP_ACT_ERRNO(ENOSYS);
  scmp_arg_cmp arguments[2];
  unsigned count = 0;
  for (const ArgumentRule& argument : rule.arguments) {
    if (argument.mask != 0) {
      const auto value = argument.is_own_process ? static_cast<uint64_t>(getpid()) : argument.value;
      arguments[count++] = argument.mask == ~uint64_t{0}
                               ? scmp_arg_cmp{argument.argument, SCMP_CMP_EQ, value, 0}
                               : scmp_arg_cmp{argument.argument, SCMP_CMP_MASKED_EQ, argument.mask, value};
    }
  }
  const int error = seccomp_rule_add_array(context.get(), action, rule.call, count, arguments);
  return error == 0 ? absl::OkStatus()
                    : FromErrno(-error, "Building the filter's rule for system call " + std::to_string(rule.call));
}

StatusOr<std::vector<sock_filter>> ProgramOf(const Context& context) {
  UniqueFd file(memfd_create("hpvm-filter", MFD_CLOEXEC));
  if (!file.valid()) {
    return FromErrno(errno, "Creating a memfd");
  }
  if (int error = seccomp_export_bpf(context.get(), file.get()); error != 0) {
    return FromErrno(-error, "Exporting a system call filter");
  }
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return FromErrno(errno, "Sizing a system call filter");
  }
  std::vector<sock_filter> program(static_cast<size_t>(info.st_size) / sizeof(sock_filter));
  HPVMD_RETURN_IF_ERROR(
      ReadAt(file.get(), 0, {reinterpret_cast<uint8_t*>(program.data()), program.size() * sizeof(sock_filter)}));
  return program;
}

}  // namespace

StatusOr<CallFilter> CallFilter::For(SandboxRole role, int refuse_errno) {
  const Context context(seccomp_init(SCMP_ACT_ERRNO(static_cast<uint16_t>(refuse_errno))));
  if (context == nullptr) {
    return Internal("A system call filter cannot be created.");
  }
  // Other calling conventions (i386, x32) reach other tables.
  seccomp_attr_set(context.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  seccomp_attr_set(context.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);  // Binary search by number instead of a linear one.
  for (const CallRule& rule : CallRules()) {
    const char verdict = rule.verdicts[static_cast<size_t>(role)];
    HPVMD_RETURN_IF_ERROR(verdict == '.' ? absl::OkStatus() : Add(context, rule, verdict));
  }
  CallFilter filter;
  HPVMD_ASSIGN_OR_RETURN(filter.program_, ProgramOf(context));
  return filter;
}

Status CallFilter::Apply() const {
  const sock_fprog program = {static_cast<unsigned short>(program_.size()), const_cast<sock_filter*>(program_.data())};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0 ? absl::OkStatus()
                                                                   : FromErrno(errno, "Applying a system call filter");
}

}  // namespace hpvm::sandbox
