// SPDX-License-Identifier: Apache-2.0
// The CPU back end: kernel IR → LLVM → one position-independent image as compiler/ir/cpu_abi.h describes.
//
// Linked into hpvm-compiler and tests only: it brings libLLVM. No header of LLVM's is needed to use it.
#ifndef HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_
#define HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/api/audit.h"
#include "compiler/api/report.h"
#include "compiler/ir/ir.h"
#include "compiler/pass/gang/gang_plan.h"

namespace hpvm::cpu {

// What the code may use of the processor: one of the psABI's levels "x86-64-v2" (SSE2 to SSE4.2), "x86-64-v3" (AVX2),
// "x86-64-v4" (AVX-512), or "aarch64" (NEON), for which text can be made but nothing here can run.
struct CpuTarget {
  std::string level;
};

// The highest level that this machine has. kFailedPrecondition below x86-64-v2, whose rounding instructions the code
// relies on.
StatusOr<CpuTarget> HostCpuTarget();

// Prepares LLVM's tables; a second call does nothing. Costs some milliseconds, so the zygote calls it before it forks.
void InitializeLlvm();

// `handler` runs when an allocation fails, here or in LLVM; it must not return.
void SetOutOfMemoryHandler(void (*handler)());

struct CpuOptions {
  // Contraction, reassociation, reciprocals and the fast math library: a node's "math": "fast".
  bool fast_math = false;
  // Whether to make variants that run instances in lockstep; false: one at a time only.
  bool vectorise = true;
  // The shapes to make instead of those that the cost model chooses, in this order; for tests and for what a device has
  // learnt. Those that cannot be emitted are left out.
  std::vector<pass::GangShape> shapes{};
  bool audits_proofs = kAuditsProofs;  // Unchecked variants check, and trap with kWrongProof.
  KernelReport* report = nullptr;      // May be null.
};

// Emits `module`, which must be verified and have gone through the pipeline. kUnimplemented for what the back end
// lacks, kInternal when LLVM produced something an image cannot hold (a relocation, an outside symbol, a stack frame
// above the limit).
StatusOr<Artifact> EmitCpuImage(const ir::Module& module, const CpuTarget& target, const CpuOptions& options = {});

// For people: LLVM IR after optimisation, or assembly.
enum class CpuText : uint8_t { kLlvm, kAssembly };
StatusOr<std::string> EmitCpuText(const ir::Module& module, const CpuTarget& target, CpuText text,
                                  const CpuOptions& options = {});

}  // namespace hpvm::cpu

#endif  // HPVMD_COMPILER_BACK_LLVM_LLVM_BACK_H_
