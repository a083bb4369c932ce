// SPDX-License-Identifier: Apache-2.0
// One compile, from a module's bytes to an artifact, as the zygote's child and the developer's tool run it.
#ifndef HPVMD_COMPILER_DRIVER_COMPILE_H_
#define HPVMD_COMPILER_DRIVER_COMPILE_H_

#include <optional>
#include <span>
#include <vector>

#include "base/diagnostic.h"
#include "compiler/api/artifact.h"
#include "compiler/api/service.h"
#include "compiler/back/llvm/llvm_back.h"
#include "compiler/ir/source_location.h"

namespace hpvm::compile {

struct CompileResult {
  Diagnostics diagnostics;  // If it has an error there is no artifact.
  std::optional<Artifact> artifact;
};

// Reads `bytes` as request.module_kind says; does not use request.module. The caller limits time and memory.
CompileResult CompileModule(const CompileRequest& request, std::span<const uint8_t> bytes,
                            const cpu::CpuTarget& target);

// The module as the back end receives it: read, verified, after the target's passes. For the developer's tool.
struct FrontResult {
  Diagnostics diagnostics;
  std::optional<ir::Module> module;
  std::vector<ir::SourceLocation> places;  // Source places of panics.
  uint64_t read_ns = 0, pass_ns = 0;
};
// `report`, unless null, receives the remarks of passes.
FrontResult PrepareModule(const CompileRequest& request, std::span<const uint8_t> bytes,
                          KernelReport* report = nullptr);

}  // namespace hpvm::compile

#endif  // HPVMD_COMPILER_DRIVER_COMPILE_H_
