// SPDX-License-Identifier: Apache-2.0
// A compile in a process of its own, and the zygote's rehearsal of one.
#ifndef HPVMD_COMPILER_DRIVER_ZYGOTE_CHILD_H_
#define HPVMD_COMPILER_DRIVER_ZYGOTE_CHILD_H_

#include "base/status.h"
#include "compiler/api/service.h"
#include "compiler/back/llvm/llvm_back.h"
#include "sandbox/call_filter.h"
#include "sandbox/limits.h"

namespace hpvm::compile {

// The exit status of a child that runs out of memory.
inline constexpr int kOutOfMemoryStatus = 77;

struct ChildTask {
  const CompileRequest& request;
  int module_fd;
  uint64_t module_bytes;
  int result_fd;  // A pipe, for one frame (compiler/driver/zygote.h).
  int parent;
  const cpu::CpuTarget& target;
  sandbox::ChildLimits limits;
  const sandbox::CallFilter* filter;  // Null: no filter.
};

// Compiles and ends the process. Call right after fork.
[[noreturn]] void RunChild(const ChildTask& task);

// Compiles a small kernel, so that children find LLVM's and wabt's tables built and their pages present.
Status WarmUp(const cpu::CpuTarget& target);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_ZYGOTE_CHILD_H_
