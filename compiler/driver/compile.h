// SPDX-License-Identifier: Apache-2.0
// One compile, from a module's bytes to an artifact: what a child of the zygote does, and the developer's tool.
#ifndef HPVMD_COMPILER_DRIVER_COMPILE_H_
#define HPVMD_COMPILER_DRIVER_COMPILE_H_

#include <optional>
#include <span>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/api/service.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/source_place.h"

namespace hpvm::compile {

struct CompileResult {
  Diagnostics diagnostics;  // With an error there is no artifact.
  std::optional<Artifact> artifact;
};

// Reads `bytes` as request.module_kind says; request.module is not looked at. Its time and memory are the caller's to
// limit.
CompileResult CompileModule(const CompileRequest& request, std::span<const uint8_t> bytes,
                            const cpu::CpuTarget& target);

// The module as the back end gets it: read, verified, after the passes if the target has any. For the developer's tool.
struct FrontResult {
  Diagnostics diagnostics;
  std::optional<ir::Module> module;
  std::vector<ir::SourcePlace> places;  // Of panics.
  uint64_t read_ns = 0, pass_ns = 0;
};
// `report` receives what passes remark, unless it is null.
FrontResult PrepareModule(const CompileRequest& request, std::span<const uint8_t> bytes,
                          KernelReport* report = nullptr);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_COMPILE_H_
