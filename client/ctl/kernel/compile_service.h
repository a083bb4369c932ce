// SPDX-License-Identifier: Apache-2.0
// Runs the compiler without an executor: starts `hpvm-compiler`, which sandboxes itself and ends with this process.
// hpvmctl itself does not link a compiler.
#ifndef HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_
#define HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_

#include <memory>
#include <optional>

#include "base/status.h"
#include "compiler/api/service.h"
#include "compiler/api/tuning_record.h"

namespace hpvm::ctl {

// Compiles in a separate process. $HPVM_COMPILER names the program, otherwise it is the one beside this program.
//
// `tuning`, if not null, receives the measurements of local runs for the kernel that `request` would build without
// `explain`; it stays empty when no local run has used the kernel, or local runs store nothing.
StatusOr<CompileOutcome> CompileHere(const CompileRequest& request, std::optional<TuningRecord>* tuning);

// LocalCompiler is one compiler process for several compiles of WebAssembly modules. It keeps nothing on disk.
class LocalCompiler {
 public:
  // Starts the process. Returns kNotFound when the program is not installed.
  static StatusOr<std::unique_ptr<LocalCompiler>> Start();
  // Ends the process.
  ~LocalCompiler();
  LocalCompiler(const LocalCompiler&) = delete;
  LocalCompiler& operator=(const LocalCompiler&) = delete;

  // Blocks until the compile has ended.
  StatusOr<CompileOutcome> Compile(const CompileRequest& request);

 private:
  struct Parts;
  LocalCompiler();
  const std::unique_ptr<Parts> parts_;
};

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_KERNEL_COMPILE_SERVICE_H_
